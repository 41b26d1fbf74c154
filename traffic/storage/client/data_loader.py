"""A reader's epochs: batches are asked for ahead of computing, and computing waits for those that are not there."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple

from traffic.storage.chains import Extent, FileLayout
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.samples import ReaderPlace, SampleShape, epoch_batches, sample_table
from traffic.storage.config import DataloaderConfig


class WantedBatch(NamedTuple):
    """A batch that computing wanted, at ``due_s``; times are ``time.monotonic()``. It began at ``started_s``, and was
    computed at ``ended_s``; NaN: the phase ended before, and its epoch was cut off there. ``size_bytes`` is 0 if it
    could not be read."""

    epoch: int
    batch: int
    size_bytes: int
    asked_s: float
    ready_s: float
    due_s: float
    started_s: float
    ended_s: float


class _Read(NamedTuple):
    size_bytes: int = 0
    asked_s: float = math.nan
    ready_s: float = math.nan


_Asked = deque[tuple[int, "asyncio.Future[_Read]"]]
"""Batches that were asked for, by their numbers."""
_EPOCHS_A_PLAY = 1_000_000
"""How many epochs further a load without an end goes on when it plays again. All readers are in the same epoch then,
wherever the end of the phase before met them."""


def sample_shape(config: DataloaderConfig) -> SampleShape:
    """Return where samples of a data set are."""
    return SampleShape(config.files, config.file_size, config.sample_min, config.sample_max)


@dataclass(frozen=True)
class Pace:
    """What stops a load, and how it waits: ``pause`` returns after so many seconds, or as soon as it is to stop;
    ``spawn`` runs work beside it, whose failure ends the program."""

    is_stopping: Callable[[], bool]
    pause: Callable[[float], Coroutine[Any, Any, None]]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class DataLoader:
    """Reads a data set, epoch after epoch, by the place of its reader."""

    def __init__(
        self,
        client: StorageClient,
        config: DataloaderConfig,
        files: Sequence[FileLayout],
        place: ReaderPlace,
        seed: int,
    ) -> None:
        assert config.epochs is not None, "who makes a loader has epochs"
        self._client, self._config, self._files = client, config, files
        self._place, self._seed = place, seed
        self._epochs = config.epochs
        self._plays = -1
        self.wanted: list[WantedBatch] = []
        """The batches of the phase."""

    async def play(self, pace: Pace) -> None:
        """Read epochs until they are over, if they are counted, or until it is told to stop."""
        self._plays += 1
        first = self._plays * (self._epochs.count or _EPOCHS_A_PLAY)
        left: Iterator[int] = count() if self._epochs.count is None else iter(range(self._epochs.count))
        for number in left:
            if pace.is_stopping():
                return
            await self._epoch(first + number, pace)

    async def _epoch(self, epoch: int, pace: Pace) -> None:
        batches = enumerate(self._batches(epoch))
        asked: _Asked = deque()
        self._ask(batches, asked, pace, self._epochs.prefetch)
        while not pace.is_stopping():
            if not asked:
                self._ask(batches, asked, pace, 1)
            if not asked:
                return
            number, coming = asked.popleft()
            due_s = time.monotonic()
            batch = await coming
            if self._epochs.prefetch:
                self._ask(batches, asked, pace, 1)
            started_s = math.nan if pace.is_stopping() else time.monotonic()
            await pace.pause(self._epochs.compute)
            ended_s = time.monotonic()
            is_whole = not pace.is_stopping() or ended_s >= started_s + self._epochs.compute
            ended_s = ended_s if is_whole else math.nan  # Cut off while it was waited for or computed.
            times = (batch.asked_s, batch.ready_s, due_s, started_s, ended_s)
            self.wanted.append(WantedBatch(epoch, number, batch.size_bytes, *times))
            if math.isnan(ended_s):
                break
        else:
            self._note_cut(epoch, [number for number, _ in asked] or [number for number, _ in islice(batches, 1)])
        if asked:
            await asyncio.wait([read for _, read in asked])

    def _note_cut(self, epoch: int, left: Sequence[int]) -> None:
        """Note that an epoch was cut off between two batches, if there is one left."""
        for number in left[:1]:
            never = (math.nan, math.nan)
            self.wanted.append(WantedBatch(epoch, number, 0, *never, time.monotonic(), *never))

    def _batches(self, epoch: int) -> Iterator[Sequence[int]]:
        table = sample_table(sample_shape(self._config), self._seed)
        found = epoch_batches(table, self._epochs.order, self._config.batch, self._place, self._seed, epoch)
        return islice(found, self._epochs.batches)

    def _ask(
        self,
        batches: Iterator[tuple[int, Sequence[int]]],
        asked: _Asked,
        pace: Pace,
        most: int,
    ) -> None:
        """Ask for the next batches."""
        for number, samples in islice(batches, most):
            read: asyncio.Future[_Read] = asyncio.get_running_loop().create_future()
            pace.spawn(self._read(samples, read))
            asked.append((number, read))

    async def _read(self, samples: Sequence[int], read: asyncio.Future[_Read]) -> None:
        asked_s = time.monotonic()
        extents = [extent for sample in samples for extent in self._located(sample)]
        try:
            await self._client.read_chunks(extents)
        except GaveUp:  # It is among the operations, as failed; training goes on without these samples.
            extents = []
        read.set_result(_Read(sum(one.length for one in extents), asked_s, time.monotonic()))

    def _located(self, sample: int) -> list[Extent]:
        file, offset, size = sample_table(sample_shape(self._config), self._seed).place(sample)
        return self._files[file].locate(offset, size)
