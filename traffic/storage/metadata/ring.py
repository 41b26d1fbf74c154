"""A ring of IOs, as USRBIO has it: prepared, submitted, carried out in batches, waited for. In an event loop;
:mod:`.usrbio` is for programs without one.

``io_depth`` says when what is submitted is carried out (3FS: ``src/lib/api/UsrbIo.md``): 0: at once; n: in batches of
exactly n; -n: in batches of up to n, the last one after ``timeout_s``. A batch of reads is one request to each server.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, NamedTuple

from fabric.errors import TrafficError, UsageError
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.files import Files, OpenFile, ReadAt

MOST_ENTRIES = 65_536


class Flags(IntFlag):
    """Of rings. Reads of what is not committed yet are not there: a read waits."""

    ALLOW_READ_UNCOMMITTED = 1
    FORBID_READ_HOLES = 2


class RingIo(NamedTuple):
    """One IO: where in a file, and where in memory."""

    file: OpenFile
    offset: int
    memory: memoryview
    userdata: object = None


@dataclass(frozen=True)
class Cqe:
    """What came of an IO: its index in the ring, how many bytes, or an error number below 0, and its userdata."""

    index: int
    result: int
    userdata: object


def batch_size(queued: int, io_depth: int, waited_s: float, timeout_s: float) -> int:
    """Return how many of the IOs that are submitted are to be carried out now; 0: they wait."""
    if not queued or io_depth == 0:
        return queued
    if queued >= abs(io_depth):
        return abs(io_depth)
    return queued if io_depth < 0 and waited_s >= timeout_s else 0


class Ring:
    """A ring of ``entries`` IOs that all read, or all write. Raises UsageError for one that cannot be."""

    def __init__(
        self, files: Files, entries: int, for_read: bool, io_depth: int = 0, timeout_s: float = 0.0, flags: int = 0
    ) -> None:
        if not 1 <= entries <= MOST_ENTRIES:
            raise UsageError(f"a ring of {entries} entries; give it 1 to {MOST_ENTRIES}")
        if abs(io_depth) > entries:
            raise UsageError(f"io_depth {io_depth}: a ring of {entries} entries never has so many; lower it")
        if flags & Flags.ALLOW_READ_UNCOMMITTED:
            raise UsageError("ALLOW_READ_UNCOMMITTED: files are read as committed here; leave the flag out")
        self.for_read = for_read
        self._files = files
        self._free = deque(range(entries))
        self._depth = (io_depth, timeout_s)
        self._flags = Flags(flags)
        self._prepared: list[tuple[int, RingIo]] = []
        self._queued: deque[tuple[int, RingIo, float]] = deque()
        self._done: deque[Cqe] = deque()
        self._changed = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def prep(self, io: RingIo) -> int:
        """Take an IO; return its index in the ring. Raises FileError (EBUSY) if the ring is full."""
        if not self._free:
            raise FileError("EBUSY", "the ring is full; wait for some of its IOs")
        index = self._free.popleft()
        self._prepared.append((index, io))
        return index

    def submit(self) -> None:
        """Let all that is prepared be carried out, as ``io_depth`` has it."""
        now = time.monotonic()
        self._queued.extend((index, io, now) for index, io in self._prepared)
        self._prepared.clear()
        self._carry_out()

    def _carry_out(self) -> None:
        io_depth, timeout_s = self._depth
        while self._queued:
            waited_s = time.monotonic() - self._queued[0][2]
            if not (count := batch_size(len(self._queued), io_depth, waited_s, timeout_s)):
                if io_depth < 0:
                    self._spawn(self._look_after(max(0.0, timeout_s - waited_s)))
                return
            batch = [self._queued.popleft()[:2] for _ in range(count)]
            self._spawn(self._read(batch) if self.for_read else self._write(batch))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Keep what no IO can say, for who waits: a bug, or data that is wrong."""
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._changed.set()

    async def _look_after(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._carry_out()

    async def _read(self, batch: list[tuple[int, RingIo]]) -> None:
        forbids = bool(self._flags & Flags.FORBID_READ_HOLES)
        wanted = [ReadAt(io.file, io.offset, len(io.memory), forbids) for _, io in batch]
        try:
            found = await self._files.read_all(wanted)
        except TrafficError as error:
            self._fail(batch, error)
            return
        for (index, io), one in zip(batch, found, strict=True):
            if isinstance(one, FileError):
                self._end(index, -one.number, io)
            else:
                io.memory[: len(one)] = one
                self._end(index, len(one), io)

    async def _write(self, batch: list[tuple[int, RingIo]]) -> None:
        async def one(index: int, io: RingIo) -> None:
            try:
                self._end(index, await self._files.write(io.file, io.offset, io.memory), io)
            except TrafficError as error:
                self._fail([(index, io)], error)

        await asyncio.gather(*(one(index, io) for index, io in batch))

    def _fail(self, batch: list[tuple[int, RingIo]], error: TrafficError) -> None:
        number = error.number if isinstance(error, FileError) else errno.EIO
        for index, io in batch:
            self._end(index, -number, io)

    def _end(self, index: int, result: int, io: RingIo) -> None:
        self._done.append(Cqe(index, result, io.userdata))
        self._changed.set()

    async def wait(self, most: int, least: int, until_s: float | None = None) -> list[Cqe]:
        """Return what is done, ``most`` at most, once ``least`` are or it is ``until_s`` (``time.monotonic()``)."""
        while len(self._done) < min(least, most):
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except asyncio.TimeoutError:
                break
        found = [self._done.popleft() for _ in range(min(most, len(self._done)))]
        self._free.extend(one.index for one in found)
        return found

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        while self._running:
            await asyncio.wait(set(self._running))
