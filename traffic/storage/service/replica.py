"""The chunks that one service holds, and its part in CRAQ (chain replication with apportioned queries). No sockets.

A chunk has a committed version ``v`` and at most one pending version ``v + 1``. A write goes down the chain: each
replica brings the data in, locks the chunk, takes the data as pending, passes it on, and commits once its successor has
committed; the tail commits at once. So whatever a replica has committed, every replica after it has committed too, and
what the head acknowledges is on all of them. Any replica serves reads, except of a chunk with a pending version: the
reader tries again (3FS does not ask the tail).

The data comes before the lock (3FS design notes, steps 2 and 3): a writer that falls silent holds nobody else off.

When a node dies, the next version of its chains lacks it and keeps the order of the others:

- the head died: its successor is head now. A client that was never answered tries again under the same request
  number; a replica that has committed or still holds that request does not apply it twice.
- the tail died: its predecessor, now the tail, commits what it holds as pending.
- one in the middle died: its predecessor passes the pending version on to the next, who may know it already.

A pending version is never dropped, since a later replica may have committed it: a write that finds one of another
request completes that one first. Completing a write that was never acknowledged is allowed; losing an acknowledged one
is not.

A target that comes back has what it had, or nothing. It stands last in its chain, *syncing*: it serves no reads, and
writes pass it, each of a whole chunk, so that whatever it had of that is replaced. What it lacks besides, its
predecessor finds by comparing both (:mod:`traffic.storage.service.resync`) and sends chunk by chunk, under the chunk's
lock.

A chunk remembers the version of the chain under which it was committed: that of the successor, as 3FS has it, since a
predecessor may commit later, under a newer one, and would be thought newer when it comes back.

A chunk remembers each client's last write, as 3FS does, so that a write is applied once, whoever wrote in between. A
client writes a chunk once at a time.

A write may be of a part of a chunk, and an update may truncate, extend or remove it (:mod:`traffic.storage.updates`).
Each replica makes the same of what it has, and a predecessor compares the checksums of the whole chunk. A target that
syncs is sent the whole chunk instead. A removed chunk leaves its version, so that versions grow, and a late copy of an
older update brings nothing back; 3FS forgets it.

By a version that comes from upstream, an update is (in 3FS's words):

- *committed*, if it is not newer than what is committed here: success;
- *stale*, if it is what is pending here: success, and it goes on to the successor;
- *missing*, if it is newer by more than one: an error, which must not be;
- *advance*, if the head has a version pending: 3FS refuses it; here the head completes that first.

Nobody works longer for a caller than the caller waits: what is left pending then is for :meth:`Replica.settle`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.chains import Chain, ChainTable, ChunkId, Extent, TableChange
from traffic.storage.payload import ChunkContent, Raw, Recipe, Removed, checksum_of
from traffic.storage.service.resync import ChunkState
from traffic.storage.updates import Action, Change, Cost, after, block_for
from traffic.storage.wire.messages import Io, ReplyStatus, client_of
from traffic.storage.wire.permits import Permits

PRELOADED_VERSION = 1
PRELOADED_REQUEST = 0
RETRY_S = 0.02
"""How often a replica tries to reach its successor."""


class Refused(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """A call that a replica does not carry out; ``version`` and ``request``: those of the removal, if the chunk is not
    found that it asks for."""

    def __init__(self, status: ReplyStatus, text: str, version: int = 0, request: int = 0) -> None:
        self.status = status
        self.version = version
        self.request = request
        super().__init__(f"{status.name}: {text}")


class NotThere(Refused):
    """A chunk that is not there, or was removed."""

    def __init__(self, text: str, version: int = 0, request: int = 0) -> None:
        super().__init__(ReplyStatus.NOT_FOUND, text, version, request)


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of a chunk. ``zone`` is where its write came from: copies of it use that zone's NICs;
    ``chain_version``: under which version of its chain it was written, or committed; ``change``: what made it of the
    version before, while it is pending, None if that was a write of all of it; ``is_made``: it is all that its write
    makes."""

    version: int
    request: int
    checksum: int
    content: ChunkContent
    zone: int
    chain_version: int = 1
    change: Change | None = None
    block_bytes: int = 0
    is_made: bool = True

    @property
    def is_removed(self) -> bool:
        """Whether it is that the chunk was removed."""
        return isinstance(self.content, Removed)

    def is_widened(self, io: Io) -> bool:
        """Return whether ``io``, by which this version is passed on, has the whole chunk in place of a part."""
        change = self.change
        if change is None or not io.has_payload:
            return False
        return change.action is not Action.WRITE or (change.offset, change.length) != (io.offset, io.length)

    def offered(self, io: Io) -> ChunkContent:
        """Return the data that goes with ``io``, by which this version is passed on."""
        is_whole = self.change is None or (io.offset == 0 and io.length == self.content.size_bytes)
        return self.content if self.change is None or is_whole else self.change.payload


@dataclass(frozen=True, slots=True)
class Applied:
    """A write that is committed from here to the tail; ``chain_version``: under which version of the chain, 0 if it is
    not the latest; the checksum and the size of the whole chunk after it, if they are known."""

    version: int
    request: int
    chain_version: int = 0
    checksum: int = 0
    chunk_bytes: int = 0


@dataclass(slots=True)
class Chunk:
    """What a replica holds of a chunk, and keeps of one that was removed: 700 bytes each.

    ``last``: each client's last write of it that is committed here; ``replaced_in``: the version of the chain in which
    it was last written whole while this target was syncing.
    """

    chain: int
    committed: Stored | None = None
    pending: Stored | None = None
    last: dict[int, Applied] = field(default_factory=dict)
    replaced_in: int = 0

    @property
    def version(self) -> int:
        """The committed version; 0 if there is none yet."""
        return self.committed.version if self.committed else 0

    @property
    def is_there(self) -> bool:
        """Whether there is a committed version that is not a removal."""
        return self.committed is not None and not self.committed.is_removed

    @property
    def has_any(self) -> bool:
        """Whether there is any version of it."""
        return self.committed is not None or self.pending is not None

    @property
    def state(self) -> ChunkState:
        """It as a resync compares it. Of a chunk with no version at all, the pending one is the first."""
        latest = self.pending or self.committed
        assert latest is not None, "a chunk is made when it is written"
        size = latest.content.size_bytes
        return ChunkState(latest.version, self.version, latest.chain_version, latest.checksum, size)


Pull = Callable[[], Awaitable[ChunkContent]]
"""Brings a write's data, checked against its checksum."""


class Answer(NamedTuple):
    """A successor's: how it went, the version of the chain under which it has committed, and the checksum of its whole
    chunk, None if it does not say."""

    status: ReplyStatus
    chain_version: int = 0
    checksum: int | None = None


class Medium(Protocol):
    """What a replica's chunks are written to."""

    async def take_in(self, chunk: ChunkId, held: Chunk, cost: Cost) -> None:
        """Write a pending version, which takes its time."""

    async def replace(self, chunk: ChunkId, held: Chunk) -> None:
        """Write a whole chunk as it is committed elsewhere, or that it was removed."""

    async def read(self, held: Chunk) -> None:
        """Read a whole chunk, as it is to be sent to a target that syncs."""

    def commit(self, chunk: ChunkId, held: Chunk) -> None:
        """Keep that what was pending is committed."""

    def forget(self, chunk: ChunkId) -> None:
        """Keep nothing of a chunk."""


class Memory:
    """A :class:`Medium` that takes no time and keeps nothing: chunks are in the program's memory alone."""

    async def take_in(self, chunk: ChunkId, held: Chunk, cost: Cost) -> None:
        """Do nothing."""

    async def replace(self, chunk: ChunkId, held: Chunk) -> None:
        """Do nothing."""

    async def read(self, held: Chunk) -> None:
        """Do nothing."""

    def commit(self, chunk: ChunkId, held: Chunk) -> None:
        """Do nothing."""

    def forget(self, chunk: ChunkId) -> None:
        """Do nothing."""


Forward = Callable[[NodeId, Io, Stored, float], Awaitable[Answer]]
"""Sends a version to a successor and waits for its answer until a time (monotonic); returns the answer, a passing one
if the successor is out of reach."""


def applied_of(stored: Stored) -> Applied:
    """Return that a version is committed."""
    return Applied(stored.version, stored.request, stored.chain_version, stored.checksum, stored.content.size_bytes)


def nothing_of(io: Io) -> ChunkContent:
    """Return the data of an update that brings none."""
    return Removed() if io.action == Action.REMOVE else Raw(b"")


def _is_made(io: Io, content: ChunkContent) -> bool:
    is_recipe = isinstance(content, Recipe)
    return is_recipe and content == Recipe(io.chunk, io.request, content.size_bytes)


class _Chunks(dict[ChunkId, Chunk]):
    """Chunks by name. By file, too, from when somebody asks for those of one: a data set of a million is not asked
    for."""

    def __init__(self) -> None:
        super().__init__()
        self._by_file: dict[int, set[ChunkId]] | None = None

    def of_file(self, file: int) -> Collection[ChunkId]:
        """Return the chunks of a file."""
        if self._by_file is None:
            self._by_file = {}
            for chunk in self:
                self._by_file.setdefault(chunk.file, set()).add(chunk)
        return self._by_file.get(file, ())

    def begin(self, chunk: ChunkId, chain: int) -> Chunk:
        """Return what is held of a chunk, at first nothing."""
        if chunk not in self:
            self[chunk] = Chunk(chain)
        return self[chunk]

    def clear(self) -> None:
        """Have none."""
        super().clear()
        self._by_file = None

    def __setitem__(self, chunk: ChunkId, held: Chunk) -> None:
        super().__setitem__(chunk, held)
        if self._by_file is not None:
            self._by_file.setdefault(chunk.file, set()).add(chunk)

    def __delitem__(self, chunk: ChunkId) -> None:
        super().__delitem__(chunk)
        if self._by_file is not None:
            self._by_file[chunk.file].discard(chunk)


class Replica:
    """The chunks of one node, under one chain table at a time. Times are ``time.monotonic()``."""

    def __init__(
        self,
        node: NodeId,
        table: ChainTable,
        forward: Forward,
        retry_s: float = RETRY_S,
        medium: Medium = Memory(),  # noqa: B008 - it has no state
    ) -> None:
        self.node = node
        self.table = table
        self._forward = forward
        self._retry_s = retry_s
        self._medium = medium
        self._chunks = _Chunks()
        self._locks: dict[ChunkId, Permits] = {}
        self._changed: dict[int, asyncio.Future[None]] = {}

    def preload(self, extents: Iterable[Extent]) -> None:
        """Hold chunks as if they had been written before the run; their bytes are made when they are read."""
        for extent in extents:
            content = Recipe(extent.chunk, PRELOADED_REQUEST, extent.length)
            checksum = checksum_of(content.pieces(0, extent.length))
            block = block_for(extent.length)
            stored = Stored(PRELOADED_VERSION, PRELOADED_REQUEST, checksum, content, 0, block_bytes=block)
            self._chunks[extent.chunk] = Chunk(extent.chain, stored)

    def load(self, chunks: Mapping[ChunkId, Chunk]) -> None:
        """Hold chunks that were found on disks."""
        for chunk, held in chunks.items():
            self._chunks[chunk] = held

    def adopt(self, change: TableChange) -> list[ChunkId]:
        """Go by newer chains; return the chunks on them that have a pending version, for :meth:`settle`."""
        numbers = {chain.number for chain in self.table.news_in(change)}
        self.table = self.table.changed_by(change)
        for number in numbers:
            if (changed := self._changed.pop(number, None)) is not None:
                changed.set_result(None)
        return [chunk for chunk, held in self._chunks.items() if held.chain in numbers and self.must_settle(chunk)]

    def held(self, chunk: ChunkId) -> Chunk | None:
        """Return what is held of a chunk."""
        return self._chunks.get(chunk)

    def recipes(self) -> Iterator[tuple[ChunkId, int]]:
        """Yield the chunks whose committed data is known by its recipe, so is what was written, in order, and the disk
        of each."""
        for chunk, held in sorted(self._chunks.items()):
            target = self.table.chains[held.chain].target_on(self.node)
            if target is not None and held.committed is not None and isinstance(held.committed.content, Recipe):
                yield chunk, target.disk

    def must_settle(self, chunk: ChunkId) -> bool:
        """Return whether a chunk has a pending version that this node is to complete."""
        held = self._chunks.get(chunk)
        return held is not None and held.pending is not None and self._must_complete(held)

    def _must_complete(self, held: Chunk) -> bool:
        """Return whether what is pending counts: of a target that syncs, only what came since it does."""
        chain = self.table.chains[held.chain]
        return self.node in chain.nodes or (self._is_syncing(chain) and held.replaced_in == chain.version)

    def _is_syncing(self, chain: Chain) -> bool:
        return chain.syncing is not None and chain.syncing.node == self.node

    def states(self, number: int) -> dict[ChunkId, ChunkState]:
        """Return what is held of a chain, for a resync."""
        return {chunk: held.state for chunk, held in self._chunks.items() if held.chain == number and held.has_any}

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the versions of chunks, as far as one replica can tell: a successor may go by a
        newer version of the chain already, and a chunk has that."""
        for chunk, held in self._chunks.items():
            if held.pending is not None and held.pending.version != held.version + 1 and not held.replaced_in:
                pending = f"version {held.pending.version} is pending, {held.version} committed"
                yield f"{chunk} on {self.node}: {pending}"

    def find(self, number: int, file: int, begin: int, end: int) -> Iterator[tuple[int, Stored]]:
        """Yield what is committed of a file on a chain, by its place in the file, from ``begin`` to before ``end``, the
        last first. Raises Refused where a version is pending."""
        chunks = self._chunks
        places = [one.index for one in chunks.of_file(file) if begin <= one.index < end and chunks[one].chain == number]
        for place in sorted(places, reverse=True):
            with suppress(NotThere):
                yield place, self.read(ChunkId(file, place))

    def read(self, chunk: ChunkId, is_relaxed: bool = False) -> Stored:
        """Return the committed version, or the pending one, if there is one, where that will do (``is_relaxed``).
        Raises Refused while a version is pending, if there is none, and while this target is brought up to date."""
        held = self._chunks.get(chunk)
        if held is not None and self._is_syncing(self.table.chains[held.chain]):
            raise Refused(ReplyStatus.NOT_SERVING, f"{chunk} is brought up to date on {self.node}")
        if held is not None and held.pending is not None and not is_relaxed:
            raise Refused(ReplyStatus.PENDING, f"{chunk} has version {held.pending.version} pending on {self.node}")
        stored = None if held is None else held.pending or held.committed
        if stored is None:
            raise NotThere(f"{chunk} is not on {self.node}")
        if stored.is_removed:
            raise NotThere(f"{chunk} was removed from {self.node}", stored.version, stored.request)
        return stored

    def chain_of(self, io: Io) -> Chain:
        """Return the chain that a call names. Raises Refused unless its caller goes by the same version of it and this
        node is in it."""
        if not 0 <= io.chain < len(self.table.chains):
            raise Refused(ReplyStatus.WRONG_REQUEST, f"{self.node}: unknown chain {io.chain}")
        chain = self.table.chains[io.chain]
        if io.chain_version != chain.version:
            status = ReplyStatus.STALE_CHAIN if io.chain_version < chain.version else ReplyStatus.UNKNOWN_CHAIN
            known = f"{self.node} has version {chain.version} of chain {io.chain}, the caller {io.chain_version}"
            raise Refused(status, known)
        if self.node not in chain.written:
            raise Refused(ReplyStatus.WRONG_REQUEST, f"{self.node} is not in {chain}")
        return chain

    def as_known_here(self, io: Io) -> Io:
        """Return a call as if its caller went by the version of the chain that is known here, if this node serves by
        that; else itself, so that the caller is told which version it should have."""
        if not 0 <= io.chain < len(self.table.chains):
            return io
        chain = self.table.chains[io.chain]
        return io._replace(chain_version=chain.version) if self.node in chain.nodes else io

    def forget_all(self) -> None:
        """Have no chunk any more, as a new disk has none."""
        for chunk in list(self._chunks):
            self._medium.forget(chunk)
            del self._chunks[chunk]

    def _check_head(self, io: Io) -> None:
        chain = self.chain_of(io)
        if chain.nodes[:1] != (self.node,):
            raise Refused(ReplyStatus.NOT_HEAD, f"{self.node} is not the head of {chain}")

    async def write(self, io: Io, pull: Pull, zone: int, until_s: float) -> Applied:
        """Carry out a client's write as head; return it once it is committed on the whole chain.

        Raises Refused; BUSY if that takes longer than until ``until_s``.
        """
        self._check_head(io)
        if (applied := self._applied(io)) is not None:
            return applied
        held = self._chunks.get(io.chunk)
        is_pending = held is not None and held.pending is not None and held.pending.request == io.request
        content = await pull() if io.has_payload and not is_pending else None
        async with self._locked(io.chunk, until_s):
            self._check_head(io)
            held = self._chunks.begin(io.chunk, io.chain)
            if held.pending is not None and held.pending.request != io.request:
                await self._complete(io.chunk, held, until_s)
            if (applied := self._applied(io)) is not None:
                return applied
            if held.pending is None:
                if io.action == Action.REMOVE and not held.is_there:
                    return self._absent(io, held)
                await self._take_in(held, io, held.version + 1, content, zone)
            return await self._complete(io.chunk, held, until_s)

    def _absent(self, io: Io, held: Chunk) -> Applied:
        """Return that a removal has nothing to remove: what the head has not, nobody has."""
        if held.committed is None:
            del self._chunks[io.chunk]
            return Applied(0, 0)
        return applied_of(held.committed)

    def _applied(self, io: Io) -> Applied | None:
        """Return a write if it is done. Raises Refused if its client has written anew since."""
        held = self._chunks.get(io.chunk)
        last = held.last.get(client_of(io.request)) if held is not None else None
        if last is None or last.request < io.request:
            return None
        if last.request > io.request:
            raise Refused(
                ReplyStatus.WRONG_REQUEST,
                f"{io.chunk}: write {io.request:#x} comes after its client's {last.request:#x}",
            )
        return last

    async def update(self, io: Io, pull: Pull, zone: int, until_s: float) -> Applied:
        """Carry out a predecessor's update; return what was committed from here to the tail.

        Raises Refused, BUSY if that takes longer than until ``until_s``; and TrafficError if the chain has forked,
        which it must not.
        """
        self.chain_of(io)
        is_new = self._is_new(io)
        content = await pull() if is_new and io.has_payload else None
        async with self._locked(io.chunk, until_s):
            self.chain_of(io)
            held = self._chunks.begin(io.chunk, io.chain)
            if self._is_new(io):
                await self._take_in(held, io, io.version, content, zone)
            if held.pending is not None and held.pending.version == io.version:
                return await self._complete(io.chunk, held, until_s)
            committed = held.committed
            if committed is not None and committed.version == io.version:
                return applied_of(committed)
            return Applied(io.version, io.request, committed.chain_version if committed else 0)

    async def replace_chunk(self, io: Io, last: Mapping[int, Applied], pull: Pull, until_s: float) -> None:
        """Take a whole chunk from the predecessor, as it is committed there, while this target syncs. ``io`` has the
        version of the chain under which it was, in place of its own; the caller has verified that. Raises Refused."""
        chain = self.table.chains[io.chain]
        content = await pull() if io.has_payload else nothing_of(io)
        async with self._locked(io.chunk, until_s):
            if self.table.chains[io.chain] is not chain or not self._is_syncing(chain):
                raise Refused(ReplyStatus.STALE_CHAIN, f"{self.node}: {chain} has changed while {io.chunk} came")
            held = self._chunks.begin(io.chunk, io.chain)
            is_newer = held.replaced_in != chain.version or io.version > held.version
            held.last.update(last)
            held.replaced_in = chain.version
            if is_newer:
                stored = Stored(io.version, io.request, io.checksum, content, 0, io.chain_version)
                block = 0 if stored.is_removed else block_for(content.size_bytes)
                held.committed = replace(stored, block_bytes=block, is_made=_is_made(io, content))
                held.pending = None
                await self._medium.replace(io.chunk, held)

    async def remove_chunk(self, chunk: ChunkId, number: int, until_s: float) -> None:
        """Forget a chunk that the predecessor has not, unless it was written meanwhile. Raises Refused."""
        async with self._locked(chunk, until_s):
            chain = self.table.chains[number]
            held = self._chunks.get(chunk)
            if self._is_syncing(chain) and held is not None and held.replaced_in != chain.version:
                del self._chunks[chunk]
                self._medium.forget(chunk)

    @asynccontextmanager
    async def at_rest(self, chunk: ChunkId, until_s: float) -> AsyncIterator[Chunk | None]:
        """Hold a chunk's lock, with nothing pending, and read it; None if there is no such chunk. Raises Refused."""
        async with self._locked(chunk, until_s):
            held = self._chunks.get(chunk)
            if held is not None and held.pending is not None:
                await self._complete(chunk, held, until_s)
            if held is not None and held.is_there:
                await self._medium.read(held)
            yield held if held is not None and held.committed is not None else None

    def _is_new(self, io: Io) -> bool:
        """Return whether an update is neither committed nor pending here. Raises TrafficError if the chain forked."""
        held = self._chunks.get(io.chunk)
        chain = self.table.chains[io.chain]
        if self._is_syncing(chain) and (held is None or held.replaced_in != chain.version):
            return True
        version = held.version if held is not None else 0
        known = None
        if held is not None:
            known = held.committed if io.version == version else held.pending
        if known is not None and known.version == io.version and known.request != io.request:
            raise TrafficError(
                f"{self.node}: {io.chunk}: version {io.version} is write {known.request:#x}, upstream {io.request:#x}"
            )
        if io.version > version + 1:
            raise TrafficError(f"{self.node}: {io.chunk}: update to {io.version} after {version}; one is missing")
        return io.version > version and (held is None or held.pending is None)

    async def _take_in(self, held: Chunk, io: Io, version: int, payload: ChunkContent | None, zone: int) -> None:
        """Write a version to the disk, as pending."""
        assert payload is not None or not io.has_payload, "what was neither committed nor pending was pulled"
        chain = self.table.chains[io.chain]
        change = Change(Action(io.action), io.offset, io.length, io.checksum, payload or nothing_of(io))
        before = held.committed
        if before is None or self._is_syncing(chain):
            made = after(change, Removed(), 0, 0)  # What syncs is sent whole chunks.
        else:
            made = after(change, before.content, before.checksum, before.block_bytes)
        what = version, io.request, made.checksum, made.content, zone, chain.version, change, made.block_bytes
        held.pending = Stored(*what, is_made=_is_made(io, made.content))
        if self._is_syncing(chain):
            held.replaced_in = chain.version
        await self._medium.take_in(io.chunk, held, made.cost)

    async def settle(self, chunk: ChunkId, until_s: float) -> None:
        """Complete a chunk's pending version, if it still has one. Raises Refused if that is not done by then."""
        async with self._locked(chunk, until_s):
            held = self._chunks.get(chunk)
            if held is not None and held.pending is not None and self._must_complete(held):
                await self._complete(chunk, held, until_s)

    async def _complete(self, chunk: ChunkId, held: Chunk, until_s: float) -> Applied:
        """Pass the pending version on until the rest of the chain has it, then commit it."""
        stored = held.pending
        assert stored is not None, "callers hold the lock and have seen it"
        is_read = False
        while (successor := self._successor(held.chain)) is not None:
            changed = self._changed.setdefault(held.chain, asyncio.get_running_loop().create_future())
            io = self._io_of(chunk, held.chain, stored)
            if not is_read and stored.is_widened(io):
                await self._medium.read(held)
                is_read = True
            status, chain_version, checksum = await self._pass_on(successor, io, stored, until_s, changed)
            if status is ReplyStatus.OK:
                self._require_same(chunk, stored, successor, checksum)
                return self._end(chunk, held, chain_version or stored.chain_version)
            if not status.may_pass:
                raise TrafficError(
                    f"{self.node}: {successor} refused version {stored.version} of {chunk}: {status.name}"
                )
            if time.monotonic() >= until_s:
                raise Refused(ReplyStatus.BUSY, f"{successor} did not take {chunk} in time; last: {status.name}")
            await asyncio.wait({changed}, timeout=self._retry_s)
        return self._end(chunk, held, self.table.chains[held.chain].version)

    def _end(self, chunk: ChunkId, held: Chunk, chain_version: int) -> Applied:
        """Commit what is pending, under a version of the chain, and keep that."""
        assert held.pending is not None, "it is pending"
        applied = self._commit(held, replace(held.pending, chain_version=chain_version, change=None))
        self._medium.commit(chunk, held)
        return applied

    def _require_same(self, chunk: ChunkId, stored: Stored, successor: NodeId, checksum: int | None) -> None:
        """Raises TrafficError if the successor has made something else of a version."""
        if checksum is not None and checksum != stored.checksum:
            raise TrafficError(
                f"{self.node}: version {stored.version} of {chunk} has checksum {stored.checksum:08x} here, "
                f"{checksum:08x} on {successor}"
            )

    def _io_of(self, chunk: ChunkId, number: int, stored: Stored) -> Io:
        """Return the update that passes a version on: what made it, but to a target that syncs the whole chunk."""
        chain, change = self.table.chains[number], stored.change
        successor = chain.successor_of(self.node)
        is_syncing = chain.syncing is not None and chain.syncing.node == successor
        if stored.is_removed:
            change = Change(Action.REMOVE)
        elif change is None or is_syncing:
            change = Change(Action.WRITE, 0, stored.content.size_bytes, stored.checksum)
        what = change.offset, change.length, change.checksum
        return Io(number, chunk, *what, stored.request, stored.version, chain.version, change.action)

    def _successor(self, number: int) -> NodeId | None:
        chain = self.table.chains[number]
        if self.node not in chain.written:
            raise Refused(ReplyStatus.STALE_CHAIN, f"{self.node} is no longer in {chain}")
        return chain.successor_of(self.node)

    async def _pass_on(
        self, successor: NodeId, io: Io, stored: Stored, until_s: float, changed: asyncio.Future[None]
    ) -> Answer:
        """Return the successor's answer, or that the chain changed meanwhile."""
        forward = asyncio.ensure_future(self._forward(successor, io, stored, until_s))
        either: set[asyncio.Future[Any]] = {forward, changed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return forward.result() if forward.done() else Answer(ReplyStatus.STALE_CHAIN)
        finally:
            forward.cancel()

    def _commit(self, held: Chunk, stored: Stored) -> Applied:
        applied = applied_of(stored)
        held.committed, held.pending = stored, None
        held.last[client_of(stored.request)] = applied
        return applied

    @asynccontextmanager
    async def _locked(self, chunk: ChunkId, until_s: float) -> AsyncIterator[None]:
        lock = self._locks.setdefault(chunk, Permits(1))
        async with lock.held(until_s) as granted:
            if not granted:
                raise Refused(ReplyStatus.BUSY, f"{chunk}: another write of it is in progress on {self.node}")
            yield
