"""A cluster of storage in one process, with a clock that jumps: true timers, and networks that fall silent.

Services, clients and the cluster manager are those that run in hosts; their messages cross memory. Nothing takes time
but what waits: the loop moves the clock to the next timer once nothing else can happen.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import selectors
import time
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from unittest import mock

import pytest

from fabric.model.identity import NodeId, Role
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from tests.traffic.transport import memory_transport as memory
from traffic.storage.chains import ChainTable, ChunkId, Extent, place_chains
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.config import StorageConfig
from traffic.storage.history import MAYBE, Event, Held, Kind
from traffic.storage.managers.program import ManagerService, manager_service
from traffic.storage.member import follow_routing, manager_link
from traffic.storage.orders import BeginAnew, ManagerEnd, Peers
from traffic.storage.service.program import StorageService, join_cluster
from traffic.storage.wire.calls import LinkListener, Party, Tasks
from traffic.storage.wire.links import Links
from traffic.transport.connection import Endpoint, PollFor, SocketOptions, UnreachableError

T = TypeVar("T")
NODES = [NodeId(Role.STORAGE, None, index) for index in range(3)]
MANAGER = NodeId(Role.COMPUTE, 0, 99)
CHUNK_BYTES = 4096
MOST_S = 1e5


class Clock:
    """What all in the process take for ``time.monotonic()``."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class JumpingSelector(selectors.DefaultSelector):
    """Looks for events at once, and lets time pass if there are none."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        assert timeout is not None, "nothing will ever happen"
        self._clock.now_s += timeout
        assert self._clock.now_s < MOST_S, "it does not come to an end"
        return []


def run(scene: Coroutine[Any, Any, T]) -> T:
    """Return what a scene returns, in time that jumps."""
    clock, opened = Clock(), set[int]()
    eventfd, close = os.eventfd, os.close

    def noted(*words: int) -> int:
        opened.add(descriptor := eventfd(*words))
        return descriptor

    def closed(descriptor: int) -> None:
        opened.discard(descriptor)  # The number may be another's from now on.
        close(descriptor)

    with (
        mock.patch.object(time, "monotonic", clock),
        mock.patch.object(os, "eventfd", noted),
        mock.patch.object(os, "close", closed),
    ):
        loop = asyncio.SelectorEventLoop(JumpingSelector(clock))
        try:
            return loop.run_until_complete(scene)
        finally:
            loop.run_until_complete(asyncio.sleep(0))  # Tasks that have not begun have coroutines nobody awaited.
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            for descriptor in opened:  # Connections that a scene leaves open.
                with suppress(OSError):
                    close(descriptor)
            loop.close()


class Network:
    """Which hosts do not hear which: what is sent there is on its way until that is over, or the sender gives up."""

    def __init__(self) -> None:
        self.silent: set[tuple[str, str]] = set()
        self.frozen: set[str] = set()
        """Hosts whose programs stand still, while their kernels answer for them: no connection with them ends."""
        self.ways: list[_Way] = []
        self.all_ways: list[_Way] = []

    def cut(self, host: str, others: list[str], both_ways: bool = True) -> None:
        """Let others no longer hear a host, nor it them unless it is cut one way."""
        self.silent |= {(host, other) for other in others}
        if both_ways:
            self.silent |= {(other, host) for other in others}

    def is_heard(self, ends: tuple[str, str]) -> bool:
        """Return whether what the first sends reaches the second now."""
        return ends not in self.silent and self.frozen.isdisjoint(ends)

    def sent_bytes(self) -> dict[str, int]:
        """Return what was sent on connections of each Service Level, those that have ended included."""
        found: dict[str, int] = {}
        for way in self.all_ways:
            found[way.level.label] = found.get(way.level.label, 0) + way.sent_bytes
        return found

    def mend(self) -> None:
        """Let all hear each other, but for those that stand still; what was on its way arrives."""
        self.silent.clear()
        self._deliver()

    def thaw(self, host: str) -> None:
        """Let a host's programs go on."""
        self.frozen.discard(host)
        self._deliver()

    def end(self, host: str) -> None:
        """End all connections of a host whose programs have died."""
        for way in self.ways:
            if host in way.ends:
                way.end()

    def _deliver(self) -> None:
        self.ways = [way for way in self.ways if not way.has_ended]
        for way in self.ways:
            if self.is_heard(way.ends):
                way.deliver()


@dataclass
class _Way(memory._Way):
    """One direction of a connection between two hosts."""

    network: Network = field(default_factory=Network)
    ends: tuple[str, str] = ("", "")
    gives_up_s: float | None = None
    level: ServiceLevel = ServiceLevel.STORAGE
    held: deque[bytes] = field(default_factory=deque)
    other: _Way | None = None

    def put(self, message: bytes, wait_s: float | None) -> int:
        if (self.network.is_heard(self.ends) and not self.held) or self.has_ended:
            return super().put(message, wait_s)
        if not self.held and self.gives_up_s is not None and self.network.frozen.isdisjoint(self.ends):
            asyncio.get_running_loop().call_later(self.gives_up_s, self._give_up)
        self.held.append(message)
        return len(message)

    def deliver(self) -> None:
        held, self.held = self.held, deque()
        for message in held:
            if not self.has_ended:
                # There is room for all that was sent: it is the sender's business.
                self.room_bytes, room = 1 << 40, self.room_bytes
                super().put(message, 0)
                self.room_bytes = room

    def _give_up(self) -> None:
        """End the connection at this end, as TCP does of which nothing was acknowledged for so long."""
        if self.held:
            self.end()
            assert self.other is not None
            self.other.end()


class _NoAnswer:
    """A connection to who does not answer."""

    def __init__(self) -> None:
        self.poll_for_answer = PollFor(os.eventfd(0), select.POLLIN)

    def answered(self) -> memory.MemoryConnection:
        raise AssertionError("it is not answered")

    def close(self) -> None:
        os.close(self.poll_for_answer.descriptor)


@dataclass(frozen=True)
class HostTransport:
    """The network as one host sees it; addresses are the names of hosts."""

    network: Network
    host: str
    options: SocketOptions

    def listen(self, address: str, port: int = 0) -> memory.MemoryListener:
        return memory.MemoryListener((address, port or next(memory._ports)))

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> memory.MemoryConnection:
        raise AssertionError("storage dials")

    def dial(self, endpoint: Endpoint, source: str = "") -> Any:
        ends = (self.host, endpoint[0])
        if {ends, ends[::-1]} & self.network.silent:
            return _NoAnswer()
        if endpoint not in memory._listeners:
            raise UnreachableError(f"nobody listens at {endpoint}")
        there, back = (
            _Way(network=self.network, ends=one, gives_up_s=self.options.user_timeout_s) for one in (ends, ends[::-1])
        )
        there.other, back.other = back, there
        there.level = back.level = self.options.level
        self.network.ways += [there, back]
        self.network.all_ways += [there, back]
        here = (self.host, next(memory._ports))
        with memory._changed:
            memory._listeners[endpoint].come(memory.MemoryConnection(endpoint, here, back, there))
        return memory.MemoryDial(memory.MemoryConnection(here, endpoint, there, back))


class Cluster:
    """Services on ``NODES``, the cluster manager, and clients ``c0`` to ``c2``."""

    def __init__(self, config: StorageConfig) -> None:
        self.config = config
        self.network = Network()
        self.tasks = Tasks()
        self.table = place_chains(NODES, config.disks_per_node, config.chains_per_target, config.replicas)
        self.services: dict[NodeId, StorageService] = {}
        self.clients: dict[str, StorageClient] = {}
        self.events: list[Event] = []
        self.manager: ManagerService

    def _transport(self, host: str, level: ServiceLevel = ServiceLevel.STORAGE) -> HostTransport:
        return HostTransport(self.network, host, SocketOptions(level, user_timeout_s=self.config.client.call_timeout))

    async def start(self, clients: int = 1) -> None:
        """Begin."""
        assert self.config.cluster_manager is not None
        end = self._start_manager()
        addresses: dict[NodeId, Endpoint] = {}
        for node in NODES:
            transport = self._transport(node.name)
            service = StorageService(node, self.table, self.config, transport, self.tasks)
            listener = transport.listen(node.name)
            LinkListener(service.party(0), listener, lambda link: None)
            self.services[node], addresses[node] = service, listener.endpoint
        for node, service in self.services.items():
            links = Links(service.party(0), node.name)
            for other, endpoint in addresses.items():
                if other != node:
                    links.expect(other, endpoint)
            service.use_links(0, links)
            if (level := self.config.cluster_manager.resync.level) is not None:
                transport = self._transport(node.name, next(one for one in DATA_LEVELS if one.label == level))
                service.use_resync_links(
                    0, node.name, transport, Peers({(0, one): at for one, at in addresses.items()})
                )
            join_cluster(service, self._end_for(node.name, end), {0: node.name}, self.tasks)
            service.begin_phase()
        for number in range(clients):
            await self._start_client(number, addresses, end)

    def _start_manager(self) -> ManagerEnd:
        assert self.config.cluster_manager is not None
        skew_s = self.config.cluster_manager.clocks.get(MANAGER.name, 0.0)
        self.manager = manager_service(self.config.cluster_manager, self.table, tuple(NODES), skew_s=skew_s)
        transport = self._transport(MANAGER.name, ServiceLevel.CONTROL)
        listener = transport.listen(MANAGER.name)
        party = Party(MANAGER.name, self.manager.handle, transport, self.tasks, counts=self.manager.counts)
        LinkListener(party, listener, lambda link: None)
        self.manager.begin_phase()
        self.tasks.spawn(self.manager.look_on(self.config.cluster_manager.chains_every))
        has_clocks = self.config.cluster_manager.has_clocks
        return ManagerEnd(MANAGER, listener.endpoint, tuple(NODES), transport, has_clocks=has_clocks)

    def _end_for(self, host: str, end: ManagerEnd) -> ManagerEnd:
        assert self.config.cluster_manager is not None
        skew_s = self.config.cluster_manager.clocks.get(host, 0.0)
        return replace(end, transport=self._transport(host, ServiceLevel.CONTROL), skew_s=skew_s)

    async def _start_client(self, number: int, addresses: dict[NodeId, Endpoint], end: ManagerEnd) -> None:
        assert self.config.cluster_manager is not None
        name = f"c{number}"
        client = StorageClient(name, number, self.table, self.config, self.tasks, self._transport(name), seed=number)
        await client.connect(addresses, name)
        every_s = self.config.cluster_manager.polled_every
        link = manager_link(name, self._end_for(name, end), name, every_s, self.tasks, client.party.counts)
        playing = asyncio.Event()
        playing.set()
        self.tasks.spawn(follow_routing(link, every_s * (number + 1) / 4, every_s, client, playing))
        self.clients[name] = client

    # What clients do, as a history.

    async def with_data(self, chunks: int) -> Cluster:
        """Begin, and write so many chunks."""
        await self.start()
        for index in range(chunks):
            await self.write(index)
        return self

    async def write(self, index: int = 0, client: str = "c0") -> Event:
        """Write a chunk; a write that fails has no version."""
        self.require_sound()
        started_s, one = time.monotonic(), self.clients[client]
        extent = self.extent(index)
        try:
            done = await one.write_chunk(extent)
        except GaveUp as error:
            event = Event(Kind.WRITE, extent.chunk, error.request, None, started_s, MAYBE)
        else:
            event = Event(Kind.WRITE, extent.chunk, done.request, done.version, started_s, time.monotonic())
        self.events.append(event)
        self.require_sound()
        return event

    def require_sound(self) -> None:
        """Raise what has ended a program."""
        if self.tasks.failed.done():
            self.tasks.failed.result()

    async def read(self, index: int = 0, client: str = "c0", server: NodeId | None = None) -> Event | None:
        """Read a chunk; None if that fails."""
        started_s = time.monotonic()
        try:
            (found,) = await self.clients[client].read_chunks([self.extent(index)], server)
        except GaveUp:
            return None
        now = time.monotonic()
        event = Event(Kind.READ, found.extent.chunk, found.request, found.version, started_s, now)
        self.events.append(event)
        return event

    def extent(self, index: int) -> Extent:
        return Extent(ChunkId(0, index), index % len(self.table.chains), 0, CHUNK_BYTES)

    async def play_at_random(self, rng: random.Random, name: str, over: asyncio.Event) -> None:
        """Let a client write and read four chunks with pauses."""
        while not over.is_set():
            index = rng.randrange(4)
            if rng.random() < 0.4:
                await self.write(index, name)
            else:
                await self.read(index, name)
            await asyncio.sleep(rng.uniform(0, 20))

    async def cut_at_random(self, rng: random.Random, over: asyncio.Event) -> None:
        """Cut three hosts off, one after the other, from some or all, in one direction or both, for some time each."""
        for _ in range(3):
            await asyncio.sleep(rng.uniform(5, 60))
            self.cut_somebody(rng, rng.choice(self.everybody()))
            await asyncio.sleep(rng.choice([5, 40, 90, 150]))
            self.network.mend()
        over.set()

    def cut_somebody(self, rng: random.Random, host: str) -> None:
        """Cut a host off from some of the others, in one direction or both."""
        others = [one for one in self.everybody() if one != host and rng.random() < 0.7]
        self.network.cut(host, others, both_ways=rng.random() < 0.7)

    # What is so.

    @property
    def routing(self) -> ChainTable:
        return self.manager.manager.table

    def everybody(self) -> list[str]:
        return [*(node.name for node in NODES), MANAGER.name, *self.clients]

    def silence(self, node: NodeId, but: tuple[str, ...] = ()) -> None:
        """Cut a storage node off from all but some hosts."""
        self.network.cut(node.name, [one for one in self.everybody() if one not in (node.name, *but)])

    async def until_whole(self, patience_s: float = 1000) -> None:
        """Wait until all targets serve, and all services know it."""
        ends_s = time.monotonic() + patience_s
        while time.monotonic() < ends_s:
            await asyncio.sleep(1)
            self.require_sound()
            versions = {service.replica.table.version for service in self.services.values()}
            whole = all(len(chain.nodes) == self.config.replicas for chain in self.routing.chains)
            if whole and versions == {self.routing.version}:
                return
        shown = "; ".join(f"{chain} v{chain.version}" for chain in self.routing.chains)
        raise AssertionError(f"not whole after {patience_s} s: {shown}")

    def held(self, number: int) -> Held:
        """Return what the targets of a chain have."""
        chain = self.manager.manager.chains[number]
        by_target = {target: self.services[target.node].replica.states(number) for target, _ in chain.targets}
        return Held(chain, by_target)

    def count(self, name: str) -> int:
        """Return a count of all services together."""
        return sum(service.counts[name] for service in self.services.values())

    @property
    def counts(self) -> Counter[str]:
        """What services, clients and the manager have counted together."""
        found = Counter(self.manager.counts)
        for counts in (*(service.counts for service in self.services.values()), *self._client_counts()):
            found.update(counts)
        return found

    def _client_counts(self) -> list[Counter[str]]:
        return [client.party.counts for client in self.clients.values()]

    def restart(self, node: NodeId, with_empty_disks: bool = False) -> None:
        """Let a service start anew."""
        self.services[node].begin_anew(BeginAnew(with_empty_disks))

    async def until_left(self, node: NodeId, patience_s: float = 200) -> None:
        """Wait until no chain is written on a node."""
        ends_s = time.monotonic() + patience_s
        while any(node in chain.written for chain in self.routing.chains):
            assert time.monotonic() < ends_s, f"{node} is in a chain {patience_s} s later"
            await asyncio.sleep(0.5)
            self.require_sound()


@contextmanager
def no_listeners_left() -> Iterator[None]:
    """Forget who listens, at the end."""
    before = dict(memory._listeners)
    try:
        yield
    finally:
        memory._listeners.clear()
        memory._listeners.update(before)


@pytest.fixture(autouse=True)
def listeners() -> Iterator[None]:
    """Forget, behind each test, who listened in it."""
    with no_listeners_left():
        yield
