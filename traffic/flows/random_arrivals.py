"""Single packets at random times: a Poisson process of UDP datagrams of one size, and when each was sent and came.

The source goes by nothing but its own clock (an open loop). Arrivals are stamped by the receiving kernel.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.programs.agents import Agent
from traffic.flows.arrival_clock import ArrivalClock, stamp_arrivals, stamped_packet
from traffic.job import Collect, Ready, Records, Stage
from traffic.program_group import ProgramGroup
from traffic.transport.connection import Endpoint

START_TIMEOUT_S = 60.0
REPORT_TIMEOUT_S = 600.0
DRAIN_S = 0.1
"""How long after the last packet was sent the sink looks for what has come."""
_SO_RCVBUFFORCE = 33
_NUMBER = struct.Struct("!I")
_BUFFER_BYTES = 2**28
"""Of the sink, which reads only when all was sent."""
_LEAD_NS = 1_000_000
Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Burst:
    """What a source sends: ``count`` packets, at gaps drawn from an exponential distribution."""

    count: int
    mean_gap_s: float
    seed: tuple[int, ...]


@dataclass(frozen=True)
class DatagramSinkArguments:
    """What :func:`run_sink` needs to know."""

    address: str


@dataclass(frozen=True)
class DatagramSourceArguments:
    """What :func:`run_source` needs to know; ``endpoint``: where the sink listens."""

    address: str
    endpoint: Endpoint
    tos: int
    payload_bytes: int


def run_sink(agent: Agent, arguments: DatagramSinkArguments) -> None:
    """Keep what comes until asked for it (a program of :mod:`fabric.world.programs.agents`)."""
    with contextlib.closing(_socket(arguments.address)) as sock:
        stamp_arrivals(sock)
        with contextlib.suppress(PermissionError):  # Without root, in tests on loopback, the default has to do.
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        agent.report(sock.getsockname()[:2])
        while True:
            agent.receive()
            agent.report(_arrivals(sock))


def _arrivals(sock: socket.socket) -> tuple[Times, Times]:
    """Return the numbers of the packets that have come, and when (``time.monotonic_ns()``), shape (n,) each."""
    clock, numbers, times_ns = ArrivalClock(), [], []
    with contextlib.suppress(BlockingIOError):
        while True:
            data, stamp_ns = stamped_packet(sock, _NUMBER.size, socket.MSG_DONTWAIT)
            numbers.append(_NUMBER.unpack(data)[0])
            times_ns.append(clock.arrived_ns(stamp_ns))
    return np.array(numbers, np.int64), np.array(times_ns, np.int64)


def run_source(agent: Agent, arguments: DatagramSourceArguments) -> None:
    """Send bursts as ordered, and report when each packet was sent (a program)."""
    inside.precise_timers()
    with contextlib.closing(_socket(arguments.address)) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, arguments.tos)
        agent.report(Ready())
        while True:
            agent.report(_sent(sock, arguments, agent.receive()))


def _sent(sock: socket.socket, arguments: DatagramSourceArguments, burst: Burst) -> Times:
    gaps_s = np.random.default_rng(burst.seed).exponential(burst.mean_gap_s, burst.count)
    due_ns = time.monotonic_ns() + _LEAD_NS + np.cumsum(gaps_s * 1e9).astype(np.int64)
    tail = bytes(arguments.payload_bytes - _NUMBER.size)
    sent_ns = np.empty(burst.count, np.int64)
    for number, due in enumerate(due_ns.tolist()):
        if (left_ns := due - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        sent_ns[number] = time.monotonic_ns()
        sock.sendto(_NUMBER.pack(number) + tail, arguments.endpoint)
    return sent_ns


def _socket(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    return sock


class RandomArrivalsJob:
    """A :class:`traffic.job.Job` that plays a burst, however long that takes. ``sent_ns`` and ``came_ns``: when each
    packet of the last phase that came was sent and when it came (``time.monotonic_ns()``), in the order of sending;
    shape (n,) each.

    ``burst`` may be changed between phases. ``address_of`` overrides the fabric's, for tests on one machine.
    """

    level = ServiceLevel.OTHER
    name = level.label

    def __init__(
        self,
        stage: Stage,
        source: NodeId,
        sink: NodeId,
        payload_bytes: int,
        address_of: Mapping[NodeId, str] | None = None,
    ) -> None:
        if payload_bytes < _NUMBER.size:
            raise TrafficError(f"payload: {payload_bytes} B holds no number; make it {_NUMBER.size} B or more")
        self.burst = Burst(0, 0.0, ())
        self.sent_ns: Times = np.empty(0, np.int64)
        self.came_ns: Times = np.empty(0, np.int64)
        nics = stage.fabric.nics_of
        self._addresses = address_of or {host: stage.address_of(nics[host][0].ip) for host in (source, sink)}
        self._source, self._sink, self._payload_bytes = source, sink, payload_bytes
        self._programs: ProgramGroup[str] = ProgramGroup(stage, "random arrivals", survives=False)

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[str]]:
        """Its programs, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork both programs. Raises TrafficError."""
        sink = DatagramSinkArguments(self._addresses[self._sink])
        self._programs.start("sink", "random-arrivals", self._sink, run_sink, sink)
        endpoint = self._programs.collect("address that it listens on", START_TIMEOUT_S, ["sink"])["sink"]
        source = DatagramSourceArguments(self._addresses[self._source], endpoint, self.level.tos, self._payload_bytes)
        self._programs.start("source", "random-arrivals", self._source, run_source, source)
        self._programs.await_ready("readiness", START_TIMEOUT_S, ["source"])

    def play(self, phase: str) -> None:
        """Do nothing: the burst is sent by :meth:`finish`."""

    def finish(self) -> None:
        """Send the burst, and keep when each packet was sent and came. Raises TrafficError."""
        self._programs.order(self.burst, ["source"])
        sent_ns: Times = self._programs.collect("times of sending", REPORT_TIMEOUT_S, ["source"])["source"]
        time.sleep(DRAIN_S)
        self._programs.order(Collect(), ["sink"])
        numbers, came_ns = self._programs.collect("times of arrival", REPORT_TIMEOUT_S, ["sink"])["sink"]
        order = np.argsort(numbers)
        self.sent_ns, self.came_ns = sent_ns[numbers[order]], came_ns[order]

    def halt(self) -> Records:
        """Return no rows: :meth:`finish` keeps the times."""
        return Records()

    def close(self) -> None:
        """End the programs."""
        self._programs.close()
