"""The storage service: a program in a storage node that holds chunks and answers on each of its NICs.

A write: the client sends a small WRITE to the head; the head pulls the data once one of its NIC's permits is free (3FS:
RDMA READ), so however many clients write at once, the receiver sets the pace; then UPDATE to the successor, which pulls
from the head in turn, and so on to the tail (see :mod:`traffic.storage.replica`). Copies travel between the NICs of the
zone that the write came from: storage traffic never crosses zones, and each zone bears what its own clients cause.

A read: the disks, then leave to send (``apply``) if request-to-send is on, then one of the NIC's permits, then the
data; the order is 3FS's. If leave is not given in time the service counts it and sends anyway, as 3FS does.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fabric.agents import Agent
from fabric.errors import TrafficError
from fabric.identity import NodeId
from fabric.lanes import ServiceLevel
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.storage.chains import ChainTable, ChunkId, extents_on
from traffic.storage.config import ServiceConfig, StorageConfig
from traffic.storage.messages import (
    Frame,
    Io,
    IoResult,
    Kind,
    Status,
    pack_all,
    pack_number,
    parse_ios,
    parse_results,
)
from traffic.storage.orders import Listening, Orders, Peers, Report, Rot, ServiceArguments
from traffic.storage.payload import Content, Raw, checksum_of, content_of
from traffic.storage.replica import Patience, Refused, Replica, Stored
from traffic.storage.wire import CallTimeout, Link, LinkLost, Listener, Party, Piece, Tasks, dial
from traffic.transport import FlowSampler, SocketOptions, listen

CONNECT_TIMEOUT_S = 30.0


class Disk:
    """A disk that reads at a rate after a latency; reads of one disk queue for its rate, not for its latency."""

    def __init__(self, config: ServiceConfig) -> None:
        self._rate_bps = config.ssd_read_rate
        self._latency_s = config.ssd_latency
        self._free_at = 0.0

    async def read(self, size_bytes: int) -> None:
        """Take as long as a read of ``size_bytes`` takes."""
        now = time.monotonic()
        if self._rate_bps is not None:
            self._free_at = max(now, self._free_at) + size_bytes * 8 / self._rate_bps
        wait_s = max(now, self._free_at) + self._latency_s - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)


class StorageService:
    """What one storage node answers. Links are made by :meth:`party` in each zone."""

    def __init__(
        self, node: NodeId, table: ChainTable, config: StorageConfig, options: SocketOptions, tasks: Tasks
    ) -> None:
        self.node = node
        self.counts: Counter[str] = Counter()
        self._config = config
        self._options = options
        self._tasks = tasks
        patience = Patience(give_up_s=config.client.operation_timeout)
        self.replica = Replica(node, table, self._forward, patience)
        self._disks = [Disk(config.service) for _ in range(config.disks_per_node)]
        self._pulls: dict[int, asyncio.Semaphore] = {}
        self._sends: dict[int, asyncio.Semaphore] = {}
        self._parties: dict[int, Party] = {}
        self._successors: dict[tuple[int, NodeId], Link] = {}

    def party(self, zone: int) -> Party:
        """Return this service as it appears in a zone."""
        if zone not in self._parties:
            self._pulls[zone] = asyncio.Semaphore(self._config.service.max_concurrent_pulls)
            self._sends[zone] = asyncio.Semaphore(self._config.service.max_concurrent_sends)
            handler = functools.partial(self._handle, zone)
            self._parties[zone] = Party(self.node.name, handler, self._options, self._tasks)
        return self._parties[zone]

    def add_successor(self, zone: int, node: NodeId, link: Link) -> None:
        """Use ``link`` for copies to ``node`` of writes that came in ``zone``."""
        self._successors[zone, node] = link

    def adopt(self, table: ChainTable) -> None:
        """Go by a newer table, and complete what it leaves to this node to complete."""
        for chunk in self.replica.adopt(table):
            self._tasks.spawn(self._settle(chunk))

    async def _settle(self, chunk: ChunkId) -> None:
        try:
            await self.replica.settle(chunk)
        except Refused:
            self.counts["unsettled"] += 1

    def rot(self, chunk: ChunkId) -> None:
        """Flip a bit in the middle of a chunk. Raises TrafficError if it is not here."""
        held = self.replica.held(chunk)
        if held is None or held.committed is None:
            raise TrafficError(f"{self.node}: cannot rot {chunk}: it is not here")
        data = bytearray().join(held.committed.content.pieces(0, held.committed.content.size_bytes))
        data[len(data) // 2] ^= 1
        held.committed = replace(held.committed, content=Raw(data))

    def report(self) -> dict[str, int]:
        """Return this service's counts since it began."""
        peak = max((party.arrivals.peak for party in self._parties.values()), default=0)
        return {**self.counts, "peak_pulls": peak}

    async def _handle(self, zone: int, link: Link, frame: Frame) -> None:
        try:
            if frame.kind is Kind.READ:
                await self._read(zone, link, frame)
            elif frame.kind in (Kind.WRITE, Kind.UPDATE):
                await self._write(zone, link, frame)
            else:
                raise Refused(Status.WRONG_REQUEST, f"{self.node}: nobody may call {frame.kind.name} here")
        except Refused as refusal:
            self.counts[f"refused_{refusal.status.name.lower()}"] += 1
            await link.reply(frame, refusal.status, table_version=self.replica.table.version)

    async def _read(self, zone: int, link: Link, frame: Frame) -> None:
        self.replica.check_table(frame.table_version)
        ios = self._checked_ios(frame)
        await asyncio.gather(*(self._disk_of(io).read(io.length) for io in ios))
        results, pieces = self._look_up(ios)
        if self._config.request_to_send is not None and pieces:
            await self._apply(link, frame)
        async with self._sends[zone]:
            await link.reply(frame, Status.OK, pack_all(results), pieces)
        self.counts["reads"] += 1

    def _checked_ios(self, frame: Frame) -> list[Io]:
        ios = parse_ios(frame.meta)
        limits = self._config.client
        if len(ios) > limits.max_batch_ios or sum(io.length for io in ios) > limits.max_batch_size:
            raise Refused(
                Status.WRONG_REQUEST,
                f"{self.node}: a read of {len(ios)} IOs and {sum(io.length for io in ios)} B exceeds"
                f" {limits.max_batch_ios} IOs or {limits.max_batch_size} B; send less at once",
            )
        return ios

    def _disk_of(self, io: Io) -> Disk:
        chains = self.replica.table.chains
        target = chains[io.chain].target_on(self.node) if io.chain < len(chains) else None
        if target is None:
            raise Refused(Status.WRONG_REQUEST, f"{self.node} is not in chain {io.chain}")
        return self._disks[target.disk]

    def _look_up(self, ios: Sequence[Io]) -> tuple[list[IoResult], list[Piece]]:
        results: list[IoResult] = []
        pieces: list[Piece] = []
        for io in ios:
            try:
                stored = self.replica.read(io.chunk)
            except Refused as refusal:
                self.counts[f"refused_{refusal.status.name.lower()}"] += 1
                results.append(IoResult(refusal.status))
                continue
            found: list[Piece] = list(stored.content.pieces(io.offset, io.length))
            length = sum(map(len, found))
            # The stored checksum covers what the disk did to a chunk since it was written; a new one would hide that.
            checksum = stored.checksum if length == stored.content.size_bytes else checksum_of(found)
            results.append(
                IoResult(Status.OK, stored.version, stored.request, checksum, length, stored.content.size_bytes)
            )
            pieces += found
        return results, pieces

    async def _apply(self, link: Link, frame: Frame) -> None:
        try:
            await link.call(Kind.APPLY, pack_number(frame.number), self._config.service.apply_timeout)
        except CallTimeout:
            self.counts["apply_timeouts"] += 1

    async def _write(self, zone: int, link: Link, frame: Frame) -> None:
        (io,) = self._checked_ios(frame)
        pull = functools.partial(self._pull, zone, link, frame, io)
        carry_out = self.replica.write if frame.kind is Kind.WRITE else self.replica.update
        stored = await carry_out(io, frame.table_version, pull, zone)
        self.counts["writes" if frame.kind is Kind.WRITE else "updates"] += 1
        result = IoResult(Status.OK, stored.version, stored.request, stored.checksum, 0, stored.content.size_bytes)
        await link.reply(frame, Status.OK, result.pack())

    async def _pull(self, zone: int, link: Link, frame: Frame, io: Io) -> Content:
        async with self._pulls[zone]:
            try:
                reply = await link.pull(frame, self._config.client.call_timeout)
            except CallTimeout as timeout:
                raise Refused(Status.BUSY, str(timeout)) from timeout
        if reply.status is not Status.OK:
            raise Refused(reply.status, f"{link.peer} no longer offers {io.chunk}")
        if len(reply.payload) != io.length or checksum_of([reply.payload]) != io.checksum:
            raise Refused(Status.WRONG_CHECKSUM, f"{io.chunk} from {link.peer} does not match its checksum")
        return content_of(reply.payload)

    async def _forward(self, successor: NodeId, table_version: int, io: Io, stored: Stored) -> Status:
        link = self._successors.get((stored.zone, successor))
        if link is None:
            return Status.BUSY
        offer = stored.content.pieces(0, io.length)
        try:
            timeout_s = self._config.client.call_timeout
            reply = await link.call(Kind.UPDATE, io.pack(), timeout_s, table_version=table_version, offer=offer)
        except (LinkLost, CallTimeout):
            return Status.BUSY
        return reply.status if reply.status is not Status.OK else parse_results(reply.meta)[0].status


def run_service(agent: Agent, arguments: ServiceArguments) -> None:
    """Be a storage node's service until the run stops it."""
    asyncio.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: ServiceArguments) -> None:
    tasks = Tasks()
    options = arguments.options
    service = StorageService(arguments.node, arguments.table, arguments.config, options, tasks)
    orders = Orders(agent, tasks, service.adopt)
    service.replica.preload(extents_on(arguments.node, arguments.table, arguments.preloaded))
    sampler = FlowSampler()
    agent.report(Listening(_listen(service, arguments.addresses, options, sampler)))
    phase = ""
    while True:
        order = await orders.next()
        if isinstance(order, Peers):
            await orders.unless_failed(_connect(service, order, arguments, sampler))
        elif isinstance(order, Rot):
            service.rot(order.chunk)
        elif isinstance(order, Play):
            phase = order.phase
            sampler.start()
        elif isinstance(order, Halt):
            flows = flow_rows(sampler.stop(), phase, ServiceLevel.STORAGE, agent.host)
            agent.report(Report(Records(flows=flows), service.report()))
            continue
        agent.report(Ready())


def _listen(
    service: StorageService, addresses: Mapping[int, str], options: SocketOptions, sampler: FlowSampler
) -> dict[int, tuple[str, int]]:
    found = {}
    for zone, address in addresses.items():
        sock = listen(address, 0, options)
        Listener(service.party(zone), sock, lambda link: sampler.track(link.data_socket, link.peer))
        found[zone] = (address, sock.getsockname()[1])
    return found


async def _connect(service: StorageService, peers: Peers, arguments: ServiceArguments, sampler: FlowSampler) -> None:
    for (zone, node), address in peers.addresses.items():
        if node != arguments.node and zone in arguments.addresses:
            source = arguments.addresses[zone]
            link = await dial(service.party(zone), node.name, address, source, CONNECT_TIMEOUT_S)
            service.add_successor(zone, node, link)
            sampler.track(link.data_socket, node.name)
