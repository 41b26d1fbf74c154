"""A loader's epochs in time that jumps: what computing waits for, by how far ahead batches are asked for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, cast

import pandas as pd
import pytest

from traffic.storage.chains import Extent, Striping
from traffic.storage.client.data_loader import DataLoader, Pace, WantedBatch
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.samples import ReaderPlace
from traffic.storage.load_measures import loader_numbers
from traffic.storage.wire.calls import Tasks

from .conftest import config_of
from .true_timers import run

BATCHES = 10
READ_S = 0.004
"""How long a batch takes to read while nothing else is read."""


class SlowClient:
    """In place of a client: reads one batch after the other, each as long; ``failing``: those that it gives up."""

    def __init__(self, failing: frozenset[int] = frozenset()) -> None:
        self.asked: list[int] = []
        self.under_way = 0
        self.most_under_way = 0
        self._failing = failing
        self._one = asyncio.Lock()

    async def read_chunks(self, extents: Sequence[Extent]) -> None:
        self.asked.append(sum(extent.length for extent in extents))
        number = len(self.asked)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        async with self._one:
            await asyncio.sleep(READ_S)
        self.under_way -= 1
        if number in self._failing:
            raise GaveUp("out of reach")


def loader_of(client: SlowClient, epochs: dict[str, Any]) -> tuple[DataLoader, asyncio.Event, Any, Tasks]:
    settings = {
        "batch": 2,
        "files": 2,
        "file_size": 2 * BATCHES * 4096 // 2,
        "sample_min": 4096,
        "sample_max": 4096,
        "epochs": {"count": 1, **epochs},
    }
    config = config_of({"chunk_size": 1 << 16, "dataloader": settings}).dataloader
    striping = Striping(1 << 16, 4, 48, 1)
    files = [striping.layout(number, config.file_size) for number in range(config.files)]
    tasks, stopping = Tasks(), asyncio.Event()

    async def pause(seconds: float) -> None:
        if seconds > 0:
            try:
                await asyncio.wait_for(stopping.wait(), seconds)
            except asyncio.TimeoutError:
                return

    loader = DataLoader(cast(StorageClient, client), config, files, ReaderPlace(0, 1), 1)
    return loader, stopping, pause, tasks


async def played(client: SlowClient, epochs: dict[str, Any], stop_after_s: float | None = None) -> list[WantedBatch]:
    loader, stopping, pause, tasks = loader_of(client, epochs)
    if stop_after_s is not None:
        tasks.loop.call_later(stop_after_s, stopping.set)
    await loader.play(Pace(stopping.is_set, pause, tasks.spawn))
    assert not tasks.failed.done()
    assert client.under_way == 0, "what was asked for has ended"
    return loader.wanted


def waits(batches: Sequence[WantedBatch]) -> list[float]:
    return [round(one.started_s - one.due_s, 6) for one in batches]


@pytest.mark.parametrize(
    ("compute_s", "prefetch", "first", "later"),
    [
        (0.010, 0, READ_S, READ_S),  # Each is read when it is wanted.
        (0.010, 1, READ_S, 0.0),  # Reading is shorter than computing.
        (0.001, 1, READ_S, READ_S - 0.001),  # And longer: then it sets the pace, however far ahead.
        (0.001, 4, READ_S, READ_S - 0.001),
        (0.0, 0, READ_S, READ_S),
    ],
)
def test_computing_waits_for_what_is_not_there(compute_s: float, prefetch: int, first: float, later: float) -> None:
    async def scene() -> list[WantedBatch]:
        return await played(SlowClient(), {"compute": compute_s, "prefetch": prefetch})

    found = run(scene())
    assert [one.batch for one in found] == list(range(BATCHES))
    assert waits(found) == pytest.approx([first] + [later] * (BATCHES - 1))
    assert [one.ended_s - one.started_s for one in found] == pytest.approx([compute_s] * BATCHES)
    assert [one.size_bytes for one in found] == [2 * 4096] * BATCHES
    assert all(one.asked_s <= one.ready_s <= one.started_s for one in found)


@pytest.mark.parametrize(("prefetch", "most"), [(0, 1), (1, 1), (4, 4)])
def test_no_more_is_asked_for_ahead_than_is_to_be(prefetch: int, most: int) -> None:
    async def scene() -> SlowClient:
        await played(client := SlowClient(), {"compute": 0.001, "prefetch": prefetch})
        return client

    client = run(scene())
    assert client.most_under_way == most
    assert client.asked == [2 * 4096] * BATCHES


def test_epochs_follow_each_other_and_each_begins_with_a_wait() -> None:
    async def scene() -> list[WantedBatch]:
        return await played(SlowClient(), {"compute": 0.010, "prefetch": 2, "count": 3, "batches": 4})

    found = run(scene())
    assert [(one.epoch, one.batch) for one in found] == [(epoch, batch) for epoch in range(3) for batch in range(4)]
    assert waits(found) == pytest.approx([READ_S, 0, 0, 0] * 3)


def test_a_batch_that_is_out_of_reach_is_computed_without_its_samples() -> None:
    async def scene() -> list[WantedBatch]:
        return await played(SlowClient(frozenset({3})), {"compute": 0.010, "prefetch": 1})

    assert [one.size_bytes for one in run(scene())] == [8192, 8192, 0, *[8192] * (BATCHES - 3)]


def test_it_stops_between_batches_and_leaves_out_what_was_not_computed() -> None:
    async def scene() -> tuple[float, list[WantedBatch]]:
        began = time.monotonic()
        found = await played(SlowClient(), {"compute": 0.010, "prefetch": 2, "count": None}, stop_after_s=0.031)
        return time.monotonic() - began, found

    took_s, found = run(scene())
    assert [one.batch for one in found] == [0, 1, 2]
    assert [math.isnan(one.ended_s) for one in found] == [False, False, True]
    assert not math.isnan(found[-1].started_s), "the third was cut off while it was computed"
    assert took_s < 0.031 + 3 * READ_S


@pytest.mark.parametrize(
    ("compute_s", "prefetch", "stop_s", "is_read"),
    [
        (0.010, 0, 2 * 0.014 + 0.002, True),  # While computing waited for the third.
        (0.0, 1, 2 * READ_S + 0.002, True),
        (0.010, 0, 2 * 0.014, False),  # Between the second and the third: that had not been asked for.
    ],
)
def test_what_the_end_of_the_phase_left_waiting_is_among_the_batches(
    compute_s: float, prefetch: int, stop_s: float, is_read: bool
) -> None:
    async def scene() -> list[WantedBatch]:
        return await played(SlowClient(), {"compute": compute_s, "prefetch": prefetch}, stop_s)

    found = run(scene())
    assert [one.batch for one in found] == [0, 1, 2]
    assert not any(math.isnan(one.ended_s) for one in found[:2])
    assert math.isnan(found[2].started_s) and math.isnan(found[2].ended_s)
    assert (not math.isnan(found[2].ready_s)) is is_read


def test_an_epoch_that_ends_with_its_phase_is_whole() -> None:
    async def scene() -> list[WantedBatch]:
        return await played(SlowClient(), {"compute": 0.010, "prefetch": 0, "batches": 2}, 2 * 0.014)

    assert not any(math.isnan(one.ended_s) for one in run(scene()))


def rows_of(*rows: tuple[str, int, float, float, float]) -> pd.DataFrame:
    """Batches: host, epoch, due, begun and computed."""
    columns = ["host", "epoch", "due_s", "started_s", "ended_s"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(batch=frame.groupby(["host", "epoch"]).cumcount(), size_bytes=100)


NEVER = math.nan
WHOLE = [("a", 0, 0.0, 1.0, 2.0), ("a", 0, 2.0, 2.0, 3.0), ("b", 0, 0.0, 0.5, 1.5), ("b", 0, 1.5, 2.0, 3.5)]


@pytest.mark.parametrize(
    ("cut", "waiting_s"),
    [
        ([("a", 1, 3.0, 3.5, 4.5), ("a", 1, 4.5, 5.0, NEVER)], 1.0),  # While it was computed.
        ([("a", 1, 3.0, 3.5, 4.5), ("a", 1, 4.5, NEVER, NEVER)], 6.0),  # While it was waited for.
        ([("a", 1, 3.0, 3.5, 4.5), ("a", 1, 4.5, 4.5, 6.0)], 0.5),  # The other reader had not come to the epoch.
    ],
)
def test_only_whole_epochs_have_a_length(cut: list[Any], waiting_s: float) -> None:
    windows = [(0.0, 10.0)]
    whole, found = (loader_numbers(rows_of(*rows), windows) for rows in (WHOLE, [*WHOLE, *cut]))
    of_epochs = ("epochs", "epoch_s", "computing_s", "waiting_s", "first_wait_s", "node_Bps")
    assert [found[f"loader.{name}"] for name in of_epochs] == [whole[f"loader.{name}"] for name in of_epochs]
    assert (whole["loader.epoch_s"], whole["loader.epochs_cut"], found["loader.epochs_cut"]) == (3.5, 0, 1)
    assert found["loader.worst_waiting_s"] == max(waiting_s, 1.0)
    end_s = 6.0 if cut[-1][-1] == 6.0 else 10.0
    assert found["loader.waiting_fraction"] == pytest.approx((2.0 + waiting_s) / (3.0 + 3.5 + end_s - 3.0))


def test_a_load_of_which_no_epoch_was_whole_says_how_long_it_waited() -> None:
    found = loader_numbers(rows_of(("a", 0, 0.0, 1.0, 2.0), ("a", 0, 2.0, NEVER, NEVER)), [(0.0, 9.0)])
    assert found == {
        "loader.epochs": 0, "loader.epochs_cut": 1, "loader.batches": 1, "loader.worst_waiting_s": 8,
        "loader.waiting_fraction": 8 / 9,
    }  # fmt: skip


def test_readers_are_in_the_same_epoch_in_each_phase() -> None:
    """However many of them each had in the phase before."""

    async def scene() -> list[list[int]]:
        loader, stopping, pause, tasks = loader_of(SlowClient(), {"compute": 0.010, "prefetch": 1, "count": None})
        phases = []
        for stop_s in (0.5, 0.1):
            tasks.loop.call_later(stop_s, stopping.set)
            await loader.play(Pace(stopping.is_set, pause, tasks.spawn))
            phases.append(sorted({one.epoch for one in loader.wanted}))
            loader.wanted.clear()
            stopping.clear()
        return phases

    first, second = run(scene())
    assert len(first) > 2 and first[0] == 0
    assert second[0] == 1_000_000
