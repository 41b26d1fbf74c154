"""A client's restore: pieces in their order, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from fabric.config import checked
from traffic.storage.chains import Extent, Striping
from traffic.storage.client.library import GaveUp, Operation, StorageClient
from traffic.storage.client.restoring import FIRST_RESTORED_FILE, Restored, pieces, restore, restored_files
from traffic.storage.client.samples import ReaderPlace
from traffic.storage.load_config import RestoreConfig

from .true_timers import run

STRIPING = Striping(1 << 16, 4, 48, 1)


def config_of(**settings: Any) -> RestoreConfig:
    return checked(RestoreConfig, {"share": 1.0, "size": 1_000_000, "piece": 300_000, "depth": 2, **settings}, "test")


class NotingClient:
    """In place of a client: each read takes a second; the one at ``failing`` is given up."""

    def __init__(self, failing: int = -1) -> None:
        self.read: list[int] = []
        self._failing = failing

    async def read_chunks(self, extents: Sequence[Extent]) -> None:
        first = extents[0].chunk.index * (1 << 16) + extents[0].offset
        self.read.append(first)
        await asyncio.sleep(1.0)
        if first == self._failing:
            raise GaveUp("out of reach")


def restored(client: NotingClient, config: RestoreConfig, number: int = 0, most_pieces: int = 100) -> Operation:
    async def scene() -> Operation:
        place = ReaderPlace(number, 4)
        what = Restored(restored_files(config, STRIPING, 4)[0], place)
        return await restore(cast(StorageClient, client), config, what, lambda: len(client.read) >= most_pieces)

    return run(scene())


def test_each_byte_is_in_one_piece_and_clients_begin_all_over_the_file() -> None:
    at_start, spread = config_of(), config_of(begin="spread")
    assert list(pieces(at_start, ReaderPlace(3, 4))) == [
        (0, 300_000),
        (300_000, 300_000),
        (600_000, 300_000),
        (900_000, 100_000),
    ]
    begins = []
    for number in range(4):
        found = list(pieces(spread, ReaderPlace(number, 4)))
        assert sorted(found) == list(pieces(at_start, ReaderPlace(0, 4)))
        begins.append(found[0][0])
    assert begins == [0, 300_000, 600_000, 900_000]


def test_files_are_a_client_s_own_or_all_the_same() -> None:
    own, same = (restored_files(config_of(of=of), STRIPING, 3) for of in ("own", "same"))
    assert [one.file for one in own] == [FIRST_RESTORED_FILE + number for number in range(3)]
    assert same == own[:1]
    assert restored_files(config_of(of="same"), STRIPING, 0) == ()


@pytest.mark.parametrize(("depth", "seconds"), [(1, 4), (2, 2), (9, 1)])
def test_so_many_pieces_are_asked_for_at_once(depth: int, seconds: int) -> None:
    client = NotingClient()
    one = restored(client, config_of(depth=depth))
    assert (one.kind, one.size_bytes) == ("restore", 1_000_000)
    assert one.ended_s - one.started_s == pytest.approx(seconds)
    assert client.read == [0, 300_000, 600_000, 900_000]


def test_what_is_not_whole_says_so() -> None:
    failed = restored(NotingClient(failing=300_000), config_of())
    assert (failed.kind, failed.size_bytes) == ("restore_failed", 700_000)
    stopped = restored(NotingClient(), config_of(), most_pieces=2)
    assert (stopped.kind, stopped.size_bytes) == ("restore_abandoned", 600_000)
