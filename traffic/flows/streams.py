"""Long-running senders: TCP connections that never run dry, and the bytes of each that arrive in a period.

Each stream has a program at either end. In a phase, the source connects at a moment drawn at random, sends without a
pause until the phase's end and closes; the sink reads all that comes, and counts what arrives in the measured part of
the phase. A stream that starves in it has arrived at the rate of what came, over all of that time.
"""

from __future__ import annotations

import contextlib
import math
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from fabric.world.programs.guest_calls import orders_arrived_at
from traffic.job import Ready, Records, Stage, flow_rows
from traffic.program_group import ProgramGroup, close_all
from traffic.transport.connection import Connection, ConnectionEndedError, Endpoint, Transport
from traffic.transport.sampling import FlowSampler

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd

OPERATION = "stream"
"""What rows of the ``operations`` table call them."""
START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
DRAIN_TIMEOUT_S = 60.0
LEAD_S = 0.001
"""How long after a phase streams begin: orders take no longer to reach all programs of a machine."""
_BLOCK = bytes(256 * 1024)
_READ_BYTES = 256 * 1024
_LEAST_READ_BYTES = 32 * 1024
_FLOW_SAMPLES = 50


def goodput_bps(operations: pd.DataFrame, source: NodeId) -> float:
    """Return what arrived of a host's stream per second, by the ``operations`` of a phase, in bit/s; NaN if nothing."""
    rows = operations[(operations["operation"] == OPERATION) & (operations["host"].astype(str) == source.name)]
    if rows.empty:
        return math.nan
    row = rows.iloc[-1]
    return float(row["size_bytes"]) * 8 / float(row["ended_s"] - row["started_s"])


@dataclass(frozen=True)
class Stream:
    """A connection that never runs dry."""

    source: NodeId
    sink: NodeId
    level: ServiceLevel


@dataclass(frozen=True)
class Timetable:
    """When a phase is measured, and how far apart its streams begin, in seconds: they start within ``spread_s``."""

    warm_up_s: float
    measured_s: float
    spread_s: float

    @property
    def duration_s(self) -> float:
        """All of a phase."""
        return self.warm_up_s + self.measured_s


@dataclass(frozen=True)
class StreamWindow:
    """The order to play a phase: when to begin, and the part that is measured (``time.monotonic()``)."""

    phase: str
    starts: float
    measured_from: float
    ends: float


@dataclass(frozen=True)
class StreamSinkArguments:
    """What :func:`run_sink` needs to know."""

    address: str
    transport: Transport


@dataclass(frozen=True)
class StreamSourceArguments:
    """What :func:`run_source` needs to know: ``peer`` is the sink's name, ``endpoint`` where it listens."""

    address: str
    host: str
    peer: str
    endpoint: Endpoint
    transport: Transport


@dataclass(frozen=True)
class Received:
    """What arrived at a sink in a stretch of time: bytes, and from when to when (``time.monotonic()``)."""

    size_bytes: int
    started_s: float
    ended_s: float


def run_sink(agent: Agent, arguments: StreamSinkArguments) -> None:
    """Be the sink of one stream until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    with contextlib.closing(arguments.transport.listen(arguments.address)) as listener:
        agent.report(listener.endpoint)
        while True:
            window: StreamWindow = agent.receive()
            timeout_s = window.starts - time.monotonic() + CONNECT_TIMEOUT_S
            with contextlib.closing(listener.accept(timeout_s)) as connection:
                connection.wake_at(_LEAST_READ_BYTES)
                agent.report(_read_on(connection, window))


def _read_on(connection: Connection, window: StreamWindow) -> Received:
    """Read to the stream's end. Raises TrafficError if that comes before the end of the measured part."""
    buffer = bytearray(_READ_BYTES)
    _read_until(window.measured_from, connection, buffer)
    before_bytes, started_s = connection.received_bytes, time.monotonic()
    _read_until(window.ends, connection, buffer)
    after_bytes, ended_s = connection.received_bytes, time.monotonic()
    with contextlib.suppress(ConnectionEndedError):
        while True:  # The run's own patience ends it if the rest does not come.
            select.select([connection.poll_for_arrivals.descriptor], [], [])
            connection.receive_at_once(buffer)
    return Received(after_bytes - before_bytes, started_s, ended_s)


def _read_until(moment: float, connection: Connection, buffer: bytearray) -> None:
    """Read until a moment (``time.monotonic()``). Raises TrafficError if the stream ends before."""
    while (left_s := moment - time.monotonic()) > 0:
        # Not poll(), whose whole milliseconds are longer than phases at true rates.
        if not select.select([connection.poll_for_arrivals.descriptor], [], [], left_s)[0]:
            continue
        try:
            connection.receive_at_once(buffer)
        except ConnectionEndedError as error:
            if time.monotonic() < moment:
                raise TrafficError("a stream ended before the measured part of its phase did") from error
            return


def run_source(agent: Agent, arguments: StreamSourceArguments) -> None:
    """Be the source of one stream until the run says stop (a program of :mod:`fabric.world.programs.agents`)."""
    agent.report(Ready())
    while True:
        window: StreamWindow = agent.receive()
        time.sleep(max(0.0, window.starts - time.monotonic()))
        sampler = FlowSampler((window.ends - window.starts) / _FLOW_SAMPLES)
        with contextlib.closing(
            arguments.transport.connect(arguments.endpoint, CONNECT_TIMEOUT_S, arguments.address)
        ) as connection:
            sampler.track(connection, arguments.peer)
            sampler.start()
            while time.monotonic() < window.ends:
                connection.send((_BLOCK,))
            samples = sampler.stop()
        agent.report(flow_rows(samples, window.phase, arguments.transport.options.level, arguments.host))


class StreamsJob:
    """A :class:`traffic.job.Job` of streams. ``timetable`` is of each phase."""

    def __init__(self, stage: Stage, streams: Sequence[Stream], timetable: Timetable) -> None:
        self.level = streams[0].level
        self.name = self.level.label
        self.streams = tuple(streams)
        self._stage = stage
        self._timetable = timetable
        self._random = np.random.default_rng([stage.seed, len(streams)])
        self._sinks: ProgramGroup[int] = ProgramGroup(stage, "streams", survives=False)
        self._sources: ProgramGroup[int] = ProgramGroup(stage, "streams", survives=False)
        self._phase = ""

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """Its programs, for failures."""
        return (self._sinks, self._sources)

    def start(self) -> None:
        """Fork all programs. Raises TrafficError naming a host that failed."""
        sinks = {number: self._sink(stream) for number, stream in enumerate(self.streams)}
        self._sinks.start_all(run_sink, sinks)
        listening = self._sinks.collect("report that it listens", START_TIMEOUT_S)
        sources = {number: self._source(self.streams[number], endpoint) for number, endpoint in listening.items()}
        self._sources.start_all(run_source, sources)
        self._sources.collect("readiness", START_TIMEOUT_S)

    def _address(self, node: NodeId, peer: NodeId) -> str:
        pair = self._stage.fabric.nic_pair(node, peer)
        if pair is None:
            raise TrafficError(f"{node} and {peer}: no NIC of one reaches one of the other; choose others")
        return self._stage.addresses_on((node, peer), pair[0].zone)(node)

    def _sink(self, stream: Stream) -> tuple[str, NodeId, StreamSinkArguments]:
        arguments = StreamSinkArguments(self._address(stream.sink, stream.source), self._stage.transport(stream.level))
        return "sink of a stream", stream.sink, arguments

    def _source(self, stream: Stream, endpoint: Endpoint) -> tuple[str, NodeId, StreamSourceArguments]:
        arguments = StreamSourceArguments(
            address=self._address(stream.source, stream.sink),
            host=stream.source.name,
            peer=stream.sink.name,
            endpoint=endpoint,
            transport=self._stage.transport(stream.level),
        )
        return "source of a stream", stream.source, arguments

    def play(self, phase: str) -> None:
        """Begin all streams; returns at once."""
        self._phase = phase
        begins = orders_arrived_at(LEAD_S)
        measured_from = begins + self._timetable.warm_up_s
        for number in range(len(self.streams)):
            starts = begins + float(self._random.uniform(0, self._timetable.spread_s))
            window = StreamWindow(phase, starts, measured_from, begins + self._timetable.duration_s)
            self._sinks.order(window, [number])
            self._sources.order(window, [number])

    def halt(self) -> Records:
        """Wait for the streams' end and return a row of each. Raises TrafficError if a program failed."""
        records = Records()
        deadline = time.monotonic() + self._timetable.duration_s + DRAIN_TIMEOUT_S
        for rows in self._sources.collect("end of a stream", deadline - time.monotonic()).values():
            records.add("flows", rows)
        left_s = max(0.0, deadline - time.monotonic())
        received = self._sinks.collect("count of what came of a stream", left_s)
        records.add("operations", [self._row(self.streams[number], one) for number, one in received.items()])
        return records

    def _row(self, stream: Stream, received: Received) -> dict[str, Any]:
        return {
            "phase": self._phase,
            "service_level": stream.level.label,
            "operation": OPERATION,
            "host": stream.source.name,
            "peer": stream.sink.name,
            "size_bytes": received.size_bytes,
            "started_s": received.started_s,
            "ended_s": received.ended_s,
            "retries": 0,
        }

    def close(self) -> None:
        """End the programs."""
        close_all(self._stage, self._sources, self._sinks)
