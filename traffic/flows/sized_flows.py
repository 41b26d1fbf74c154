"""Flows of given sizes, each on a connection of its own that is open beforehand, at given times or when told to.

A host has one program for all that it sends and one for all that it receives. A flow has ended at its sink when its
last byte is read there, and at its source when the sink's word of that, a byte, is back. What starts because another
flow has ended is told over pipes, which takes no time in virtual time.
"""

from __future__ import annotations

import contextlib
import queue
import select
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Nic
from fabric.model.rails import dealt_nics
from fabric.world.programs.agents import Agent, AgentHandle
from fabric.world.programs.guest_calls import orders_arrived_at
from traffic.job import Records, Stage
from traffic.program_group import ProgramGroup, close_all
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    ConnectionSample,
    DataPorts,
    Endpoint,
    Transport,
)

OPERATION = "flow"
START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 20.0
_LEAD_S = 0.001
"""How long orders take to reach all programs of a machine, at most; in virtual time that is no time."""
_LOOK_S = 1e5
"""How often it is looked for flows that are due, at least: a poll cannot be for more than 24 days."""
_NUMBER = struct.Struct("!I")
_BLOCK = memoryview(bytes(256 * 1024))
_READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class SizedFlow:
    """A flow. ``start_s``: from the start of the phase; None: when it is told to."""

    source: NodeId
    sink: NodeId
    size_bytes: int
    start_s: float | None


@dataclass(frozen=True)
class BeginPhase:
    """The order to begin a phase at a moment (``time.monotonic()``)."""

    at: float


@dataclass(frozen=True)
class SendFlow:
    """The order to send a flow now."""

    number: int


@dataclass(frozen=True)
class FlowSent:
    """A source's report that a flow has ended: when it began and when it ended (``time.monotonic()``), and what its
    connection says of it."""

    number: int
    began: float
    ended: float
    said: ConnectionSample | None = None


@dataclass(frozen=True)
class FlowArrived:
    """A sink's report that all of a flow has arrived."""

    number: int
    ended: float


@dataclass(frozen=True)
class FlowSinkArguments:
    """What :func:`run_sinks` needs to know: the sizes of the host's flows by their numbers, at each of its
    addresses."""

    transport: Transport
    sizes: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class FlowSourceArguments:
    """What :func:`run_sources` needs to know: each flow's addresses, size and start by its number."""

    transport: Transport
    flows: Mapping[int, tuple[str, Endpoint, int, float | None]]


def run_sinks(agent: Agent, arguments: FlowSinkArguments) -> None:
    """Receive all flows of a host until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    lock = threading.Lock()
    with contextlib.ExitStack() as stack:
        listeners = {}
        for address in arguments.sizes:
            listeners[address] = stack.enter_context(contextlib.closing(arguments.transport.listen(address)))
        agent.report({address: listener.endpoint for address, listener in listeners.items()})
        for address, sizes in arguments.sizes.items():
            for _ in sizes:
                connection = listeners[address].accept(START_TIMEOUT_S)
                threading.Thread(target=_receive, args=(agent, lock, connection, sizes), daemon=True).start()
    agent.receive()  # Nothing is ordered of it but its end.


def _receive(agent: Agent, lock: threading.Lock, connection: Connection, sizes: Mapping[int, int]) -> None:
    head, buffer = bytearray(_NUMBER.size), memoryview(bytearray(_READ_BYTES))
    try:
        connection.receive((head,))
        (number,) = _NUMBER.unpack(head)
        connection.wake_at(1)
        left = sizes[number]
        arrivals = select.poll()  # Not select(), which knows the first 1,024 descriptors only.
        arrivals.register(connection.poll_for_arrivals.descriptor, select.POLLIN)
        while left:
            arrivals.poll()
            left -= connection.receive_at_once(buffer[:left])
        ended = time.monotonic()
        connection.send((b"\0",))
    except ConnectionEndedError:
        return  # The source has gone, and says why itself.
    with lock:
        agent.report(FlowArrived(number, ended))


def run_sources(agent: Agent, arguments: FlowSourceArguments) -> None:
    """Send all flows of a host until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    lock, connections = threading.Lock(), dict[int, Connection]()
    for number, (address, endpoint, _, _) in arguments.flows.items():
        connections[number] = arguments.transport.connect(endpoint, CONNECT_TIMEOUT_S, address)
        connections[number].send((_NUMBER.pack(number),))
    agent.report({number: connection.data_ports for number, connection in connections.items()})

    def send(number: int, at: float) -> None:
        size = arguments.flows[number][2]
        threading.Thread(
            target=_send, args=(agent, lock, connections[number], FlowSent(number, at, 0.0), size), daemon=True
        ).start()

    while True:
        order: BeginPhase | SendFlow = agent.receive()
        if isinstance(order, SendFlow):
            send(order.number, time.monotonic())
            continue
        for number, (_, _, _, start_s) in arguments.flows.items():
            if start_s is not None:
                send(number, order.at + start_s)


def _send(agent: Agent, lock: threading.Lock, connection: Connection, flow: FlowSent, size: int) -> None:
    time.sleep(max(0.0, flow.began - time.monotonic()))
    began, sent = time.monotonic(), 0
    with contextlib.suppress(ConnectionEndedError):  # The sink has gone, and says why itself.
        while sent < size:
            sent += connection.send((_BLOCK[: size - sent],))
        connection.receive((bytearray(1),))
        with lock:
            agent.report(FlowSent(flow.number, began, time.monotonic(), connection.sample()))


Told = Callable[[int, bool], Sequence[int]]
"""Is told that a flow has ended, at its source if True, else at its sink; returns which flows start now."""


def nics_of_flows(fabric: Fabric, flows: Sequence[SizedFlow]) -> list[tuple[Nic, Nic]]:
    """Return the NICs between which each flow goes (:func:`fabric.model.rails.dealt_nics`). Raises TrafficError if
    none of two hosts reach each other."""
    for flow in flows:
        if fabric.nic_pair(flow.source, flow.sink) is None:
            raise TrafficError(f"{flow.source} and {flow.sink}: no NIC of one reaches one of the other; choose others")
    return dealt_nics(fabric, [(flow.source, flow.sink, flow.size_bytes) for flow in flows])


class SizedFlowsJob:
    """A :class:`traffic.job.FiniteJob` of flows, which plays one phase. ``patience_s``: how long a flow may take from
    its start to its end, at most. ``told`` says what starts when one has ended, by default nothing.

    ``nics``: those between which each flow goes; ``ports``: what ECMP tells its packets by, once it has started;
    ``endpoints``: where its sink listens.
    """

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[SizedFlow],
        patience_s: float,
        level: ServiceLevel,
        told: Told = lambda number, at_source: (),
    ) -> None:
        self.level = level
        self.name = level.label
        self.flows = tuple(flows)
        self.ports: dict[int, DataPorts] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.nics = nics_of_flows(stage.fabric, self.flows)
        self._stage = stage
        self._told = told
        self._patience_s = patience_s
        self._groups: tuple[ProgramGroup[NodeId], ProgramGroup[NodeId]] = (
            ProgramGroup(stage, "sinks of flows", survives=False),
            ProgramGroup(stage, "sources of flows", survives=False),
        )
        self._play = _Play()

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its programs, for failures."""
        return self._groups

    def start(self) -> None:
        """Fork all programs and connect all flows. Raises TrafficError naming a host that failed."""
        sinks, sources = self._groups
        transport = self._stage.make_transport(self._stage.socket_options(self.level))
        receiving = {}
        addresses = self._addresses()
        for host, numbers in self._by_host("sink").items():
            sizes: dict[str, dict[int, int]] = {}
            for number in numbers:
                sizes.setdefault(addresses[number][1], {})[number] = self.flows[number].size_bytes
            receiving[host] = ("sink of flows", host, FlowSinkArguments(transport, sizes))
        sinks.start_all(run_sinks, receiving)
        listening = sinks.collect("report that it listens", START_TIMEOUT_S)
        sending = {}
        for host, numbers in self._by_host("source").items():
            self.endpoints |= {n: listening[self.flows[n].sink][addresses[n][1]] for n in numbers}
            flows = {n: self._flow(n, addresses[n][0]) for n in numbers}
            sending[host] = ("source of flows", host, FlowSourceArguments(transport, flows))
        sources.start_all(run_sources, sending)
        for ports in sources.collect("connections", START_TIMEOUT_S).values():
            self.ports |= ports

    def _flow(self, number: int, source: str) -> tuple[str, Endpoint, int, float | None]:
        flow = self.flows[number]
        return source, self.endpoints[number], flow.size_bytes, flow.start_s

    def _by_host(self, end: str) -> dict[NodeId, list[int]]:
        found: dict[NodeId, list[int]] = {}
        for number, flow in enumerate(self.flows):
            found.setdefault(getattr(flow, end), []).append(number)
        return found

    def _addresses(self) -> list[tuple[str, str]]:
        """Return the addresses of each flow's ends."""
        at = self._stage.address_of
        return [(at(source.ip), at(sink.ip)) for source, sink in self.nics]

    def play(self, phase: str) -> None:
        """Begin; returns at once."""
        sinks, sources = self._groups
        begins = orders_arrived_at(_LEAD_S)
        sources.order(BeginPhase(begins))
        starts = {number: begins + flow.start_s for number, flow in enumerate(self.flows) if flow.start_s is not None}
        self._play = play = _Play(phase, self._patience_s, self.flows, starts)
        for end, group in (("sink", sinks), ("source", sources)):
            numbers = self._by_host(end)
            for host, handle in group.handles.items():
                play.watch(handle, numbers[host], self._end)

    def _end(self, report: FlowSent | FlowArrived) -> None:
        """Keep that a flow has ended, and start what that starts; called by one thread at a time."""
        self._play.keep(report)
        for number in self._told(report.number, isinstance(report, FlowSent)):
            self._play.starts[number] = time.monotonic()
            self._groups[1].order(SendFlow(number), [self.flows[number].source])

    def finish(self) -> None:
        """Return once all flows have ended. Raises TrafficError if one does not within its patience."""
        self._play.wait()

    def halt(self) -> Records:
        """Wait for the end of all flows and return a row of each, in their order. Raises TrafficError."""
        self.finish()
        play = self._play
        return Records(operations=[self._row(number, play) for number in range(len(self.flows))])

    def _row(self, number: int, play: _Play) -> dict[str, Any]:
        flow = self.flows[number]
        return {
            "phase": play.phase,
            "service_level": self.level.label,
            "operation": OPERATION,
            "host": flow.source.name,
            "peer": flow.sink.name,
            "size_bytes": flow.size_bytes,
            "started_s": play.sent[number].began,
            "ended_s": play.arrived[number].ended,
            "retries": 0,
        }

    @property
    def said(self) -> dict[str, float]:
        """What the connections of flows that have ended say of them, in all: packets sent again, negative
        acknowledgements, and timeouts, as far as their transport counts them."""
        said = [one.said for one in self._play.sent.values() if one.said is not None]
        names = ("retransmissions", "naks", "timeouts")
        return {name: float(sum(getattr(one, name) or 0 for one in said)) for name in names}

    def close(self) -> None:
        """End the programs."""
        close_all(self._stage, *self._groups[::-1])


_Tell = Callable[[FlowSent | FlowArrived], None]


class _Play:
    """A phase that is played: what has ended so far, by numbers, and what went wrong.

    ``starts``: when flows start, by number (``time.monotonic()``), as far as that is known: each has ``patience_s``
    from then. What starts when another one ends is added.
    """

    def __init__(
        self,
        phase: str = "",
        patience_s: float = 0.0,
        flows: Sequence[SizedFlow] = (),
        starts: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        self.phase = phase
        self.sent: dict[int, FlowSent] = {}
        self.arrived: dict[int, FlowArrived] = {}
        self.starts = dict(starts)
        self._flows = flows
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._watching = 0
        self._error: Exception | None = None
        self._ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def keep(self, report: FlowSent | FlowArrived) -> None:
        """Keep a report."""
        if isinstance(report, FlowSent):
            self.sent[report.number] = report
        else:
            self.arrived[report.number] = report

    def watch(self, handle: AgentHandle, numbers: Collection[int], tell: _Tell) -> None:
        """Tell of each report of a program, of which there will be one for each of these flows."""
        self._watching += 1
        threading.Thread(target=self._watch, args=(handle, set(numbers), tell), daemon=True).start()

    def _watch(self, handle: AgentHandle, left: set[int], tell: _Tell) -> None:
        try:
            while left:
                report = self._next_report(handle, left)
                left.discard(report.number)
                with self._lock:
                    tell(report)
            self._ended.put(None)
        except Exception as error:  # It is raised where somebody waits.
            self._ended.put(error)

    def _next_report(self, handle: AgentHandle, left: Collection[int]) -> FlowSent | FlowArrived:
        """Return a program's next report. Raises TrafficError for the first flow of those left that has not ended in
        its time; those that wait for the end of others have none yet, but those others do."""
        while not handle.pipe.poll(min(max(0.0, self._first_due(left) - time.monotonic()), _LOOK_S)):
            if time.monotonic() >= self._first_due(left):
                number = min(self.starts.keys() & left, key=self.starts.__getitem__)
                flow, name = self._flows[number], f"{handle.name} on {handle.host}"
                raise TrafficError(
                    f"{name}: no end of flow {number} ({flow.source} to {flow.sink}, {flow.size_bytes} bytes) within "
                    f"{self._patience_s:g} s of its start; let its patience be longer"
                )
        report: FlowSent | FlowArrived = handle.receive(0.0, "end of a flow")
        return report

    def _first_due(self, left: Collection[int]) -> float:
        """Return when the first of some flows has to have ended; of those whose start is not known, look again then."""
        known = [self.starts[number] for number in left if number in self.starts]
        return min(known, default=time.monotonic()) + self._patience_s

    def wait(self) -> None:
        """Wait for all. Raises TrafficError as soon as a flow has not ended in its time, or a program has failed."""
        while self._watching and self._error is None:
            self._error = self._ended.get()
            self._watching -= 1
        if self._error is not None:
            raise self._error
