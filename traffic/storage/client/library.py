"""The client library: reads and writes of chunks, retried until they succeed; all data is verified.

Reads go to any target of a chain, batched by storage node within 3FS's limits; writes go to the head. A client uses
the services' NICs of its own zone only.

Programs that have bytes of their own, such as files, call it by :mod:`traffic.storage.client.chunk_io`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple, TypeVar

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.chains import ChainTable, ChunkId, Extent, TableChange
from traffic.storage.client.verification import Verification
from traffic.storage.config import ClientConfig, RetryConfig, StorageConfig
from traffic.storage.payload import Recipe, checksum_of
from traffic.storage.updates import Action, Change
from traffic.storage.wire.calls import CallTimeout, ConnectionLost, Party, StorageConnection, Tasks
from traffic.storage.wire.links import Links, OnLink
from traffic.storage.wire.messages import (
    MAY_BE_SHORT,
    RELAXED,
    REQUEST_BITS,
    CallKind,
    FoundChunk,
    Frame,
    Io,
    IoResult,
    Query,
    ReplyStatus,
    pack_all,
    parse_found,
    parse_number,
    parse_results,
)
from traffic.storage.wire.permits import Permits
from traffic.transport.connection import Endpoint, Transport

T = TypeVar("T")
_KINDS_OF_UPDATES = {
    Action.WRITE: "write",
    Action.TRUNCATE: "truncate",
    Action.EXTEND: "truncate",
    Action.REMOVE: "remove",
}
"""What kind of operation each is."""
_READ_BACK_DEPTH = 8
"""How many copies on one server are read back at once."""
_BACKOFF_FIRST_S = 0.01
_BACKOFF_LONGEST_S = 0.5


class ChainLost(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """The last target of a chain is gone."""


class GaveUp(TrafficError):  # noqa: N818
    """An operation did not succeed within its time, though tried again and again: its servers are out of reach.

    ``request``: the number of the write that it was, which may take effect all the same; 0 for a read.
    """

    request = 0


class WrongCopy(TrafficError):  # noqa: N818
    """What a server sent of a chunk is not what was written."""

    def __init__(self, chunk: ChunkId, text: str) -> None:
        self.chunk = chunk
        super().__init__(text)


class Operation(NamedTuple):
    """One read request or one chunk write, as a client saw it; times are ``time.monotonic()``.

    ``started_s``: when its caller began to wait, however many tries followed; ``retries``: how many tries before it
    did not succeed. One that was given up is of kind ``read_failed`` or ``write_failed``, has no bytes, and its last
    server's name.
    """

    kind: str
    server: str
    size_bytes: int
    started_s: float
    ended_s: float
    retries: int = 0


class _Written(NamedTuple):
    """A write that a head has acknowledged."""

    head: NodeId
    result: IoResult


def _awaited(chain: int) -> str:
    return f"chain {chain} waits for the last target that served"


@dataclass(frozen=True)
class Acknowledged:
    """A write that the service confirmed: all replicas had committed ``version`` by then. ``extent``: what was written
    of the chunk; ``checksum`` and ``chunk_bytes``: of the whole chunk after it, as the head told; no bytes if it is
    removed."""

    extent: Extent
    version: int
    request: int
    checksum: int = 0
    chunk_bytes: int = 0


class ReadChunk(NamedTuple):
    """A stretch of a chunk, verified: version 0 and no bytes if the chunk was never there, no bytes of the chunk if it
    was removed. ``data``: its bytes, if they were asked for; fewer where the chunk ends."""

    extent: Extent
    server: NodeId
    version: int
    request: int
    data: bytes = b""
    chunk_bytes: int = 0
    checksum: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole chunk, whose checksum then is ``checksum``."""
        return self.extent.offset == 0 and len(self.data) == self.chunk_bytes


@dataclass
class _Reading:
    """Reads under way of several stretches of chunks: those ``found`` by their place, and how they are tried.
    ``server``: the only replica that is asked, if one is named; ``keeps``: whether bytes are handed on, which may be
    fewer than were asked for; ``flags``: of each read; ``started_s``: when their caller began to wait."""

    extents: Sequence[Extent]
    server: NodeId | None
    retry: _Retry
    flags: int
    started_s: float
    found: dict[int, ReadChunk] = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        return bool(self.flags & MAY_BE_SHORT)

    def size_bytes(self, place: int) -> int:
        """Return how many bytes were read of an extent: none while it is missing."""
        if place not in self.found:
            return 0
        return len(self.found[place].data) if self.keeps else self.extents[place].length


class SenderGate:
    """How many services may send to this client at once (3FS: ``RDMATransmissionLimiter``); None: any number.

    A read's token is taken when its service asks leave, and given back when the read has ended, whatever its end.
    """

    def __init__(self, limit: int | None, loop: asyncio.AbstractEventLoop) -> None:
        self.peak = 0
        self._limit = limit
        self._loop = loop
        self._sending: set[tuple[str, int]] = set()
        self._waiting: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._expected: set[tuple[str, int]] = set()

    def expect(self, read: tuple[str, int]) -> None:
        """Know of a read (its server and number) that is about to be asked for."""
        self._expected.add(read)

    def leave(self, read: tuple[str, int]) -> asyncio.Future[None] | None:
        """Return None if ``read`` may be sent now, or has ended, since its server then waits for nothing; else what is
        done once it may."""
        if read not in self._expected:
            return None
        if self._limit is not None and len(self._sending) >= self._limit:
            self._waiting[read] = self._loop.create_future()
            return self._waiting[read]
        self._take(read)
        return None

    def end(self, read: tuple[str, int]) -> None:
        """Give back what ``read`` holds."""
        self._expected.discard(read)
        self._sending.discard(read)
        if (waiter := self._waiting.pop(read, None)) is not None:
            waiter.set_result(None)
        while self._waiting and (self._limit is None or len(self._sending) < self._limit):
            following = next(iter(self._waiting))
            self._take(following)
            self._waiting.pop(following).set_result(None)

    def _take(self, read: tuple[str, int]) -> None:
        self._sending.add(read)
        self.peak = max(self.peak, len(self._sending))


async def _answer_after(turn: asyncio.Future[None], link: StorageConnection, frame: Frame) -> None:
    await turn
    link.answer(frame, ReplyStatus.OK)


class _Retry:
    """The tries of one operation: longer pauses each time, or turns of which each has a length, until the operation's
    time is over."""

    def __init__(self, what: str, limits: ClientConfig, rng: random.Random) -> None:
        self._what = what
        self._limits = limits
        self._rng = rng
        self._begun = time.monotonic()
        self._turn_begun = self._begun
        self._wait_s = limits.retry.first if limits.retry else _BACKOFF_FIRST_S
        self.count = 0

    @property
    def timeout_s(self) -> float:
        """How long the try that begins now waits for its answer."""
        if self._limits.retry is None:
            return self._limits.call_timeout
        left = self._begun + self._limits.operation_timeout - time.monotonic()
        return max(_BACKOFF_FIRST_S, min(self._wait_s, self._limits.call_timeout, left))

    async def pause(self, tried: _Tried) -> None:
        """Wait before the next try. Raises GaveUp if there is no time for one."""
        self.count += 1
        if self._limits.retry is not None:
            await self._end_turn(self._limits.retry, tried)
            return
        if time.monotonic() > self._begun + self._limits.operation_timeout:
            self._give_up(tried)
        await asyncio.sleep(self._wait_s * self._rng.uniform(0.5, 1.0))
        self._wait_s = min(2 * self._wait_s, _BACKOFF_LONGEST_S)

    async def _end_turn(self, turns: RetryConfig, tried: _Tried) -> None:
        """Wait for the end of a turn (3FS: ``ExponentialBackoffRetry``). None begins that would not have the length of
        the first one."""
        now, over = time.monotonic(), self._begun + self._limits.operation_timeout
        ends = min(self._turn_begun + self._wait_s, over)
        if tried.is_told:
            ends = min(ends, now + turns.first / 2)
        await asyncio.sleep(max(0.0, ends - now))
        self._turn_begun = time.monotonic()
        if self._turn_begun + turns.first > over:
            self._give_up(tried)
        self._wait_s = min(2 * self._wait_s, turns.longest)

    def _give_up(self, tried: _Tried) -> None:
        raise GaveUp(f"{self._what}: no success within {self._limits.operation_timeout:g} s; last: {tried.why}")


class _Tried(NamedTuple):
    """What came of a try: why it did not succeed, at which server; ``is_told``: that has answered that the next one
    may."""

    why: str
    server: NodeId | None
    is_told: bool = False

    @property
    def server_name(self) -> str:
        return self.server.name if self.server else ""


class _InFlight:
    """How many requests of one kind a client has in flight: at each server, and at all together (3FS:
    ``OperationConcurrency``)."""

    def __init__(self, limits: ClientConfig) -> None:
        self._limits = limits
        self.all = asyncio.Semaphore(limits.max_requests)
        """Room for one more."""
        self._at: dict[NodeId, asyncio.Semaphore] = {}

    def at(self, node: NodeId) -> asyncio.Semaphore:
        """Return the room for one more at a server."""
        if node not in self._at:
            self._at[node] = asyncio.Semaphore(self._limits.max_requests_per_server)
        return self._at[node]


class _Servers:
    """What a client bears in mind of its servers: how many of its reads, and of its updates, each has in flight, which
    is suspected, and which have sent wrong copies of what; ``expects_rot``: wrong copies are then no fault."""

    def __init__(self, limits: ClientConfig) -> None:
        self._limits = limits
        self.reads = _InFlight(limits)
        self.updates = _InFlight(limits)
        self._suspected_until: dict[NodeId, float] = {}
        self.expects_rot = False
        self.wrong: dict[ChunkId, set[NodeId]] = {}

    def suspect(self, node: NodeId) -> None:
        """Avoid a server that did not answer in time, for as long again."""
        self._suspected_until[node] = time.monotonic() + self._limits.call_timeout

    def trust(self, node: NodeId) -> None:
        """Avoid a server no longer."""
        self._suspected_until.pop(node, None)

    def is_suspected(self, node: NodeId, now: float) -> bool:
        """Whether a server is to be avoided."""
        return self._suspected_until.get(node, now) > now


class _Writes:
    """The order and the numbers of a client's writes."""

    def __init__(self, client: int) -> None:
        self._requests = itertools.count((client << REQUEST_BITS) + 1)
        self._turns: dict[ChunkId, Permits] = {}

    def next_request(self) -> int:
        """Return a number that no other write of any client has."""
        return next(self._requests)

    def turn(self, chunk: ChunkId) -> Permits:
        """Return what a write of a chunk holds meanwhile."""
        return self._turns.setdefault(chunk, Permits(1))


@dataclass
class StorageClient:
    """A client in a host. ``number`` tells its writes from other clients'; ``request_to_send`` comes from the config.

    Every method raises ChainLost if a chain's last target is gone, GaveUp if an operation does not succeed within
    ``operation_timeout``, and TrafficError, naming client, chunk, version and server, if what was read is wrong. A
    server that did not answer in time is suspected for as long again: reads go to other replicas, if there are any.
    """

    name: str
    number: InitVar[int]
    table: ChainTable
    config: StorageConfig
    tasks: InitVar[Tasks]
    transport: InitVar[Transport]
    seed: InitVar[int] = 0
    operations: list[Operation] = field(default_factory=list)
    acknowledged: dict[ChunkId, Acknowledged] = field(default_factory=dict)
    retries: int = 0

    def __post_init__(self, number: int, tasks: Tasks, transport: Transport, seed: int) -> None:
        limits = self.config.client
        self.gate = SenderGate(self.config.request_to_send, tasks.loop)
        self.party = Party(self.name, self._answer, transport, tasks)
        self._rng = random.Random(f"{seed}/{self.name}")
        self.links = Links(self.party, "")
        self._writes = _Writes(number)
        self._servers = _Servers(limits)

    async def connect(
        self,
        services: Mapping[NodeId, Endpoint],
        source: str,
        holding: Collection[NodeId] = (),
        timeout_s: float = 30.0,
        on_link: OnLink = lambda node, link: None,
    ) -> None:
        """Connect to every service, now or when it is needed, from the NIC with the address ``source``; ``holding``:
        those that hold this client's data. ``on_link`` hears of each link that is made. Raises TrafficError."""

        def is_linked(node: NodeId, link: StorageConnection) -> None:
            self._servers.trust(node)
            on_link(node, link)

        self.links = Links(self.party, source, is_linked)
        for node, address in services.items():
            is_made_now = self.config.connections.is_made_at_start(node in holding)
            await self.links.add(node, address, timeout_s, is_made_now=is_made_now)

    def adopt(self, change: TableChange) -> None:
        """Go by newer chains; tries under way take them up."""
        self.table = self.table.changed_by(change)

    def expect_wrong_copies(self) -> None:
        """Count wrong copies from now on, and read others, where a read may choose."""
        self._servers.expects_rot = True

    def _answer(self, link: StorageConnection, frame: Frame) -> Coroutine[Any, Any, None] | None:
        """Answer a service: at once if it may send, since to begin a task for that took as long as the rest."""
        if frame.kind is not CallKind.APPLY:
            link.answer(frame, ReplyStatus.WRONG_REQUEST)
        elif (turn := self.gate.leave((link.peer, parse_number(frame.meta)))) is not None:
            return _answer_after(turn, link, frame)
        else:
            link.answer(frame, ReplyStatus.OK)
        return None

    def _targets(self, number: int, chunk: ChunkId) -> tuple[NodeId, ...]:
        """Return the nodes that have a chunk, the head first; none while the last that served is awaited."""
        chain = self.table.chains[number]
        if chain.is_lost:
            raise ChainLost(
                f"{self.name}: chain {chain.number} is lost: chain table {self.table.version} has no target left for"
                f" {chunk}; keep one node of every chain alive, or raise replicas"
            )
        return chain.nodes

    # Writes.

    async def write_chunk(self, extent: Extent, checksum: int | None = None) -> Acknowledged:
        """Write a whole chunk anew and return what the head answered. Writes of one chunk follow one another.

        ``checksum`` replaces the right one, to try what a damaged payload comes to.
        """
        async with self._writes.turn(extent.chunk).held(math.inf):
            request = self._writes.next_request()
            recipe = Recipe(extent.chunk, request, extent.length, extent.offset)
            pieces = recipe.pieces(0, extent.length)
            checksum = checksum_of(pieces) if checksum is None else checksum
            change = Change(Action.WRITE, extent.offset, extent.length, checksum, recipe)
            return await self._update(extent, change, request)

    async def update(self, chunk: ChunkId, chain: int, change: Change) -> Acknowledged:
        """Carry out an update of a chunk and return what the head answered. Updates of one chunk by this client follow
        one another."""
        async with self._writes.turn(chunk).held(math.inf):
            extent = Extent(chunk, chain, change.offset, change.length)
            return await self._update(extent, change, self._writes.next_request())

    async def _update(self, extent: Extent, change: Change, request: int) -> Acknowledged:
        kind = _KINDS_OF_UPDATES[change.action]
        size = extent.length if change.action is Action.WRITE else 0
        pieces = change.payload.pieces(0, size) if size else []
        retry = _Retry(f"{self.name}: {kind} of {extent.chunk}", self.config.client, self._rng)
        started = time.monotonic()
        while True:
            io = self._update_of(extent, change, request)
            tried = await self._try_write(io, pieces, retry.timeout_s)
            if isinstance(tried, _Written):
                break
            self.retries += 1
            await self._pause(retry, tried, kind, started, request)
        result = tried.result
        acknowledged = Acknowledged(extent, result.version, result.request, result.checksum, result.chunk_bytes)
        if result.request == request:  # Else it was a removal of what another has removed.
            self.acknowledged[extent.chunk] = acknowledged
        self.operations.append(Operation(kind, tried.head.name, size, started, time.monotonic(), retry.count))
        return acknowledged

    async def _pause(self, retry: _Retry, tried: _Tried, kind: str, started: float, request: int = 0) -> None:
        """Wait before the next try; note the operation as failed if there is none."""
        try:
            await retry.pause(tried)
        except GaveUp as error:
            error.request = request
            failed = Operation(f"{kind}_failed", tried.server_name, 0, started, time.monotonic(), retry.count)
            self.operations.append(failed)
            raise

    async def _try_write(self, io: Io, pieces: Sequence[memoryview], timeout_s: float) -> _Written | _Tried:
        nodes = self._targets(io.chain, io.chunk)
        if not nodes:
            return _Tried(_awaited(io.chain), None)
        head = nodes[0]
        try:
            async with self._servers.updates.at(head), self._servers.updates.all:
                link = await self.links.to(head)
                reply = await link.call(CallKind.WRITE, io.pack(), timeout_s, offer=pieces)
        except (ConnectionLost, CallTimeout) as error:
            return _Tried(str(error), head)
        if reply.status is ReplyStatus.OK:
            return _Written(head, parse_results(reply.meta)[0])
        if reply.status.may_pass:
            return _Tried(f"{head} answered {reply.status.name}", head, reply.status.is_of_now)
        raise TrafficError(f"{self.name}: write of {io.chunk}: {head} refused it: {reply.status.name}")

    def _update_of(self, extent: Extent, change: Change, request: int) -> Io:
        what = extent.offset, extent.length, change.checksum, request
        return Io(extent.chain, extent.chunk, *what, 0, self.table.chains[extent.chain].version, change.action)

    def _read_of(self, extent: Extent, flags: int) -> Io:
        chunk, chain, offset, length = extent
        return Io(chain, chunk, offset, length, 0, 0, 0, self.table.chains[chain].version, 0, flags)

    # Reads.

    async def read_chunks(
        self, extents: Sequence[Extent], server: NodeId | None = None, is_relaxed: bool = False
    ) -> list[ReadChunk]:
        """Read stretches of chunks, in batches to the nodes that hold them; return them in the same order, verified.

        ``server`` names the replica to read from; otherwise each stretch is read from any. ``is_relaxed``: a version
        that is pending will do.
        """
        return await self._read(extents, server, RELAXED if is_relaxed else 0)

    async def read_bytes(
        self, extents: Sequence[Extent], server: NodeId | None = None, is_relaxed: bool = False
    ) -> list[ReadChunk]:
        """Do so, and return their bytes: fewer than were asked for where a chunk ends, none where there is none."""
        return await self._read(extents, server, MAY_BE_SHORT | (RELAXED if is_relaxed else 0))

    async def _read(self, extents: Sequence[Extent], server: NodeId | None, flags: int) -> list[ReadChunk]:
        what = f"{self.name}: read of {extents[0].chunk}" if extents else self.name
        started = time.monotonic()
        reading = _Reading(extents, server, _Retry(what, self.config.client, self._rng), flags, started)
        found = reading.found
        while True:
            missing = [place for place in range(len(extents)) if place not in found]
            there = [place for place in missing if server or self._targets(extents[place].chain, extents[place].chunk)]
            batches = self._batches(reading, there)
            read = self._read_batch if server else self._read_sound
            tries = await self._all(read(node, batch, reading) for node, batch in batches)
            if len(found) == len(extents):
                return [found[place] for place in range(len(extents))]
            self.retries += 1
            failed = [tried for tried in tries if tried.why] or [_Tried(_awaited(extents[missing[0]].chain), None)]
            await self._pause(reading.retry, failed[0], "read", started)

    def _batches(self, reading: _Reading, places: Sequence[int]) -> list[tuple[NodeId, list[int]]]:
        by_node: dict[NodeId, list[int]] = {}
        for place in places:
            by_node.setdefault(reading.server or self._pick(reading.extents[place]), []).append(place)
        batches = [(node, batch) for node, all_ in by_node.items() for batch in self._cut(reading.extents, all_)]
        self._rng.shuffle(batches)  # 3FS shuffles too, lest all clients ask the same node first.
        return batches

    def _pick(self, extent: Extent) -> NodeId:
        wrong = self._servers.wrong.get(extent.chunk, ())
        targets = self._targets(extent.chain, extent.chunk)
        nodes = [node for node in targets if node not in wrong] or targets
        now = time.monotonic()
        reachable = [node for node in nodes if self.links.is_up(node)]
        answering = [node for node in reachable if not self._servers.is_suspected(node, now)]
        return self._rng.choice(answering or reachable or nodes)

    def _cut(self, extents: Sequence[Extent], places: Sequence[int]) -> Iterator[list[int]]:
        limits = self.config.client
        batch: list[int] = []
        size = 0
        for place in places:
            length = extents[place].length
            if batch and (len(batch) == limits.max_batch_ios or size + length > limits.max_batch_size):
                yield batch
                batch, size = [], 0
            batch.append(place)
            size += length
        if batch:
            yield batch

    async def _read_batch(self, node: NodeId, places: Sequence[int], reading: _Reading) -> _Tried:
        """Read a batch into what is found; return why something is still missing, or nothing."""
        extents, retry = reading.extents, reading.retry
        ios = [self._read_of(extents[place], reading.flags) for place in places]
        async with self._servers.reads.at(node), self._servers.reads.all:
            try:
                reply = await self._call_read(await self.links.to(node), ios, retry.timeout_s)
            except ConnectionLost as error:
                return _Tried(str(error), node)
            except CallTimeout as error:
                self._servers.suspect(node)
                return _Tried(str(error), node)
        if reply.status is not ReplyStatus.OK:
            return self._must_pass(reply.status, node, extents[places[0]])
        ended = time.monotonic()
        try:
            return self._take_in(node, places, reading, reply)
        finally:
            # What is right of it was read. A wrong copy was not: the bytes count where another copy is read instead.
            size = sum(reading.size_bytes(place) for place in places)
            if size:
                times = reading.started_s, ended
                self.operations.append(Operation("read", node.name, size, *times, retry.count))

    async def _read_sound(self, node: NodeId, places: Sequence[int], reading: _Reading) -> _Tried:
        """Do so; a wrong copy, if such are expected, is one more reason why something is still missing."""
        try:
            return await self._read_batch(node, places, reading)
        except WrongCopy as wrong:
            if not self._servers.expects_rot:
                raise
            self._servers.wrong.setdefault(wrong.chunk, set()).add(node)
            self.party.counts["wrong_copies"] += 1
            return _Tried(str(wrong), node)

    async def _call_read(self, link: StorageConnection, ios: Sequence[Io], timeout_s: float) -> Frame:
        number = link.number()
        read = link.peer, number
        self.gate.expect(read)
        try:
            least = 1 if ios[0].flags & MAY_BE_SHORT else min(io.length for io in ios)
            return await link.call(CallKind.READ, pack_all(ios), timeout_s, number=number, payload_bytes=least)
        finally:
            self.gate.end(read)

    def _must_pass(self, status: ReplyStatus, node: NodeId, extent: Extent) -> _Tried:
        if not status.may_pass:
            raise TrafficError(f"{self.name}: read of {extent.chunk} from {node}: {status.name}")
        return _Tried(f"{node} answered {status.name}", node, status.is_of_now)

    def _take_in(self, node: NodeId, places: Sequence[int], reading: _Reading, reply: Frame) -> _Tried:
        tried, start = _Tried("", node), 0
        for place, result in zip(places, parse_results(reply.meta), strict=True):
            extent = reading.extents[place]
            data = b""
            if result.status is ReplyStatus.OK:
                if not reading.keeps and result.length != extent.length:
                    asked = f"{result.length} B came, {extent.length} B were asked for"
                    raise TrafficError(f"{self.name}: {extent.chunk} version {result.version} from {node}: {asked}")
                self._verify(node, extent, result, reply.payload, start)
                data = bytes(reply.payload[start : start + result.length]) if reading.keeps else b""
                start += result.length
            elif result.status is not ReplyStatus.NOT_FOUND or not reading.keeps:
                tried = self._must_pass(result.status, node, extent)
                continue
            told = data, result.chunk_bytes, result.checksum
            reading.found[place] = ReadChunk(extent, node, result.version, result.request, *told)
        return tried

    def _verify(self, node: NodeId, extent: Extent, result: IoResult, data: bytes | bytearray, start: int) -> None:
        where = f"{self.name}: {extent.chunk} version {result.version} from {node}"
        recipe = Recipe(extent.chunk, result.request, result.chunk_bytes)
        if result.is_made and recipe.matches(data, start, extent.offset, result.length):
            return  # Every byte is right; a checksum could not say more.
        checksum = checksum_of([memoryview(data)[start : start + result.length]])
        is_whole = extent.offset == 0 and result.length == result.chunk_bytes
        if (is_whole or not result.is_made) and checksum != result.checksum:
            words = f"checksum {checksum:08x}, the service reports {result.checksum:08x}"
            raise WrongCopy(extent.chunk, f"{where}: {words}")
        if result.is_made:
            raise WrongCopy(extent.chunk, f"{where}: the bytes are not those of write {result.request:#x}")

    async def find_chunks(self, chain: int, file: int, places: range, most: int = 1) -> list[FoundChunk]:
        """Return the last ``most`` chunks of a file that are there on a chain, the last first, of those with a place in
        ``places``."""
        retry = _Retry(f"{self.name}: query of file {file}", self.config.client, self._rng)
        extent = Extent(ChunkId(file, places.start), chain, 0, 0)
        started = time.monotonic()
        while True:
            tried = await self._try_query(extent, places, most, retry.timeout_s)
            if not isinstance(tried, _Tried):
                return tried
            self.retries += 1
            await self._pause(retry, tried, "query", started)

    async def _try_query(self, extent: Extent, places: range, most: int, timeout_s: float) -> list[FoundChunk] | _Tried:
        if not self._targets(extent.chain, extent.chunk):
            return _Tried(_awaited(extent.chain), None)
        node = self._pick(extent)
        version = self.table.chains[extent.chain].version
        query = Query(extent.chain, version, extent.chunk.file, places.start, places.stop, most)
        try:
            link = await self.links.to(node)
            reply = await link.call(CallKind.QUERY, query.pack(), timeout_s)
        except (ConnectionLost, CallTimeout) as error:
            return _Tried(str(error), node)
        if reply.status is not ReplyStatus.OK:
            return self._must_pass(reply.status, node, extent)
        return parse_found(reply.meta)

    # Reading back.

    async def read_back(self) -> Verification:
        """Read every chunk whose write was acknowledged to this client from each of its replicas.

        Servers are asked side by side. One that does not answer is given up after ``operation_timeout``, with all
        that is on it.
        """
        by_node: dict[NodeId, list[Acknowledged]] = {}
        gone: list[str] = []
        awaited: list[str] = []
        for write in self.acknowledged.values():
            for node in self.table.chains[write.extent.chain].nodes:
                by_node.setdefault(node, []).append(write)
            if self.table.chains[write.extent.chain].is_lost:
                gone.append(f"{self._promise(write, 'any node')}; {write.extent.chunk} has no replica left")
            elif not self.table.chains[write.extent.chain].nodes:
                awaited.append(f"{self._promise(write, 'any node')}; {_awaited(write.extent.chain)}")
        found = await self._all(self._read_back_from(node, writes) for node, writes in by_node.items())
        return sum(found, Verification(len(gone) + len(awaited), tuple(gone), tuple(awaited)))

    def _promise(self, write: Acknowledged, where: object) -> str:
        return f"{self.name}: {write.extent.chunk} on {where}: version {write.version} was acknowledged"

    async def _read_back_from(self, node: NodeId, writes: Sequence[Acknowledged]) -> Verification:
        left = iter(writes)
        silence = ""

        async def read_on() -> Verification:
            nonlocal silence
            sum_ = Verification()
            for write in left:
                if silence:
                    sum_ += Verification(1, (), (f"{self._promise(write, node)}; {silence}",))
                    continue
                try:
                    sum_ += await self._check_copy(node, write)
                except GaveUp as error:
                    sum_ += Verification(1, (), (f"{self._promise(write, node)}; {error}",))
                    if self._is_silent(node):
                        silence = f"{node} did not answer for another chunk"
            return sum_

        return sum(await self._all(read_on() for _ in range(_READ_BACK_DEPTH)), Verification())

    def _is_silent(self, node: NodeId) -> bool:
        return not self.links.is_up(node) or self._servers.is_suspected(node, time.monotonic())

    async def _check_copy(self, node: NodeId, write: Acknowledged) -> Verification:
        promise = self._promise(write, node)
        whole = write.extent._replace(offset=0, length=max(1, write.chunk_bytes))
        try:
            (found,) = await self.read_bytes([whole], node)
        except GaveUp:
            raise
        except TrafficError as error:
            return Verification(1, (f"{promise}; {error}",))
        if found.version < write.version or (found.version == write.version and found.request != write.request):
            shown = f"it has version {found.version} of write {found.request:#x}"
            return Verification(1, (f"{promise} of write {write.request:#x}; {shown}",))
        has, was = (found.chunk_bytes, found.checksum), (write.chunk_bytes, write.checksum)
        if found.version == write.version and found.is_whole and has != was:
            return Verification(
                1, (f"{promise} of {was[0]} B and checksum {was[1]:08x}; it has {has[0]} B, {has[1]:08x}",)
            )
        return Verification(1)

    async def _all(self, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Return what each coroutine returns; on the first failure cancel the others and raise it."""
        todo = list(work)
        if len(todo) == 1:
            return [await todo[0]]
        running = [self.party.tasks.loop.create_task(one) for one in todo]
        try:
            return await asyncio.gather(*running)
        finally:
            for one in running:
                one.cancel()
