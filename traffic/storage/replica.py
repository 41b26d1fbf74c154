"""The chunks that one service holds, and its part in CRAQ (chain replication with apportioned queries). No sockets.

A chunk has a committed version ``v`` and at most one pending version ``v + 1``. A write goes down the chain: each
replica takes the data in as pending, passes it on, and commits once its successor has committed; the tail commits at
once. So whatever a replica has committed, every replica after it has committed too, and what the head acknowledges is
on all of them. Any replica serves reads, except of a chunk with a pending version: the reader tries again (3FS does not
ask the tail).

When a node dies, the next table lacks it and keeps the order of the others:

- the head died: its successor is head now. A client that was never answered tries again under the same request
  number; a replica that has committed or still holds that request does not apply it twice.
- the tail died: its predecessor, now the tail, commits what it holds as pending.
- one in the middle died: its predecessor passes the pending version on to the next, who may know it already.

A pending version is never dropped, since a later replica may have committed it: a write that finds one of another
request completes that one first. Completing a write that was never acknowledged is allowed; losing an acknowledged one
is not.

A chunk remembers its last write only. If clients shared a chunk, one that tries again after another's write would apply
its own twice; 3FS remembers the last request of each client instead. Clients here write files of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from fabric.errors import TrafficError
from fabric.identity import NodeId
from traffic.storage.chains import Chain, ChainTable, ChunkId, Extent
from traffic.storage.messages import Io, Status
from traffic.storage.payload import Content, Recipe, checksum_of

PRELOADED_VERSION = 1
PRELOADED_REQUEST = 0


class Refused(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """A call that a replica does not carry out."""

    def __init__(self, status: Status, text: str) -> None:
        self.status = status
        super().__init__(f"{status.name}: {text}")


@dataclass(frozen=True)
class Stored:
    """One version of a chunk. ``zone`` is where its write came from: copies of it use that zone's NICs."""

    version: int
    request: int
    checksum: int
    content: Content
    zone: int


@dataclass
class Chunk:
    """What a replica holds of a chunk."""

    chain: int
    committed: Stored | None = None
    pending: Stored | None = None

    @property
    def version(self) -> int:
        """The committed version; 0 if there is none yet."""
        return self.committed.version if self.committed else 0


Pull = Callable[[], Awaitable[Content]]
"""Brings a write's data, checked against its checksum."""
Forward = Callable[[NodeId, int, Io, Stored], Awaitable[Status]]
"""Sends a version to a successor under a table version; returns its answer, a passing one if it is out of reach."""


@dataclass(frozen=True)
class Patience:
    """How often a replica tries to reach its successor, and when it leaves that to the next table."""

    retry_s: float = 0.02
    give_up_s: float = 30.0


class Replica:
    """The chunks of one node, under one chain table at a time."""

    def __init__(self, node: NodeId, table: ChainTable, forward: Forward, patience: Patience = Patience()) -> None:  # noqa: B008
        self.node = node
        self.table = table
        self._forward = forward
        self._patience = patience
        self._chunks: dict[ChunkId, Chunk] = {}
        self._locks: dict[ChunkId, asyncio.Lock] = {}
        self._table_changed = asyncio.Event()

    def preload(self, extents: Iterable[Extent]) -> None:
        """Hold chunks as if they had been written before the run; their bytes are made when they are read."""
        for extent in extents:
            content = Recipe(extent.chunk, PRELOADED_REQUEST, extent.length)
            stored = Stored(
                PRELOADED_VERSION, PRELOADED_REQUEST, checksum_of(content.pieces(0, extent.length)), content, 0
            )
            self._chunks[extent.chunk] = Chunk(extent.chain, stored)

    def adopt(self, table: ChainTable) -> list[ChunkId]:
        """Go by a newer table; return the chunks that have a pending version, for :meth:`settle`."""
        if table.version <= self.table.version:
            return []
        self.table = table
        self._table_changed.set()
        self._table_changed = asyncio.Event()
        return [chunk for chunk, held in self._chunks.items() if held.pending]

    def held(self, chunk: ChunkId) -> Chunk | None:
        """Return what is held of a chunk."""
        return self._chunks.get(chunk)

    def read(self, chunk: ChunkId) -> Stored:
        """Return the committed version. Raises Refused while a version is pending, or if there is none."""
        held = self._chunks.get(chunk)
        if held is not None and held.pending is not None:
            raise Refused(Status.PENDING, f"{chunk} has version {held.pending.version} pending on {self.node}")
        if held is None or held.committed is None:
            raise Refused(Status.NOT_FOUND, f"{chunk} is not on {self.node}")
        return held.committed

    def check_table(self, version: int) -> None:
        """Raise Refused unless a caller goes by the same table."""
        if version != self.table.version:
            status = Status.STALE_TABLE if version < self.table.version else Status.UNKNOWN_TABLE
            raise Refused(status, f"{self.node} has chain table {self.table.version}, the caller {version}")

    def _chain(self, number: int) -> Chain:
        if not 0 <= number < len(self.table.chains) or self.node not in self.table.chains[number].nodes:
            raise Refused(Status.WRONG_REQUEST, f"{self.node} is not in chain {number} of table {self.table.version}")
        return self.table.chains[number]

    async def write(self, io: Io, table_version: int, pull: Pull, zone: int) -> Stored:
        """Carry out a client's write as head; return what was committed on the whole chain. Raises Refused."""
        self.check_table(table_version)
        chain = self._chain(io.chain)
        if chain.head.node != self.node:
            raise Refused(Status.NOT_HEAD, f"{self.node} is not the head of {chain}")
        async with self._lock(io.chunk):
            held = self._chunks.setdefault(io.chunk, Chunk(io.chain))
            if held.pending is not None and held.pending.request != io.request:
                await self._complete(io.chunk, held)
            if held.committed is not None and held.committed.request == io.request:
                return held.committed
            if held.pending is None:
                await self._take_in(held, replace(io, version=held.version + 1), pull, zone)
            return await self._complete(io.chunk, held)

    async def update(self, io: Io, table_version: int, pull: Pull, zone: int) -> Stored:
        """Carry out a predecessor's update; return what was committed from here to the tail. Raises Refused, and
        TrafficError if the chain has forked, which it must not."""
        self.check_table(table_version)
        self._chain(io.chain)
        async with self._lock(io.chunk):
            held = self._chunks.setdefault(io.chunk, Chunk(io.chain))
            if held.committed is not None and io.version <= held.version:
                self._must_be_same(io, held.committed)
                return held.committed
            if held.pending is None:
                if io.version != held.version + 1:
                    raise TrafficError(
                        f"{self.node}: {io.chunk}: update to {io.version} after {held.version}; one is missing"
                    )
                await self._take_in(held, io, pull, zone)
            else:
                self._must_be_same(io, held.pending)
            return await self._complete(io.chunk, held)

    def _must_be_same(self, io: Io, stored: Stored) -> None:
        if io.version == stored.version and io.request != stored.request:
            raise TrafficError(
                f"{self.node}: {io.chunk}: version {io.version} is write {stored.request:#x}, upstream {io.request:#x}"
            )

    async def _take_in(self, held: Chunk, io: Io, pull: Pull, zone: int) -> None:
        content = await pull()
        held.pending = Stored(io.version, io.request, io.checksum, content, zone)

    async def settle(self, chunk: ChunkId) -> None:
        """Complete a chunk's pending version, if it still has one. Raises Refused if the successor stays away."""
        async with self._lock(chunk):
            held = self._chunks[chunk]
            if held.pending is not None:
                await self._complete(chunk, held)

    async def _complete(self, chunk: ChunkId, held: Chunk) -> Stored:
        """Pass the pending version on until the rest of the chain has it, then commit it."""
        stored = held.pending
        assert stored is not None, "callers hold the lock and have seen it"
        io = Io(held.chain, chunk, 0, stored.content.size_bytes, stored.checksum, stored.request, stored.version)
        give_up_at = time.monotonic() + self._patience.give_up_s
        while (successor := self.table.chains[held.chain].successor_of(self.node)) is not None:
            changed = self._table_changed
            status = await self._forward(successor, self.table.version, io, stored)
            if status is Status.OK:
                break
            if not status.may_pass:
                raise TrafficError(f"{self.node}: {successor} refused version {io.version} of {chunk}: {status.name}")
            if time.monotonic() > give_up_at:
                raise Refused(Status.BUSY, f"{successor} did not take {chunk} for {self._patience.give_up_s:g} s")
            await _either(changed, self._patience.retry_s)
        held.committed, held.pending = stored, None
        return stored

    def _lock(self, chunk: ChunkId) -> asyncio.Lock:
        return self._locks.setdefault(chunk, asyncio.Lock())


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except asyncio.TimeoutError:
        return
