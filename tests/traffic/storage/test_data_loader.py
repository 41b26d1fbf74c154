"""A loader's epochs in time that jumps: what computing waits for, by how far ahead batches are asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from traffic.storage.chains import Extent, Striping
from traffic.storage.client import GaveUp, StorageClient
from traffic.storage.data_loader import ComputedBatch, DataLoader, Pace
from traffic.storage.samples import ReaderPlace
from traffic.storage.wire import Tasks

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


async def played(client: SlowClient, epochs: dict[str, Any], stop_after_s: float | None = None) -> list[ComputedBatch]:
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

    if stop_after_s is not None:
        tasks.loop.call_later(stop_after_s, stopping.set)
    loader = DataLoader(cast(StorageClient, client), config, files, ReaderPlace(0, 1), 1)
    await loader.play(Pace(stopping.is_set, pause, tasks.spawn))
    assert not tasks.failed.done()
    assert client.under_way == 0, "what was asked for has ended"
    return loader.computed


def waits(batches: Sequence[ComputedBatch]) -> list[float]:
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
    async def scene() -> list[ComputedBatch]:
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
    async def scene() -> list[ComputedBatch]:
        return await played(SlowClient(), {"compute": 0.010, "prefetch": 2, "count": 3, "batches": 4})

    found = run(scene())
    assert [(one.epoch, one.batch) for one in found] == [(epoch, batch) for epoch in range(3) for batch in range(4)]
    assert waits(found) == pytest.approx([READ_S, 0, 0, 0] * 3)


def test_a_batch_that_is_out_of_reach_is_computed_without_its_samples() -> None:
    async def scene() -> list[ComputedBatch]:
        return await played(SlowClient(frozenset({3})), {"compute": 0.010, "prefetch": 1})

    assert [one.size_bytes for one in run(scene())] == [8192, 8192, 0, *[8192] * (BATCHES - 3)]


def test_it_stops_between_batches_and_leaves_out_what_was_not_computed() -> None:
    async def scene() -> tuple[float, list[ComputedBatch]]:
        began = time.monotonic()
        found = await played(SlowClient(), {"compute": 0.010, "prefetch": 2, "count": None}, stop_after_s=0.031)
        return time.monotonic() - began, found

    took_s, found = run(scene())
    assert [one.batch for one in found] == [0, 1], "the third was cut off while it was computed"
    assert took_s < 0.031 + 3 * READ_S
