"""The storage service: a program in a storage node that holds chunks and answers on each of its NICs.

A write: the client sends a small WRITE to the head; the head pulls the data once one of its NIC's permits is free (3FS:
RDMA READ), so however many clients write at once, the receiver sets the pace; then UPDATE to the successor, which pulls
from the head in turn, and so on to the tail (:mod:`traffic.storage.service.replica`). Copies travel between the NICs
of the zone that the write came from: storage traffic never crosses zones, and each zone bears what its own
clients cause.

What the head pulled goes to its disk, then on to the successor, and so hop by hop.

A read: the disks, then leave to send (``apply``) if request-to-send is on, then one of the NIC's permits, then the
data; the order is 3FS's. If leave is not given in time the service counts it and sends anyway, as 3FS does.

Nothing is done for a caller that has given up, and a caller gets BUSY before it gives up. A version that a write leaves
pending is completed by one task per chunk, however long that takes.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabric.errors import TrafficError
from fabric.failures.kinds.disk import DiskState
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.storage.chains import ChainTable, ChunkId, TableChange, extents_on
from traffic.storage.config import Fence, ResyncConfig, StorageConfig
from traffic.storage.member import Member, manager_link
from traffic.storage.orders import (
    BeginAnew,
    ManagerEnd,
    Orders,
    Peers,
    Report,
    Rot,
    RotSome,
    Rotten,
    ServiceArguments,
    ServiceListening,
    SetDisk,
)
from traffic.storage.payload import ChunkContent, Raw, Recipe, checksum_of, content_of
from traffic.storage.service.chunk_files import ChunkFiles
from traffic.storage.service.disks import Disk, Disks, DiskWork, disk_rows
from traffic.storage.service.membership import Membership
from traffic.storage.service.replica import Answer, Refused, Replica, Stored
from traffic.storage.service.returning import RESYNC_KINDS, Returning
from traffic.storage.updates import LARGEST_BLOCK, Action
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import CallTimeout, ConnectionLost, LinkListener, Party, StorageConnection, Tasks
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import (
    MAY_BE_SHORT,
    NO_CHECKSUM,
    RELAXED,
    CallKind,
    FoundChunk,
    Frame,
    Io,
    IoResult,
    ReplyStatus,
    pack_all,
    pack_found,
    pack_number,
    parse_ios,
    parse_query,
    parse_results,
)
from traffic.storage.wire.permits import Permits
from traffic.transport.connection import Endpoint, Readable, Transport
from traffic.transport.sampling import FlowSampler

CONNECT_TIMEOUT_S = 30.0
MOST_FOUND = 10_000
"""Chunks that a query tells of at most."""
_BUSY_AFTER = 0.9
"""After what part of the time that a caller waits it is told BUSY, so that the answer still reaches it."""


@dataclass
class _Zone:
    """A service as it is in a zone: what its NIC takes in and sends at once, and its links to other services."""

    party: Party
    pulls: Permits
    sends: Permits
    links: Links | None = None
    resync_links: Links | None = None

    @property
    def links_to_others(self) -> Links:
        assert self.links is not None, "services know their peers before clients do"
        return self.links


class StorageService:
    """What one storage node answers. Links are made by :meth:`party` in each zone."""

    def __init__(
        self,
        node: NodeId,
        table: ChainTable,
        config: StorageConfig,
        transport: Transport,
        tasks: Tasks,
        files: ChunkFiles | None = None,
    ) -> None:
        self.node = node
        self.counts: Counter[str] = Counter()
        self.config = config
        self._transport = transport
        self._tasks = tasks
        self._disks = [Disk(config.service) for _ in range(config.disks_per_node)]
        medium = Disks(self._disks, disks_of(node, table), self.counts, files)
        self.replica = Replica(node, table, self._forward, medium=medium)
        self._tells_of_disks = config.tells_of_disks
        self._zones: dict[int, _Zone] = {}
        self._settling: set[ChunkId] = set()
        self.playing = asyncio.Event()
        """Whether a phase plays: between phases the cluster stands still."""
        resync = config.cluster_manager.resync if config.cluster_manager else ResyncConfig()
        self.returning = Returning(self.replica, resync, config.client.call_timeout, self.counts)

    def party(self, zone: int) -> Party:
        """Return this service as it appears in a zone."""
        if zone not in self._zones:
            limits = self.config.service
            handler = functools.partial(self._handle, zone)
            self._zones[zone] = _Zone(
                Party(self.node.name, handler, self._transport, self._tasks, counts=self.counts),
                Permits(limits.max_concurrent_pulls, limits.transfer_stall),
                Permits(limits.max_concurrent_sends, limits.transfer_stall),
            )
        return self._zones[zone].party

    def use_links(self, zone: int, links: Links) -> None:
        """Use ``links`` for copies of writes that came in ``zone``."""
        self._zones[zone].links = links

    def adopt(self, change: TableChange) -> None:
        """Go by newer chains, and complete what they leave to this node to complete."""
        for chunk in self.replica.adopt(change):
            self._settle_on(chunk)

    def begin_phase(self) -> None:
        """Go on as a part of the cluster, as if nothing had been between two phases."""
        if self.returning.membership is not None:
            self.returning.membership.heard(time.monotonic())
        for disk in self._disks:
            disk.work = DiskWork()
        self.playing.set()

    def records(self, phase: str) -> Records:
        """Return what its disks did in a phase, if that is to be told."""
        if not self._tells_of_disks:
            return Records()
        return Records(disks=list(disk_rows(self._disks, phase, self.node.name)))

    def links(self) -> Links:
        """Return the links to other services of its first zone that a resync uses: those of copies, unless it has some
        of its own."""
        zone = self._zones[min(self._zones)]
        return zone.links_to_others if zone.resync_links is None else zone.resync_links

    def use_resync_links(self, zone: int, source: str, transport: Transport, peers: Peers) -> None:
        """Use links by another transport for resyncs; they are made when they are needed."""
        party = Party(self.node.name, functools.partial(self._handle, zone), transport, self._tasks, counts=self.counts)
        links = Links(party, source)
        for (where, node), address in peers.addresses.items():
            if where == zone and node != self.node:
                links.expect(node, address)
        self._zones[zone].resync_links = links

    def _settle_on(self, chunk: ChunkId) -> None:
        """Complete a chunk's pending version beside other work, or it could not be read here until the next write."""
        if chunk not in self._settling and self.replica.must_settle(chunk):
            self._settling.add(chunk)
            self._tasks.spawn(self._settle(chunk))

    async def _settle(self, chunk: ChunkId) -> None:
        """Complete a chunk's pending version, however long its successor stays out of reach."""
        try:
            while self.replica.must_settle(chunk):
                try:
                    await self.replica.settle(chunk, time.monotonic() + self.config.client.call_timeout)
                except Refused:
                    self.counts["unsettled"] += 1
        finally:
            self._settling.discard(chunk)

    def set_disk(self, number: int, state: DiskState) -> None:
        """Let a disk be so from now on."""
        self._disks[number].state = state

    def rot_some(self, order: RotSome) -> tuple[ChunkId, ...]:
        """Flip a bit in each of some sound chunks of a disk; return which, fewer if there are not so many."""
        sound = [chunk for chunk, on in self.replica.recipes() if on == order.disk]
        chosen = random.Random(order.seed).sample(sound, min(order.count, len(sound)))
        for chunk in chosen:
            self.rot(chunk)
        return tuple(chosen)

    def rot(self, chunk: ChunkId) -> None:
        """Flip a bit in the middle of a chunk. Raises TrafficError if it is not here."""
        held = self.replica.held(chunk)
        if held is None or held.committed is None:
            raise TrafficError(f"{self.node}: cannot rot {chunk}: it is not here")
        data = bytearray().join(held.committed.content.pieces(0, held.committed.content.size_bytes))
        data[len(data) // 2] ^= 1
        held.committed = replace(held.committed, content=Raw(data))

    def begin_anew(self, order: BeginAnew) -> None:
        """Start anew, in a cluster with a manager: answer nothing until that counts on none of its targets."""
        assert self.returning.membership is not None, "the run has looked for a manager"
        if order.with_empty_disks:
            self.replica.forget_all()
        self.returning.membership.begin_anew(time.monotonic())

    def report(self) -> dict[str, int]:
        """Return this service's counts since it began; :attr:`StorageJob.counts` says what they mean."""
        peak = max((zone.party.arrivals.peak for zone in self._zones.values()), default=0)
        return {**self.counts, "peak_pulls": peak}

    def require_sound(self) -> None:
        """Raises TrafficError if the versions of a chunk are what they must not be."""
        if faults := list(itertools.islice(self.replica.faults(), 3)):
            raise TrafficError(f"storage: {'; '.join(faults)}; it is a bug")

    async def _handle(self, zone: int, link: StorageConnection, frame: Frame) -> None:
        try:
            self.returning.require_membership()
            if frame.kind in RESYNC_KINDS:
                await self.returning.handle(link, frame, functools.partial(self._pull, zone))
            elif frame.kind is CallKind.READ:
                await self._read(zone, link, frame)
            elif frame.kind in (CallKind.WRITE, CallKind.UPDATE):
                await self._write(zone, link, frame)
            elif frame.kind is CallKind.QUERY:
                self._query(link, frame)
            else:
                raise Refused(ReplyStatus.WRONG_REQUEST, f"{self.node}: nobody may call {frame.kind.name} here")
        except Refused as refusal:
            self.counts[f"refused_{refusal.status.name.lower()}"] += 1
            await link.reply(frame, refusal.status)

    async def _read(self, zone: int, link: StorageConnection, frame: Frame) -> None:
        ios = self._checked_ios(frame)
        if not self.config.service.check_read_chain:
            ios = list(map(self.replica.as_known_here, ios))
        takes_time = self.config.service.has_disks or any(disk.state.is_slow for disk in self._disks)
        if takes_time or self._tells_of_disks:
            await asyncio.gather(*(self._read_disk(io, takes_time) for io in ios))
        results, pieces = self._look_up(ios)
        if self.config.request_to_send is not None and pieces:
            await self._apply(link, frame)
        if await link.reply(frame, ReplyStatus.OK, pack_all(results), pieces, self._zones[zone].sends):
            self.counts["reads"] += 1

    def _checked_ios(self, frame: Frame) -> list[Io]:
        ios = parse_ios(frame.meta)
        limits = self.config.client
        if len(ios) > limits.max_batch_ios or sum(io.length for io in ios) > limits.max_batch_size:
            raise Refused(
                ReplyStatus.WRONG_REQUEST,
                f"{self.node}: a read of {len(ios)} IOs and {sum(io.length for io in ios)} B exceeds"
                f" {limits.max_batch_ios} IOs or {limits.max_batch_size} B; send less at once",
            )
        return ios

    def _checked_write(self, frame: Frame) -> Io:
        ios = self._checked_ios(frame)
        if len(ios) != 1:
            asked = ", ".join(f"{io.length} B at {io.offset}" for io in ios) or "nothing"
            raise Refused(ReplyStatus.WRONG_REQUEST, f"{self.node}: a write of {asked}; write one chunk at once")
        (io,) = ios
        is_empty = io.action == Action.WRITE and not io.length and frame.kind is CallKind.WRITE
        if is_empty or io.action > max(Action) or io.offset + io.length > LARGEST_BLOCK:
            what = f"action {io.action} of {io.length} B at {io.offset} of {io.chunk}"
            raise Refused(
                ReplyStatus.WRONG_REQUEST,
                f"{self.node}: {what}; write 1 B or more, below {LARGEST_BLOCK} B",
            )
        self._require_disk(io)
        return io

    def _disk_of(self, io: Io) -> Disk:
        """Return the disk that a call reads or writes. Raises Refused if this node is not in the chain."""
        target = self.replica.chain_of(io).target_on(self.node)
        assert target is not None, "the replica has looked"
        return self._disks[target.disk]

    def _require_disk(self, io: Io) -> None:
        if self._disk_of(io).state.fails:
            raise Refused(ReplyStatus.DISK_ERROR, f"{self.node}: the disk of {io.chunk} fails")

    async def _read_disk(self, io: Io, takes_time: bool) -> None:
        try:
            disk = self._disk_of(io)
        except Refused:
            return  # Its reader will be told.
        if takes_time:
            await disk.read(io.length)
        else:
            disk.note_read(io.length)

    def _look_up(self, ios: Sequence[Io]) -> tuple[list[IoResult], list[Readable]]:
        results: list[IoResult] = []
        pieces: list[Readable] = []
        for io in ios:
            try:
                self._require_disk(io)
                result, found = self._found(io, self.replica.read(io.chunk, bool(io.flags & RELAXED)))
            except Refused as refusal:
                self.counts[f"refused_{refusal.status.name.lower()}"] += 1
                result, found = IoResult(refusal.status, refusal.version, refusal.request), []
            results.append(result)
            pieces += found
        return results, pieces

    def _found(self, io: Io, stored: Stored) -> tuple[IoResult, list[Readable]]:
        content = stored.content
        if io.offset + io.length > content.size_bytes and not io.flags & MAY_BE_SHORT:
            raise Refused(
                ReplyStatus.WRONG_REQUEST,
                f"{self.node}: a read of {io.length} B at {io.offset} of {io.chunk}, of {content.size_bytes} B",
            )
        length = max(0, min(io.length, content.size_bytes - io.offset))
        found = list(content.pieces(io.offset, length)) if length else []
        # The stored checksum covers what the disk did to a chunk since it was written; a new one would hide that.
        checksum = stored.checksum
        if io.offset or io.length < content.size_bytes:
            checksum = NO_CHECKSUM if stored.is_made else checksum_of(found)
        what = stored.version, stored.request, checksum, length, content.size_bytes
        return IoResult(ReplyStatus.OK, *what, is_made=stored.is_made), [*found]

    def _query(self, link: StorageConnection, frame: Frame) -> None:
        query = parse_query(frame.meta)
        chain = self.replica.chain_of(Io(query.chain, ChunkId(query.file, 0), 0, 0, chain_version=query.chain_version))
        if self.node not in chain.nodes:
            raise Refused(ReplyStatus.NOT_SERVING, f"{self.node} does not serve in {chain}")
        found = self.replica.find(query.chain, query.file, query.begin, query.end)
        chunks = itertools.islice(found, min(query.most, MOST_FOUND))
        meta = pack_found(FoundChunk(index, one.content.size_bytes, one.version) for index, one in chunks)
        link.answer(frame, ReplyStatus.OK, meta)

    async def _apply(self, link: StorageConnection, frame: Frame) -> None:
        wait_s = min(self.config.service.apply_timeout, frame.deadline_s - time.monotonic())
        try:
            await link.call(CallKind.APPLY, pack_number(frame.number), wait_s)
        except CallTimeout:
            self.counts["apply_timeouts"] += 1

    async def _write(self, zone: int, link: StorageConnection, frame: Frame) -> None:
        io = self._checked_write(frame)
        now = time.monotonic()
        until_s = now + _BUSY_AFTER * (frame.deadline_s - now)
        pull = functools.partial(self._pull, zone, link, frame, io, until_s)
        carry_out = self.replica.write if frame.kind is CallKind.WRITE else self.replica.update
        try:
            applied = await carry_out(io, pull, zone, until_s)
        except Refused as refusal:
            if refusal.status is ReplyStatus.BUSY:
                self._settle_on(io.chunk)
            raise
        self.counts["writes" if frame.kind is CallKind.WRITE else "updates"] += 1
        committed = applied.version, applied.request, applied.checksum
        result = IoResult(ReplyStatus.OK, *committed, 0, applied.chunk_bytes, applied.chain_version)
        await link.reply(frame, ReplyStatus.OK, result.pack())

    async def _pull(self, zone: int, link: StorageConnection, frame: Frame, io: Io, until_s: float) -> ChunkContent:
        async with self._zones[zone].pulls.held(until_s, link.received_bytes) as granted:
            if not granted:
                raise Refused(ReplyStatus.BUSY, f"{self.node}: too many writes at once for {io.chunk} from {link.peer}")
            try:
                reply = await link.pull(frame, until_s - time.monotonic(), io.length)
            except CallTimeout as timeout:
                raise Refused(ReplyStatus.BUSY, str(timeout)) from timeout
        if reply.status is not ReplyStatus.OK:
            raise Refused(reply.status, f"{link.peer} no longer offers {io.chunk}")
        content = content_of(reply.payload)
        if not self._matches(content, reply.payload, frame.kind, io):
            raise Refused(ReplyStatus.WRONG_CHECKSUM, f"{io.chunk} from {link.peer} does not match its checksum")
        return content

    @staticmethod
    def _matches(content: ChunkContent, data: bytes | bytearray, kind: CallKind, io: Io) -> bool:
        """Return whether data is what was announced. Once the head has checked the writer's checksum, copies that are,
        byte for byte, what the write makes need none: that is the stronger test, and a third of its cost."""
        if kind is CallKind.UPDATE and content == Recipe(io.chunk, io.request, io.length, io.offset):
            return True
        return len(data) == io.length and checksum_of([data]) == io.checksum

    async def _forward(self, successor: NodeId, io: Io, stored: Stored, until_s: float) -> Answer:
        offer = stored.offered(io).pieces(0, io.length) if io.has_payload else []
        try:
            link = await self._zones[stored.zone].links_to_others.to(successor)
            wait_s = min(self.config.client.call_timeout, until_s - time.monotonic())
            reply = await link.call(CallKind.UPDATE, io.pack(), wait_s, offer=offer)
        except (ConnectionLost, CallTimeout):
            return Answer(ReplyStatus.BUSY)
        if reply.status is not ReplyStatus.OK:
            return Answer(reply.status)
        (result,) = parse_results(reply.meta)
        # Of a write that was known before, the checksum may not be.
        return Answer(result.status, result.chain_version, result.checksum or None)


def disks_of(node: NodeId, table: ChainTable) -> Callable[[int], int]:
    """Return what tells on which disk of a node a chain's chunks are: targets stay where they are."""
    found = {chain.number: target.disk for chain in table.chains if (target := chain.target_on(node)) is not None}
    return found.__getitem__


def join_cluster(
    service: StorageService, manager: ManagerEnd, addresses: Mapping[int, str], tasks: Tasks, is_again: bool = False
) -> Member:
    """Let the cluster manager hear a service, from now on, and let it bring targets up to date that come back. One that
    was started again begins anew (``is_again``). Return what does so."""
    config = service.config.cluster_manager
    assert config is not None, "there is a manager"
    now = time.monotonic()
    fence_s = config.failed_after / 2 if config.fence is Fence.HALF else None
    membership = Membership(service.node, service.replica.table, now, config.restart, fence_s)
    if is_again:
        membership.start_again(now)
    zone = min(addresses)
    link = manager_link(service.node.name, manager, addresses[zone], config.heartbeat, tasks, service.counts)
    service.returning.membership = membership
    member = Member(membership, link, lambda: service.replica.table, service.adopt, service.playing)
    place = link.nodes.number(service.node) / len(link.nodes.nodes)
    tasks.spawn(member.beat_on(config.heartbeat, place))
    tasks.spawn(member.poll_on(config.polled_every, place))
    tasks.spawn(service.returning.look_for_successors(tasks, service.links, service.playing))
    return member


def files_of(config: StorageConfig, node: NodeId) -> ChunkFiles | None:
    """Return a service's files of chunks, if it is to have any."""
    folder = config.service.chunk_files
    return None if folder is None else ChunkFiles(Path(folder) / node.name)


def run_service(agent: Agent, arguments: ServiceArguments) -> None:
    """Be a storage node's service until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: ServiceArguments) -> None:
    tasks = Tasks()
    transport = arguments.transport
    files = files_of(arguments.config, arguments.node)
    service = StorageService(arguments.node, arguments.table, arguments.config, transport, tasks, files)
    orders = Orders(agent, tasks, service.adopt)
    _load(service, arguments, files)
    for number, state in arguments.disks.items():
        service.set_disk(number, state)
    sampler = FlowSampler()
    agent.report(ServiceListening(_listen(service, arguments, sampler)))
    phase = ""
    member: Member | None = None
    while True:
        order = await orders.next()
        if isinstance(order, Peers):
            await orders.unless_failed(_connect(service, order, arguments, sampler))
            if arguments.manager is not None:
                member = join_cluster(service, arguments.manager, arguments.addresses, tasks, arguments.is_again)
        elif isinstance(order, Rot):
            service.rot(order.chunk)
        elif isinstance(order, RotSome):
            agent.report(Rotten(service.rot_some(order)))
            continue
        elif isinstance(order, SetDisk):
            service.set_disk(order.disk, order.state)
        elif isinstance(order, BeginAnew):
            service.begin_anew(order)
        elif isinstance(order, Play):
            phase = order.phase
            sampler.start()
            service.begin_phase()
        elif isinstance(order, Halt):
            if member is not None:
                await member.ask_last()
            service.playing.clear()
            service.require_sound()
            flows = flow_rows(sampler.stop(), phase, transport.options.level, agent.host)
            records = service.records(phase)
            records.add("flows", flows)
            agent.report(Report(records, service.report(), tuple(service.returning.attempts)))
            continue
        agent.report(Ready())


def _load(service: StorageService, arguments: ServiceArguments, files: ChunkFiles | None) -> None:
    """Let a service have the data set, and what it finds in its files. One that is started again without files has
    lost all."""
    if files is not None or not arguments.is_again:
        service.replica.preload(extents_on(arguments.node, arguments.table, arguments.preloaded))
    found = {} if files is None else files.load()
    if found and not arguments.is_again:
        raise TrafficError(
            f"{service.node}: service.chunk_files: {arguments.config.service.chunk_files} has {len(found)} chunks of "
            "another job; remove them, or name another folder"
        )
    service.replica.load(found)


def _listen(service: StorageService, arguments: ServiceArguments, sampler: FlowSampler) -> dict[int, Endpoint]:
    found = {}
    for zone, address in arguments.addresses.items():
        listener = arguments.transport.listen(address, arguments.ports.get(zone, 0))
        LinkListener(service.party(zone), listener, lambda link: sampler.track(link.data, link.peer))
        found[zone] = listener.endpoint
    return found


async def _connect(service: StorageService, peers: Peers, arguments: ServiceArguments, sampler: FlowSampler) -> None:
    others = {node for chain in arguments.table.chains if arguments.node in chain.nodes for node in chain.nodes}
    for zone, source in arguments.addresses.items():
        links = Links(service.party(zone), source, lambda node, link: sampler.track(link.data, node.name))
        service.use_links(zone, links)
        if arguments.resync is not None:
            service.use_resync_links(zone, source, arguments.resync, peers)
        for (where, node), address in peers.addresses.items():
            if where == zone and node != arguments.node:
                # One that is started again does not wait for peers, which may be dead or stopped.
                is_made_now = not arguments.is_again and arguments.config.connections.is_made_at_start(node in others)
                await links.add(node, address, CONNECT_TIMEOUT_S, is_made_now=is_made_now)
