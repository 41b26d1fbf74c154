"""Reads by request: a reader asks one server, or many at once, for some bytes of each, and waits for all of them.

Asked at once without a request-to-send, many servers answer at once: an incast, as a striped read makes one
("Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems", Phanishayee et al., FAST 2008).
Connections stay open over all reads. A reader has one read in progress; the next is due a period after the last was,
and starts as soon as that has ended if it took longer.
"""

from __future__ import annotations

import contextlib
import select
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, Stage, flow_rows
from traffic.program_group import ProgramGroup, close_all
from traffic.transport.connection import Connection, ConnectionEndedError, Endpoint, Listener, Transport
from traffic.transport.sampling import FlowSampler

START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
REPORT_TIMEOUT_S = READ_TIMEOUT_S + 10.0
_REQUEST = struct.Struct("!Q")
_BLOCK = memoryview(bytes(256 * 1024))
_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class FanIn:
    """Reads of one host: ``size_bytes`` of each server. ``operation`` is what rows of ``operations`` call them.

    ``period_s`` 0: a read begins as soon as the last has ended.
    """

    operation: str
    reader: NodeId
    servers: tuple[NodeId, ...]
    size_bytes: int
    period_s: float = 0.0

    @property
    def peer(self) -> str:
        """The server's name, or how many there are."""
        return self.servers[0].name if len(self.servers) == 1 else f"{len(self.servers)} servers"


@dataclass(frozen=True)
class ServerArguments:
    """What :func:`run_server` needs to know: ``readers`` are the names of those who connect, by address."""

    address: str
    host: str
    readers: Mapping[str, str]
    transport: Transport


@dataclass(frozen=True)
class ReaderArguments:
    """What :func:`run_reader` needs to know: ``endpoints`` are where its servers listen."""

    address: str
    fan_in: FanIn
    endpoints: tuple[Endpoint, ...]
    transport: Transport


@dataclass(frozen=True)
class Served:
    """What a server measured in a phase: samples of its connections, and how often they saw packets overtake others."""

    flows: list[dict[str, Any]]
    reorderings: int


def run_server(agent: Agent, arguments: ServerArguments) -> None:
    """Answer requests until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    with contextlib.closing(arguments.transport.listen(arguments.address)) as listener:
        agent.report(listener.endpoint)
        connections = [_accepted(listener, arguments) for _ in arguments.readers]
    sampler = FlowSampler()
    for connection, reader in connections:
        sampler.track(connection, reader)
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()
    agent.report(Ready())
    while True:
        play: Play = agent.receive()  # Without a timeout: the run decides when, and its end raises StopRequested.
        before = _reorderings(connections)
        sampler.start()
        agent.report(Ready())
        agent.receive()
        flows = flow_rows(sampler.stop(), play.phase, arguments.transport.options.level, arguments.host)
        agent.report(Served(flows, _reorderings(connections) - before))


def _accepted(listener: Listener, arguments: ServerArguments) -> tuple[Connection, str]:
    connection = listener.accept(START_TIMEOUT_S)
    return connection, arguments.readers[connection.peer[0]]


def _reorderings(connections: Sequence[tuple[Connection, str]]) -> int:
    """Return their sum, of a transport that does not count them 0."""
    return sum(connection.reorderings or 0 for connection, _ in connections)


def _answer(connection: Connection) -> None:
    """Send what each request asks for, until the reader closes."""
    request = bytearray(_REQUEST.size)
    with contextlib.suppress(ConnectionEndedError):
        while True:
            connection.receive((request,))
            (size,) = _REQUEST.unpack(request)
            for start in range(0, size, len(_BLOCK)):
                connection.send((_BLOCK[: size - start],))


def run_reader(agent: Agent, arguments: ReaderArguments) -> None:
    """Read in phases until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    connections = [
        arguments.transport.connect(endpoint, CONNECT_TIMEOUT_S, arguments.address) for endpoint in arguments.endpoints
    ]
    agent.report(Ready())
    fan_in = arguments.fan_in
    while True:
        play: Play = agent.receive()
        agent.report(Ready())
        rows: list[dict[str, Any]] = []
        due = time.monotonic()
        while not agent.pipe.poll(max(0.0, due - time.monotonic())):
            started = time.monotonic()
            read(connections, fan_in.size_bytes, READ_TIMEOUT_S)
            rows.append(_row(arguments, play.phase, started, time.monotonic()))
            due = max(due + fan_in.period_s, time.monotonic())
        agent.receive()
        agent.report(Records(operations=rows))


def read(connections: Sequence[Connection], size_bytes: int, timeout_s: float) -> None:
    """Ask every server for ``size_bytes`` and take them in. Raises TrafficError if they do not come in time."""
    deadline = time.monotonic() + timeout_s
    buffer = memoryview(bytearray(_READ_BYTES))
    by_descriptor = {connection.poll_for_arrivals.descriptor: connection for connection in connections}
    left = dict.fromkeys(by_descriptor, size_bytes)
    for connection in connections:
        connection.send((_REQUEST.pack(size_bytes),))
    while left:
        readable, _, _ = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            words = f"a read of {size_bytes} B of {len(connections)} servers"
            raise TrafficError(f"{words} did not end within {timeout_s:g} s")
        for one in readable:
            try:
                left[one] -= by_descriptor[one].receive_at_once(buffer[: left[one]])
            except ConnectionEndedError as error:
                words = f"a server closed with {left[one]} B of a read of {size_bytes} B missing"
                raise TrafficError(words) from error
            if not left[one]:
                del left[one]


def _row(arguments: ReaderArguments, phase: str, started: float, ended: float) -> dict[str, Any]:
    fan_in = arguments.fan_in
    return {
        "phase": phase,
        "service_level": arguments.transport.options.level.label,
        "operation": fan_in.operation,
        "host": fan_in.reader.name,
        "peer": fan_in.peer,
        "size_bytes": fan_in.size_bytes * len(fan_in.servers),
        "started_s": started,
        "ended_s": ended,
        "retries": 0,
    }


_Server = tuple[int, NodeId]
"""A server of the reads with this number; one host may serve several."""


class FanInJob:
    """A :class:`traffic.job.Job` of readers, each with its servers, in the zone of the reader.

    ``reorderings`` is how often packets were seen to overtake others in the last phase, over all connections.
    """

    def __init__(self, stage: Stage, fan_ins: Sequence[FanIn], level: ServiceLevel) -> None:
        self.level = level
        self.name = level.label
        self.fan_ins = tuple(fan_ins)
        self.reorderings = 0
        self._stage = stage
        self._servers: ProgramGroup[_Server] = ProgramGroup(stage, "reads", survives=False)
        self._readers: ProgramGroup[int] = ProgramGroup(stage, "reads", survives=False)

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[Any]]:
        """Its programs, for failures."""
        return (self._servers, self._readers)

    def start(self) -> None:
        """Fork all programs and connect them. Raises TrafficError naming a host that failed."""
        for number, fan_in in enumerate(self.fan_ins):
            servers = {(number, server): self._server(server, fan_in) for server in fan_in.servers}
            self._servers.start_all(run_server, servers)
            endpoints = self._servers.collect("report that it listens", START_TIMEOUT_S, servers)
            self._start_reader(number, fan_in, tuple(endpoints.values()))
        self._collect(START_TIMEOUT_S, "readiness")

    def _addresses(self, fan_in: FanIn) -> Callable[[NodeId], str]:
        """Return how the address of the reader and of each server is found, in the zone of the reader's first NIC."""
        fabric = self._stage.fabric
        zone = fabric.nics_of[fan_in.reader][0].zone
        for server in fan_in.servers:
            if fabric.nic_in_zone(server, zone) is None:
                where = f"in zone {zone}, where {fan_in.reader} reads"
                raise TrafficError(f"{server}: has no NIC {where}; choose another server")
        return self._stage.addresses_on((fan_in.reader, *fan_in.servers), zone)

    def _server(self, server: NodeId, fan_in: FanIn) -> tuple[str, NodeId, ServerArguments]:
        address_of = self._addresses(fan_in)
        readers = {address_of(fan_in.reader): fan_in.reader.name}
        arguments = ServerArguments(address_of(server), server.name, readers, self._stage.transport(self.level))
        return f"server of {fan_in.operation}", server, arguments

    def _start_reader(self, number: int, fan_in: FanIn, endpoints: tuple[Endpoint, ...]) -> None:
        address = self._addresses(fan_in)(fan_in.reader)
        arguments = ReaderArguments(address, fan_in, endpoints, self._stage.transport(self.level))
        self._readers.start(number, f"reader of {fan_in.operation}", fan_in.reader, run_reader, arguments)

    def play(self, phase: str) -> None:
        """Begin to read; returns once every reader has."""
        if not self._readers.handles:
            raise TrafficError("reads: have not started; call start() before play()")
        self._servers.order(Play(phase))
        self._readers.order(Play(phase))
        self._collect(REPORT_TIMEOUT_S, "begin of reads")

    def halt(self) -> Records:
        """Begin no more reads, let those under way end, and return a row of each. Raises TrafficError if one failed."""
        records = Records()
        self._readers.order(Halt())
        for rows in self._readers.collect("rows of reads", REPORT_TIMEOUT_S).values():
            records.extend(rows)
        self._servers.order(Halt())
        served: list[Served] = list(self._servers.collect("count of what was served", REPORT_TIMEOUT_S).values())
        records.add("flows", [row for one in served for row in one.flows])
        self.reorderings = sum(one.reorderings for one in served)
        return records

    def _collect(self, timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        self._servers.collect(what, timeout_s)
        self._readers.collect(what, max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the programs."""
        close_all(self._stage, self._readers, self._servers)
