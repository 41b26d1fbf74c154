"""A reader's epochs: batches are asked for ahead of computing, and computing waits for those that are not there."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple

from traffic.storage.chains import Extent, FileLayout
from traffic.storage.client import GaveUp, StorageClient
from traffic.storage.config import DataloaderConfig
from traffic.storage.samples import ReaderPlace, SampleShape, epoch_batches, sample_table


class ComputedBatch(NamedTuple):
    """A batch that was computed; times are ``time.monotonic()``. ``due_s``: when computing wanted it; it began at
    ``started_s``. ``size_bytes`` is 0 if it could not be read."""

    epoch: int
    batch: int
    size_bytes: int
    asked_s: float
    ready_s: float
    due_s: float
    started_s: float
    ended_s: float


class _ReadBatch(NamedTuple):
    number: int
    size_bytes: int
    asked_s: float
    ready_s: float


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
        self._next_epoch = count()
        self.computed: list[ComputedBatch] = []
        """The batches of the phase."""

    async def play(self, pace: Pace) -> None:
        """Read epochs until they are over, if they are counted, or until it is told to stop."""
        left: Iterator[int] = count() if self._epochs.count is None else iter(range(self._epochs.count))
        for _ in left:
            if pace.is_stopping():
                return
            await self._epoch(next(self._next_epoch), pace)

    async def _epoch(self, epoch: int, pace: Pace) -> None:
        batches = enumerate(self._batches(epoch))
        asked: deque[asyncio.Future[_ReadBatch]] = deque()
        self._ask(batches, asked, pace, self._epochs.prefetch)
        while not pace.is_stopping():
            due_s = time.monotonic()
            if not asked:
                self._ask(batches, asked, pace, 1)
            if not asked:
                return
            batch = await asked.popleft()
            if self._epochs.prefetch:
                self._ask(batches, asked, pace, 1)
            started_s = time.monotonic()
            await pace.pause(self._epochs.compute)
            if pace.is_stopping() and time.monotonic() < started_s + self._epochs.compute:
                break  # Cut off while it computed: it is no batch that was computed.
            times = (batch.asked_s, batch.ready_s, due_s, started_s, time.monotonic())
            self.computed.append(ComputedBatch(epoch, batch.number, batch.size_bytes, *times))
        if asked:
            await asyncio.wait(asked)

    def _batches(self, epoch: int) -> Iterator[Sequence[int]]:
        table = sample_table(sample_shape(self._config), self._seed)
        found = epoch_batches(table, self._epochs.order, self._config.batch, self._place, self._seed, epoch)
        return islice(found, self._epochs.batches)

    def _ask(
        self,
        batches: Iterator[tuple[int, Sequence[int]]],
        asked: deque[asyncio.Future[_ReadBatch]],
        pace: Pace,
        most: int,
    ) -> None:
        """Ask for the next batches."""
        for number, samples in islice(batches, most):
            read: asyncio.Future[_ReadBatch] = asyncio.get_running_loop().create_future()
            pace.spawn(self._read(number, samples, read))
            asked.append(read)

    async def _read(self, number: int, samples: Sequence[int], read: asyncio.Future[_ReadBatch]) -> None:
        asked_s = time.monotonic()
        extents = [extent for sample in samples for extent in self._located(sample)]
        try:
            await self._client.read_chunks(extents)
        except GaveUp:  # It is among the operations, as failed; training goes on without these samples.
            extents = []
        read.set_result(_ReadBatch(number, sum(one.length for one in extents), asked_s, time.monotonic()))

    def _located(self, sample: int) -> list[Extent]:
        file, offset, size = sample_table(sample_shape(self._config), self._seed).place(sample)
        return self._files[file].locate(offset, size)
