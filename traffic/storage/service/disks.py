"""The disks of a storage service: what reads and writes take, and what is kept of chunks beyond the program's end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from fabric.failures.kinds.disk import DiskState
from traffic.storage.chains import ChunkId
from traffic.storage.config import ServiceConfig
from traffic.storage.service.chunk_files import ChunkFiles
from traffic.storage.service.replica import Chunk
from traffic.storage.updates import Cost


@dataclass
class DiskWork:
    """What a disk has done; ``busy_s``: for how long, by its rates."""

    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_bytes: int = 0
    copies_on_write: int = 0
    busy_s: float = 0.0


class Disk:
    """A disk that reads and writes at a rate each, after a latency each. What is asked of it queues for its rate, reads
    and writes in one queue; latencies pass side by side. ``state``: what failures have made of it; a slow one has lower
    rates and longer latencies. ``work``: since it was set last."""

    def __init__(self, config: ServiceConfig) -> None:
        self.state = DiskState()
        self.work = DiskWork()
        self._config = config
        self._free_at = 0.0

    async def read(self, size_bytes: int) -> None:
        """Take as long as a read of ``size_bytes`` takes."""
        self.note_read(size_bytes)
        await self._take(size_bytes, self._config.ssd_read_rate, self._config.ssd_latency)

    def note_read(self, size_bytes: int) -> None:
        """Count a read that takes no time."""
        self.work.reads += 1
        self.work.read_bytes += size_bytes

    async def write(self, size_bytes: int) -> None:
        """Take as long as a write of ``size_bytes`` takes; none where writes are no limit, even of a slow disk."""
        self.work.writes += 1
        self.work.written_bytes += size_bytes
        if self._config.has_slow_writes:
            await self._take(size_bytes, self._config.ssd_write_rate, self._config.ssd_write_latency)

    async def _take(self, size_bytes: int, rate_bps: int | None, latency_s: float) -> None:
        now, state = time.monotonic(), self.state
        if rate_bps is not None:
            took_s = state.factor * size_bytes * 8 / rate_bps
            self.work.busy_s += took_s
            self._free_at = max(now, self._free_at) + took_s
        wait_s = max(now, self._free_at) + state.factor * latency_s + state.added_s - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)


@dataclass(frozen=True)
class Disks:
    """The disks of a service, a :class:`traffic.storage.service.replica.Medium`, and its files of chunks, if
    there are any.

    ``disk_of``: on which disk a chain's chunks are. ``counts``: ``disk_read_bytes`` and ``disk_written_bytes`` of
    updates, ``copies_on_write``, ``writes_in_place``. Only disks that are no limit take no time.
    """

    all: Sequence[Disk]
    disk_of: Callable[[int], int]
    counts: Counter[str]
    files: ChunkFiles | None = None

    async def take_in(self, chunk: ChunkId, held: Chunk, cost: Cost) -> None:
        """Write a pending version: what it copies is read first."""
        self._count(cost)
        if self.files is not None:
            self.files.take_in(chunk, held, is_copy=cost.is_copy)
        disk = self.all[self.disk_of(held.chain)]
        disk.work.copies_on_write += cost.is_copy
        if cost.read_bytes:
            await disk.read(cost.read_bytes)
        if cost.written_bytes:
            await disk.write(cost.written_bytes)

    async def replace(self, chunk: ChunkId, held: Chunk) -> None:
        """Write a whole chunk that a predecessor sent."""
        stored = held.committed
        assert stored is not None, "what is replaced is committed"
        size = stored.content.size_bytes
        self._count(Cost(0, size))
        if self.files is not None:
            self.files.replace(chunk, held)
        if size:
            await self.all[self.disk_of(held.chain)].write(size)

    async def read(self, held: Chunk) -> None:
        """Read a whole chunk, which is to be sent to a target that syncs."""
        stored = held.pending or held.committed
        assert stored is not None, "what is read is there"
        await self.all[self.disk_of(held.chain)].read(stored.content.size_bytes)

    def _count(self, cost: Cost) -> None:
        counts = self.counts
        counts["disk_read_bytes"] += cost.read_bytes
        counts["disk_written_bytes"] += cost.written_bytes
        if cost.written_bytes:
            counts["copies_on_write" if cost.is_copy else "writes_in_place"] += 1

    def commit(self, chunk: ChunkId, held: Chunk) -> None:
        """Keep that what was pending is committed."""
        if self.files is not None:
            self.files.commit(chunk, held)

    def forget(self, chunk: ChunkId) -> None:
        """Keep nothing of a chunk."""
        if self.files is not None:
            self.files.forget(chunk)


def disk_rows(disks: Sequence[Disk], phase: str, host: str) -> Iterator[dict[str, object]]:
    """Yield a row of the table ``disks`` for each disk of a host."""
    for number, disk in enumerate(disks):
        yield {"phase": phase, "host": host, "disk": number, **asdict(disk.work)}
