"""The cluster manager as a program with a NIC: it hears heartbeats, updates chains, and tells them to who asks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready
from traffic.storage import event_loop
from traffic.storage.chain_states import ChainState
from traffic.storage.chains import ChainTable
from traffic.storage.config import ClusterManagerConfig
from traffic.storage.control import Nodes, parse_version
from traffic.storage.history import chain_faults
from traffic.storage.manager import ClusterManager, Transition
from traffic.storage.messages import CallKind, Frame, ReplyStatus
from traffic.storage.orders import Orders
from traffic.storage.wire import LinkListener, Party, StorageConnection, Tasks
from traffic.transport.connection import Endpoint, Transport


@dataclass(frozen=True)
class ManagerArguments:
    """What the cluster manager is told when it is forked: its own addresses by zone, and the storage nodes."""

    node: NodeId
    addresses: Mapping[int, str]
    config: ClusterManagerConfig
    table: ChainTable
    nodes: tuple[NodeId, ...]
    transport: Transport


@dataclass(frozen=True)
class ManagerListening:
    """The cluster manager's word of where it listens, by zone."""

    addresses: Mapping[int, Endpoint]


@dataclass(frozen=True)
class TellHistory:
    """The order to tell how chains have changed."""


@dataclass(frozen=True)
class ManagerHistory:
    """How chains have changed since the start, the routing as it is, and how many heartbeats and questions came."""

    transitions: tuple[Transition, ...]
    table: ChainTable
    counts: Mapping[str, int]

    @property
    def faults(self) -> list[str]:
        """What is wrong with chains, or with how they changed; nothing, unless there is a bug."""
        by_chain: dict[int, list[ChainState]] = {}
        for one in self.transitions:
            by_chain.setdefault(one.chain.number, []).append(one.chain)
        return [fault for history in by_chain.values() for fault in chain_faults(history)]


class ManagerService:
    """Answers heartbeats and questions for the routing."""

    def __init__(self, manager: ClusterManager, nodes: Nodes) -> None:
        self.manager = manager
        self.counts: Counter[str] = Counter()
        self.playing = asyncio.Event()
        self._nodes = nodes

    def handle(self, link: StorageConnection, frame: Frame) -> None:
        """Answer a call."""
        if frame.kind is CallKind.HEARTBEAT:
            node, number, reports = self._nodes.parse_heartbeat(frame.meta)
            is_news = self.manager.heartbeat(node, number, reports, time.monotonic())
            self.counts["heartbeats" if is_news else "late_heartbeats"] += 1
            link.answer(frame, ReplyStatus.OK)
        elif frame.kind is CallKind.ROUTING:
            self.counts["routings"] += 1
            change = self.manager.since(parse_version(frame.meta))
            link.answer(frame, ReplyStatus.OK, self._nodes.pack_routing(change))
        else:
            link.answer(frame, ReplyStatus.WRONG_REQUEST)

    async def look_on(self, every_s: float) -> None:
        """Update chains in turns, for ever, while the job plays."""
        while True:
            await self.playing.wait()
            await asyncio.sleep(every_s)
            self.manager.look(time.monotonic())

    def begin_phase(self) -> None:
        """Go on, as if nothing had been between two phases: nobody was heard meanwhile."""
        self.manager.hear_all(time.monotonic())
        self.playing.set()

    @property
    def history(self) -> ManagerHistory:
        """What there is to tell."""
        return ManagerHistory(tuple(self.manager.history), self.manager.table, dict(self.counts))


def manager_service(config: ClusterManagerConfig, table: ChainTable, nodes: tuple[NodeId, ...]) -> ManagerService:
    """Return a cluster manager that begins now."""
    manager = ClusterManager(table, config.failed_after, config.checked_every, time.monotonic())
    return ManagerService(manager, Nodes(nodes))


def run_manager(agent: Agent, arguments: ManagerArguments) -> None:
    """Be the cluster manager until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: ManagerArguments) -> None:
    tasks = Tasks()
    service = manager_service(arguments.config, arguments.table, arguments.nodes)
    party = Party(agent.host, service.handle, arguments.transport, tasks, counts=service.counts)
    orders = Orders(agent, tasks, lambda change: None)
    found: dict[int, Endpoint] = {}
    for zone, address in arguments.addresses.items():
        listener = arguments.transport.listen(address)
        LinkListener(party, listener, lambda link: None)
        found[zone] = listener.endpoint
    agent.report(ManagerListening(found))
    tasks.spawn(service.look_on(arguments.config.chains_every))
    while True:
        order = await orders.next()
        if isinstance(order, Play):
            service.begin_phase()
            agent.report(Ready())
        elif isinstance(order, Halt):
            service.playing.clear()
            agent.report(Ready())
        elif isinstance(order, TellHistory):
            agent.report(service.history)
        else:
            raise TrafficError(f"the cluster manager on {agent.host} knows no order {order!r}")
