"""The cluster manager as a program with a NIC: it hears heartbeats, updates chains, and tells them to who asks.

One alone keeps the chains itself. Of several, the one that holds the lease does all this, and stores the chains; the
others say who that is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready
from traffic.storage.chain_states import ChainState
from traffic.storage.chains import ChainTable
from traffic.storage.config import ClusterManagerConfig
from traffic.storage.control import Nodes, pack_place, parse_version
from traffic.storage.history import chain_faults
from traffic.storage.kv.etcd import EtcdStore
from traffic.storage.kv.lease import Lease
from traffic.storage.kv.remote import RemoteStore
from traffic.storage.kv.store import Store
from traffic.storage.managers.chain_store import ChainStore, Logged
from traffic.storage.managers.config import HEARTBEAT_WINDOW_S
from traffic.storage.managers.manager import ClusterManager, Transition
from traffic.storage.managers.one_writer import Trusted
from traffic.storage.managers.primary import Primary
from traffic.storage.orders import Orders
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Party, StorageConnection, Tasks, listen_in_zones
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import CallKind, Frame, ReplyStatus
from traffic.transport.connection import Endpoint, Transport


@dataclass(frozen=True)
class KvEnd:
    """Where the store of keys and values is heard, and whether it is etcd."""

    node: NodeId
    endpoint: Endpoint
    is_etcd: bool = False


@dataclass(frozen=True)
class ManagerArguments:
    """What a cluster manager is told when it is forked: its own addresses by zone, and the storage nodes; of several,
    all of them in order, and where their store is."""

    node: NodeId
    addresses: Mapping[int, str]
    config: ClusterManagerConfig
    table: ChainTable
    nodes: tuple[NodeId, ...]
    transport: Transport
    managers: tuple[NodeId, ...] = ()
    kv: KvEnd | None = None


@dataclass(frozen=True)
class ManagerListening:
    """The cluster manager's word of where it listens, by zone."""

    addresses: Mapping[int, Endpoint]


@dataclass(frozen=True)
class TellHistory:
    """The order to tell how chains have changed."""


@dataclass(frozen=True)
class ManagerHistory:
    """How chains have changed since the start, the routing as it is, and how many heartbeats and questions came.

    Of several managers: ``log``, what their store has of who wrote; ``trusted``: when each that lives trusted its
    lease, by the clock of those that are right. ``is_whole``: whether no version of a chain is missing, as some are
    that a dead manager wrote to a dead store.
    """

    transitions: tuple[Transition, ...]
    table: ChainTable
    counts: Mapping[str, int]
    log: tuple[Logged, ...] = ()
    trusted: Mapping[str, tuple[Trusted, ...]] | None = None
    is_whole: bool = True

    @property
    def by_chain(self) -> dict[int, list[ChainState]]:
        """Each chain as it was, one state after the other."""
        found: dict[int, list[ChainState]] = {}
        for one in self.transitions:
            found.setdefault(one.chain.number, []).append(one.chain)
        return found

    @property
    def faults(self) -> list[str]:
        """What is wrong with chains, or with how they changed; nothing, unless there is a bug."""
        histories = self.by_chain.values()
        if not self.is_whole:
            return [fault for history in histories for state in history for fault in state.faults]
        return [fault for history in histories for fault in chain_faults(history)]


class PlayedClock:
    """Seconds that a job has played, by a clock that is ``skew_s`` ahead: between phases a cluster stands still, and no
    lease runs out."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self._skew_s = skew_s
        self._played_s = 0.0
        self._since_s: float | None = None

    def __call__(self) -> float:
        """Return what time it is."""
        running_s = 0.0 if self._since_s is None else time.monotonic() - self._since_s
        return self._skew_s + self._played_s + running_s

    def go_on(self) -> None:
        """Run, from now on."""
        if self._since_s is None:
            self._since_s = time.monotonic()

    def stand_still(self) -> None:
        """Run no longer."""
        if self._since_s is not None:
            self._played_s += time.monotonic() - self._since_s
            self._since_s = None


@dataclass(frozen=True)
class Seat:
    """The place of one of several managers: its number, the names of all, how it reaches their store."""

    number: int
    names: tuple[str, ...]
    store: Store

    @property
    def name(self) -> str:
        """Its own name."""
        return self.names[self.number]


class ManagerService:
    """Answers heartbeats and questions for the routing. ``clock``: what heartbeats and the lease go by; ``skew_s``: how
    far its clock is ahead. ``primary``: its part among several; None: it is alone."""

    def __init__(
        self,
        manager: ClusterManager,
        nodes: Nodes,
        clock: Callable[[], float],
        skew_s: float = 0.0,
        primary: Primary | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        self.manager = manager
        self.counts: Counter[str] = Counter()
        self.playing = asyncio.Event()
        self.primary = primary
        self.skew_s = skew_s
        self.clock = clock
        self._nodes = nodes
        self._names = names

    def handle(self, link: StorageConnection, frame: Frame) -> None:
        """Answer a call."""
        if frame.kind not in (CallKind.HEARTBEAT, CallKind.ROUTING):
            link.answer(frame, ReplyStatus.WRONG_REQUEST)
        elif self.primary is not None and not self.primary.may_answer(self.clock()):
            self.counts["not_primary"] += 1
            other = self.primary.other_primary(self.clock())
            link.answer(frame, ReplyStatus.NOT_PRIMARY, pack_place(self._names.index(other) if other else None))
        elif frame.kind is CallKind.HEARTBEAT:
            link.answer(frame, self._hear(frame))
        else:
            self.counts["routings"] += 1
            change = self.manager.since(parse_version(frame.meta))
            link.answer(frame, ReplyStatus.OK, self._nodes.pack_routing(change))

    def _hear(self, frame: Frame) -> ReplyStatus:
        node, number, reports = self._nodes.parse_heartbeat(frame.meta)
        sent_s = self._nodes.parse_clock(frame.meta)
        if sent_s is not None and abs(time.monotonic() + self.skew_s - sent_s) > HEARTBEAT_WINDOW_S:
            self.counts["skewed_heartbeats"] += 1
            return ReplyStatus.WRONG_REQUEST
        is_news = self.manager.heartbeat(node, number, reports, self.clock())
        self.counts["heartbeats" if is_news else "late_heartbeats"] += 1
        return ReplyStatus.OK

    async def look_on(self, every_s: float) -> None:
        """Update chains in turns, forever, while the job plays."""
        while True:
            await self.playing.wait()
            await asyncio.sleep(every_s)
            if self.primary is None:
                self.manager.look(self.clock())
            elif self.playing.is_set():
                await self.primary.look(self.clock())

    async def extend_on(self, every_s: float, place: float) -> None:
        """Take the lease or extend it, in turns, forever, while the job plays. ``place``: of its turns, from 0 to 1,
        so that not all managers ask at once."""
        assert self.primary is not None, "it is one of several"
        await self.playing.wait()
        await asyncio.sleep(every_s * place)
        while True:
            await self.playing.wait()
            await self.primary.extend(self.clock())
            await asyncio.sleep(every_s)

    def begin_phase(self) -> None:
        """Go on, as if nothing had been between two phases: nobody was heard meanwhile."""
        if isinstance(self.clock, PlayedClock):
            self.clock.go_on()
        self.manager.hear_all(self.clock())
        self.playing.set()

    def end_phase(self) -> None:
        """Stand still until the next phase."""
        self.playing.clear()
        if isinstance(self.clock, PlayedClock):
            self.clock.stand_still()

    @property
    def history(self) -> ManagerHistory:
        """What there is to tell."""
        table, counts = self.manager.table, dict(self.counts)
        if self.primary is None:
            return ManagerHistory(tuple(self.manager.history), table, counts)
        trusted = tuple(Trusted(one - self.skew_s, end - self.skew_s) for one, end in self.primary.trusted)
        own = {self.primary.name: trusted}
        return ManagerHistory(tuple(self.primary.transitions), table, counts, trusted=own, is_whole=False)


def first_lease(config: ClusterManagerConfig, name: str) -> Lease:
    """Return the lease that the first manager holds when a job begins."""
    assert config.managers is not None, "there are several"
    return Lease(name, 0.0, config.managers.lease.length)


def manager_service(
    config: ClusterManagerConfig,
    table: ChainTable,
    nodes: tuple[NodeId, ...],
    seat: Seat | None = None,
    skew_s: float = 0.0,
) -> ManagerService:
    """Return a cluster manager that begins now, alone or as one of several, by a clock that is ``skew_s`` ahead."""
    known = Nodes(nodes, config.has_clocks)
    if seat is None or config.managers is None:
        manager = ClusterManager(table, config.failed_after, config.checked_every, time.monotonic())
        return ManagerService(manager, known, lambda: time.monotonic(), skew_s)
    clock, lease = PlayedClock(skew_s), config.managers.lease
    manager = ClusterManager(table, config.failed_after, config.checked_every, clock())
    chains = ChainStore(seat.store, known, lease.not_trusted_below)
    times = lease.length, lease.not_trusted_below
    primary = Primary(seat.name, manager, seat.store, chains, config.managers.bootstrapping, times)
    if seat.number == 0:
        primary.begin_with(first_lease(config, seat.name))
    return ManagerService(manager, known, clock, skew_s, primary, seat.names)


def spawn_turns(service: ManagerService, config: ClusterManagerConfig, seat: Seat | None, tasks: Tasks) -> None:
    """Let a manager do what it does in turns."""
    tasks.spawn(service.look_on(config.chains_every))
    if seat is not None and config.managers is not None:
        place = seat.number / len(seat.names)
        tasks.spawn(service.extend_on(config.managers.lease.extended_every, place))


def run_manager(agent: Agent, arguments: ManagerArguments) -> None:
    """Be the cluster manager until the run stops it."""
    event_loop.run(_run(agent, arguments))


def _seat_of(arguments: ManagerArguments, tasks: Tasks) -> Seat | None:
    kv, config = arguments.kv, arguments.config.managers
    if kv is None or config is None:
        return None
    source, timeout_s = next(iter(arguments.addresses.values())), config.lease.extended_every / 2
    number, names = arguments.managers.index(arguments.node), tuple(node.name for node in arguments.managers)
    if kv.is_etcd:
        return Seat(number, names, EtcdStore(arguments.transport, kv.endpoint, source, timeout_s))
    links = Links(Party(arguments.node.name, _refuse, arguments.transport, tasks), source)
    links.expect(kv.node, kv.endpoint)
    return Seat(number, names, RemoteStore(links, kv.node, timeout_s))


def _refuse(link: StorageConnection, frame: Frame) -> None:
    link.answer(frame, ReplyStatus.WRONG_REQUEST)


async def _run(agent: Agent, arguments: ManagerArguments) -> None:
    tasks = Tasks()
    seat = _seat_of(arguments, tasks)
    skew_s = arguments.config.clocks.get(arguments.node.name, 0.0)
    service = manager_service(arguments.config, arguments.table, arguments.nodes, seat, skew_s)
    party = Party(agent.host, service.handle, arguments.transport, tasks, counts=service.counts)
    orders = Orders(agent, tasks, lambda change: None)
    agent.report(ManagerListening(listen_in_zones(party, arguments.addresses)))
    spawn_turns(service, arguments.config, seat, tasks)
    while True:
        order = await orders.next()
        if isinstance(order, Play):
            service.begin_phase()
            agent.report(Ready())
        elif isinstance(order, Halt):
            service.end_phase()
            agent.report(Ready())
        elif isinstance(order, TellHistory):
            agent.report(service.history)
        else:
            raise TrafficError(f"the cluster manager on {agent.host} knows no order {order!r}")
