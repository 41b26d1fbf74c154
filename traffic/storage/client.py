"""The client library: reads and writes of chunks, tried again until they succeed; everything that comes is verified.

Reads go to any target of a chain, batched by storage node within 3FS's limits; writes go to the head. A client in a
zone knows the services' NICs of that zone alone.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fabric.errors import TrafficError
from fabric.identity import NodeId
from fabric.lanes import ServiceLevel
from traffic.storage.chains import ChainTable, ChunkId, Extent, FileLayout
from traffic.storage.config import StorageConfig
from traffic.storage.messages import Frame, Io, IoResult, Kind, Status, pack_all, parse_number, parse_results
from traffic.storage.payload import Recipe, checksum_of
from traffic.storage.wire import CallTimeout, Link, LinkLost, Party, Tasks, dial
from traffic.transport import SocketOptions

T = TypeVar("T")
_REQUESTS_PER_CLIENT = 1 << 32
_BACKOFF_FIRST_S = 0.01
_BACKOFF_LONGEST_S = 0.5


class ChainLost(TrafficError):  # noqa: N818 - what happened, as its callers name it
    """The last target of a chain is gone."""


@dataclass(frozen=True)
class Operation:
    """One read request or one chunk write, as a client saw it; times are ``time.monotonic()``."""

    kind: str
    server: str
    size_bytes: int
    started_s: float
    ended_s: float


@dataclass(frozen=True)
class Acknowledged:
    """A write that the service confirmed: all replicas had committed ``version`` by then."""

    extent: Extent
    version: int
    request: int


@dataclass(frozen=True)
class ReadChunk:
    """A stretch of a chunk, verified."""

    extent: Extent
    server: NodeId
    version: int
    request: int


class SenderGate:
    """How many services may send to this client at once (3FS: ``RDMATransmissionLimiter``); None: any number.

    A read's token is taken when its service asks leave, and given back when the read has ended, whatever its end.
    """

    def __init__(self, limit: int | None) -> None:
        self.peak = 0
        self._limit = limit
        self._sending: set[tuple[str, int]] = set()
        self._waiting: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._expected: set[tuple[str, int]] = set()

    def expect(self, read: tuple[str, int]) -> None:
        """Know of a read (its server and number) that is about to be asked for."""
        self._expected.add(read)

    async def leave(self, read: tuple[str, int]) -> None:
        """Return once ``read`` may be sent; at once if it has ended, since its server then waits for nothing."""
        if read not in self._expected:
            return
        if self._limit is not None and len(self._sending) >= self._limit:
            waiter = self._waiting[read] = asyncio.get_running_loop().create_future()
            await waiter
        else:
            self._take(read)

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


class _Retry:
    """The tries of one operation: longer pauses each time, until the operation's time is over."""

    def __init__(self, what: str, timeout_s: float, rng: random.Random) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._rng = rng
        self._give_up_at = time.monotonic() + timeout_s
        self._pause_s = _BACKOFF_FIRST_S

    async def pause(self, why: str) -> None:
        """Wait before the next try. Raises TrafficError if there is no time for one."""
        if time.monotonic() > self._give_up_at:
            raise TrafficError(f"{self._what}: no success within {self._timeout_s:g} s; last: {why}")
        await asyncio.sleep(self._pause_s * self._rng.uniform(0.5, 1.0))
        self._pause_s = min(2 * self._pause_s, _BACKOFF_LONGEST_S)


@dataclass
class StorageClient:
    """A client in a host. ``number`` tells its writes from other clients'; ``request_to_send`` comes from the config.

    Every method raises ChainLost if a chain's last target is gone, and TrafficError, naming client, chunk, version and
    server, if what was read is wrong or an operation does not succeed within ``operation_timeout``.
    """

    name: str
    number: int
    table: ChainTable
    config: StorageConfig
    tasks: Tasks
    seed: int = 0
    options: SocketOptions = field(default_factory=lambda: SocketOptions(ServiceLevel.STORAGE))
    operations: list[Operation] = field(default_factory=list)
    acknowledged: dict[ChunkId, Acknowledged] = field(default_factory=dict)
    links: dict[NodeId, Link] = field(default_factory=dict)
    retries: int = 0

    def __post_init__(self) -> None:
        limits = self.config.client
        self.gate = SenderGate(self.config.request_to_send)
        self.party = Party(self.name, self._answer, self.options, self.tasks)
        self._rng = random.Random(f"{self.seed}/{self.name}")
        self._requests = itertools.count(self.number * _REQUESTS_PER_CLIENT + 1)
        self._in_flight = asyncio.Semaphore(limits.max_requests)
        self._in_flight_at: dict[NodeId, asyncio.Semaphore] = {}

    async def connect(self, services: Mapping[NodeId, tuple[str, int]], source: str, timeout_s: float = 30.0) -> None:
        """Link up with every service, from the NIC with the address ``source``. Raises TrafficError."""
        for node, address in services.items():
            self.links[node] = await dial(self.party, node.name, address, source, timeout_s)
            self._in_flight_at[node] = asyncio.Semaphore(self.config.client.max_requests_per_server)

    def adopt(self, table: ChainTable) -> None:
        """Go by a newer table; tries under way take it up."""
        if table.version > self.table.version:
            self.table = table

    async def _answer(self, link: Link, frame: Frame) -> None:
        if frame.kind is not Kind.APPLY:
            await link.reply(frame, Status.WRONG_REQUEST)
            return
        await self.gate.leave((link.peer, parse_number(frame.meta)))
        await link.reply(frame, Status.OK)

    def _targets(self, extent: Extent) -> tuple[NodeId, ...]:
        chain = self.table.chains[extent.chain]
        if chain.is_lost:
            raise ChainLost(
                f"{self.name}: chain {chain.number} is lost: chain table {self.table.version} has no target left for"
                f" {extent.chunk}; keep one node of every chain alive, or raise replicas"
            )
        return chain.nodes

    # Writes.

    async def write_file(self, layout: FileLayout, depth: int) -> list[Acknowledged]:
        """Write every chunk of a file, ``depth`` at once; return what was acknowledged, in order."""
        permits = asyncio.Semaphore(depth)

        async def write(extent: Extent) -> Acknowledged:
            async with permits:
                return await self.write_chunk(extent)

        return await _all(write(extent) for extent in layout.extents())

    async def write_chunk(self, extent: Extent, checksum: int | None = None) -> Acknowledged:
        """Write a whole chunk anew and return what the head answered.

        ``checksum`` replaces the right one, to try what a damaged payload comes to.
        """
        request = next(self._requests)
        pieces = Recipe(extent.chunk, request, extent.length).pieces(0, extent.length)
        checksum = checksum_of(pieces) if checksum is None else checksum
        io = Io(extent.chain, extent.chunk, 0, extent.length, checksum, request)
        retry = _Retry(f"{self.name}: write of {extent.chunk}", self.config.client.operation_timeout, self._rng)
        started = time.monotonic()
        while True:
            head = self._targets(extent)[0]
            result, why = await self._try_write(head, io, pieces)
            if result is not None:
                break
            self.retries += 1
            await retry.pause(why)
        acknowledged = Acknowledged(extent, result.version, request)
        self.acknowledged[extent.chunk] = acknowledged
        self.operations.append(Operation("write", head.name, extent.length, started, time.monotonic()))
        return acknowledged

    async def _try_write(self, head: NodeId, io: Io, pieces: Sequence[memoryview]) -> tuple[IoResult | None, str]:
        link, timeout_s = self.links[head], self.config.client.call_timeout
        try:
            reply = await link.call(Kind.WRITE, io.pack(), timeout_s, table_version=self.table.version, offer=pieces)
        except (LinkLost, CallTimeout) as error:
            return None, str(error)
        if reply.status is Status.OK:
            return parse_results(reply.meta)[0], ""
        if reply.status.may_pass:
            return None, f"{head} answered {reply.status.name}"
        raise TrafficError(f"{self.name}: write of {io.chunk}: {head} refused it: {reply.status.name}")

    # Reads.

    async def read_chunks(self, extents: Sequence[Extent], server: NodeId | None = None) -> list[ReadChunk]:
        """Read stretches of chunks, in batches to the nodes that hold them; return them in the same order, verified.

        ``server`` names the replica to read from; otherwise each stretch is read from any.
        """
        found: dict[int, ReadChunk] = {}
        what = f"{self.name}: read of {extents[0].chunk}" if extents else self.name
        retry = _Retry(what, self.config.client.operation_timeout, self._rng)
        while True:
            missing = [place for place in range(len(extents)) if place not in found]
            whys = await _all(
                self._read_batch(node, batch, extents, found) for node, batch in self._batches(extents, missing, server)
            )
            if len(found) == len(extents):
                return [found[place] for place in range(len(extents))]
            self.retries += 1
            await retry.pause(next(why for why in whys if why))

    def _batches(
        self, extents: Sequence[Extent], places: Sequence[int], server: NodeId | None
    ) -> list[tuple[NodeId, list[int]]]:
        by_node: dict[NodeId, list[int]] = {}
        for place in places:
            by_node.setdefault(server or self._pick(extents[place]), []).append(place)
        batches = [(node, batch) for node, all_ in by_node.items() for batch in self._cut(extents, all_)]
        self._rng.shuffle(batches)  # 3FS shuffles too, lest all clients ask the same node first.
        return batches

    def _pick(self, extent: Extent) -> NodeId:
        nodes = self._targets(extent)
        reachable = [node for node in nodes if not self.links[node].lost]
        return self._rng.choice(reachable or nodes)

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

    async def _read_batch(
        self, node: NodeId, places: Sequence[int], extents: Sequence[Extent], found: dict[int, ReadChunk]
    ) -> str:
        """Read a batch into ``found``; return why something is still missing, or nothing."""
        ios = [Io(e.chain, e.chunk, e.offset, e.length) for e in (extents[place] for place in places)]
        started = time.monotonic()
        async with self._in_flight_at[node], self._in_flight:
            try:
                reply = await self._call_read(self.links[node], ios)
            except (LinkLost, CallTimeout) as error:
                return str(error)
        if reply.status is not Status.OK:
            return self._must_pass(reply.status, node, extents[places[0]])
        if reply.payload:
            self.operations.append(Operation("read", node.name, len(reply.payload), started, time.monotonic()))
        return self._take_in(node, places, extents, reply, found)

    async def _call_read(self, link: Link, ios: Sequence[Io]) -> Frame:
        number = link.number()
        read = link.peer, number
        self.gate.expect(read)
        try:
            timeout_s = self.config.client.call_timeout
            return await link.call(Kind.READ, pack_all(ios), timeout_s, table_version=self.table.version, number=number)
        finally:
            self.gate.end(read)

    def _must_pass(self, status: Status, node: NodeId, extent: Extent) -> str:
        if not status.may_pass:
            raise TrafficError(f"{self.name}: read of {extent.chunk} from {node}: {status.name}")
        return f"{node} answered {status.name}"

    def _take_in(
        self, node: NodeId, places: Sequence[int], extents: Sequence[Extent], reply: Frame, found: dict[int, ReadChunk]
    ) -> str:
        why, start = "", 0
        for place, result in zip(places, parse_results(reply.meta), strict=True):
            extent = extents[place]
            if result.status is not Status.OK:
                why = self._must_pass(result.status, node, extent)
                continue
            self._verify(node, extent, result, reply.payload, start)
            start += result.length
            found[place] = ReadChunk(extent, node, result.version, result.request)
        return why

    def _verify(self, node: NodeId, extent: Extent, result: IoResult, data: bytearray, start: int) -> None:
        where = f"{self.name}: {extent.chunk} version {result.version} from {node}"
        if result.length != extent.length:
            raise TrafficError(f"{where}: {result.length} B came, {extent.length} B were asked for")
        checksum = checksum_of([memoryview(data)[start : start + result.length]])
        if checksum != result.checksum:
            raise TrafficError(f"{where}: checksum {checksum:08x}, the service says {result.checksum:08x}")
        recipe = Recipe(extent.chunk, result.request, result.chunk_bytes)
        if not recipe.matches(data, start, extent.offset, extent.length):
            raise TrafficError(f"{where}: the bytes are not those of write {result.request:#x}")

    async def read_back(self) -> tuple[int, list[str]]:
        """Read every chunk whose write was acknowledged to this client from each of its replicas.

        Returns how many were checked and a line for each that was lost: gone, or older than what was acknowledged.
        """
        copies = [(node, write) for write in self.acknowledged.values() for node in self._copies_of(write)]
        faults = [await self._lost_on(node, write) for node, write in copies]
        return len(copies), [fault for fault in faults if fault is not None]

    def _copies_of(self, write: Acknowledged) -> tuple[NodeId | None, ...]:
        return self.table.chains[write.extent.chain].nodes or (None,)

    async def _lost_on(self, node: NodeId | None, write: Acknowledged) -> str | None:
        where = f"{self.name}: {write.extent.chunk} on {node or 'any node'}: version {write.version} was acknowledged"
        try:
            (found,) = await self.read_chunks([write.extent], node)
        except TrafficError as error:
            return f"{where}; {error}"
        if found.version < write.version or (found.version == write.version and found.request != write.request):
            return f"{where} of write {write.request:#x}; it has version {found.version} of write {found.request:#x}"
        return None


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what each coroutine returns; on the first failure cancel the others and raise it."""
    running = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()
