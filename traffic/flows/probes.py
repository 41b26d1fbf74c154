"""Blackouts of flows: small UDP packets at a steady pace between chosen hosts, and which of them never arrived.

Each probe has its flow's number, its own and the time it was sent; arrivals are stamped by the receiving kernel. A
*blackout* is a stretch of probes that were lost, from when the last before them arrived to when the first after them
did; less one period that is how long the flow was without a network. Probes go in the lane that data cannot starve
(Service Level "control") unless told otherwise, so losses are caused by the network, not by a full queue.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fabric.config import Strict, TimeS
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Nic
from fabric.world import inside
from fabric.world.kernel_api.timeval import timeval
from fabric.world.programs.agents import Agent
from traffic.flows.arrival_clock import ArrivalClock, stamp_arrivals, stamped_packet
from traffic.job import Collect, Halt, Listening, Play, Ready, Records, Stage
from traffic.program_group import ProgramGroup
from traffic.transport.connection import Endpoint

START_TIMEOUT_S = 60.0
REPORT_TIMEOUT_S = 30.0
DRAIN_S = 0.3
"""How long receivers listen after the last probe was sent."""
_PROBE = struct.Struct("!IIQ")
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_SO_RCVBUFFORCE = 33
_LISTEN_S = 0.1
_SIZE_BYTES = 64


class ProbeConfig(Strict):
    """How often each flow sends a probe."""

    period: Annotated[TimeS, Field(gt=0)] = Field(
        default=1e-3,
        description="Time between two probes of a flow, which is the resolution of its blackouts. Shorter adds load.",
    )


@dataclass(frozen=True, order=True)
class ProbeFlow:
    """Probes from one host to another."""

    source: NodeId
    destination: NodeId

    def __str__(self) -> str:
        return f"{self.source}>{self.destination}"


@dataclass(frozen=True)
class Blackout:
    """Consecutive probes that were lost; times are ``time.monotonic()``."""

    began_s: float
    ended_s: float
    lost_packets: int

    @property
    def seconds(self) -> float:
        """From the last arrival before to the first after: up to one period longer than the network was away."""
        return self.ended_s - self.began_s


@dataclass(frozen=True)
class ProbeArrivals:
    """What a sink got of one flow, in order of arrival: numbers and times (``time.monotonic()``), shape (n,)."""

    numbers: npt.NDArray[np.int64]
    at_s: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Heard:
    """What a sink got in a phase, by the number of the flow, and what the machine's clock was set by meanwhile."""

    arrivals: Mapping[int, ProbeArrivals]
    clock_steps_s: tuple[float, ...]


@dataclass(frozen=True)
class FlowReport:
    """What became of a flow's probes. ``longest_gap_s``: between two arrivals, whatever the reason."""

    sent: int
    lost: int
    reordered: int
    duplicated: int
    longest_gap_s: float
    blackouts: tuple[Blackout, ...]


def report_of(arrivals: ProbeArrivals, sent: int, began_s: float, ended_s: float) -> FlowReport:
    """Return what became of the probes 0 to ``sent - 1`` of a flow that sent from ``began_s`` to ``ended_s``.

    Probes lost before the first arrival or after the last count from ``began_s`` or up to ``ended_s``.
    """
    numbers, first = np.unique(arrivals.numbers, return_index=True)
    came_at = arrivals.at_s[first]
    highest_before = np.maximum.accumulate(arrivals.numbers[np.sort(first)])
    reordered = int(np.count_nonzero(arrivals.numbers[np.sort(first)] < highest_before))
    gaps = np.diff(np.concatenate([[began_s], np.sort(arrivals.at_s), [max(ended_s, began_s)]]))
    return FlowReport(
        sent=sent,
        lost=sent - numbers.size,
        reordered=reordered,
        duplicated=arrivals.numbers.size - numbers.size,
        longest_gap_s=float(gaps.max()),
        blackouts=tuple(_blackouts(numbers, came_at, sent, began_s, ended_s)),
    )


def _blackouts(
    numbers: npt.NDArray[np.int64], came_at: npt.NDArray[np.float64], sent: int, began_s: float, ended_s: float
) -> Iterator[Blackout]:
    around = np.concatenate([[-1], numbers, [sent]])
    times = np.concatenate([[began_s], came_at, [ended_s]])
    for place in np.flatnonzero(np.diff(around) > 1):
        began = float(times[place])
        # Where the way back is shorter than the way before, what was sent later may arrive sooner: no time without.
        ended = max(began, float(times[place + 1]))
        yield Blackout(began, ended, int(around[place + 1] - around[place] - 1))


# The program in a host -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeHostArguments:
    """What :func:`run_host` needs to know: its address, and the number of each flow that it sends by destination."""

    address: str
    sends: Mapping[int, str]
    tos: int
    period_s: float


@dataclass(frozen=True)
class ProbesSent:
    """A host's word that it sends no more: probes a flow, when the first was sent and when the next would have been."""

    count: int
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class SendProbes:
    """The order to begin to send, given once every sink listens."""


def run_host(agent: Agent, arguments: ProbeHostArguments) -> None:
    """Send and receive one host's probes until told to stop (a program of :mod:`fabric.world.programs.agents`)."""
    inside.precise_timers()
    with contextlib.closing(_probe_socket(arguments)) as sock:
        agent.report(Listening(sock.getsockname()[:2]))
        endpoints: Mapping[str, Endpoint] = agent.receive(START_TIMEOUT_S)
        sender, sink = _Sender(sock, arguments, endpoints), _Sink(sock)
        agent.report(Ready())
        while True:
            order = agent.receive()
            if isinstance(order, Play):
                sink.begin()
                agent.report(Ready())
            elif isinstance(order, SendProbes):
                sender.begin()
                agent.report(Ready())
            elif isinstance(order, Halt):
                agent.report(sender.end())
            elif isinstance(order, Collect):
                agent.report(sink.end())


def _probe_socket(arguments: ProbeHostArguments) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, arguments.tos)
    stamp_arrivals(sock)
    with contextlib.suppress(PermissionError):  # Without root, in tests on loopback, the default has to do.
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    sock.bind((arguments.address, 0))
    return sock


class _Sender:
    """Sends a probe of every flow each period, by the absolute clock, from a thread of its own."""

    def __init__(self, sock: socket.socket, arguments: ProbeHostArguments, endpoints: Mapping[str, Endpoint]) -> None:
        self._sock = sock
        self._period_s = arguments.period_s
        self._flows = [(number, endpoints[host]) for number, host in arguments.sends.items()]
        self._halting = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent = ProbesSent(0, 0.0, 0.0)

    def begin(self) -> None:
        """Begin to send."""
        self._halting.clear()
        self._thread = threading.Thread(target=self._send_on, daemon=True)
        self._thread.start()

    def end(self) -> ProbesSent:
        """Send no more."""
        self._halting.set()
        if self._thread is not None:
            self._thread.join(REPORT_TIMEOUT_S)
        return self._sent

    def _send_on(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            if self._halting.is_set() or not self._flows:
                self._sent = ProbesSent(number, began, began + number * self._period_s)
                return
            tail = bytes(_SIZE_BYTES - _PROBE.size)
            for flow, endpoint in self._flows:
                probe = _PROBE.pack(flow, number, time.monotonic_ns()) + tail
                with contextlib.suppress(OSError):  # A full queue has dropped it, and it counts as lost.
                    self._sock.sendto(probe, endpoint)
            time.sleep(max(0.0, began + (number + 1) * self._period_s - time.monotonic()))


class _Sink:
    """Notes what arrives, with the kernel's time, from a thread of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(_LISTEN_S))
        self._halting = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock = ArrivalClock()
        self._found: dict[int, tuple[array[int], array[int]]] = {}

    def begin(self) -> None:
        """Begin to listen; what is still there of earlier is thrown away."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._sock.recv(_SIZE_BYTES, socket.MSG_DONTWAIT)
        self._found = {}
        self._clock = ArrivalClock()
        self._halting.clear()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def end(self) -> Heard:
        """Listen no more and return what arrived of each flow."""
        self._halting.set()
        if self._thread is not None:
            self._thread.join(REPORT_TIMEOUT_S)
        arrivals = {
            flow: ProbeArrivals(np.array(numbers, np.int64), np.array(times_ns, np.int64) / 1e9)
            for flow, (numbers, times_ns) in self._found.items()
        }
        return Heard(arrivals, tuple(self._clock.steps_s))

    def _listen(self) -> None:
        while not self._halting.is_set():
            with contextlib.suppress(BlockingIOError):  # Nothing came for a while; see whether it is over.
                self._note(0)
        with contextlib.suppress(BlockingIOError):
            while True:  # What has come by then counts, however late this thread is.
                self._note(socket.MSG_DONTWAIT)

    def _note(self, flags: int) -> None:
        """Note the next probe that has come. Raises BlockingIOError if there is none."""
        probe, stamp_ns = stamped_packet(self._sock, _SIZE_BYTES, flags)
        flow, number, _ = _PROBE.unpack_from(probe)
        numbers, times_ns = self._found.setdefault(flow, (array("q"), array("q")))
        numbers.append(number)
        times_ns.append(self._clock.arrived_ns(stamp_ns))


# The job -------------------------------------------------------------------------------------------------------------


class ProbeJob:
    """A :class:`traffic.job.Job` of probe flows. ``reports`` has what became of each in the last phase.

    ``clock_steps_s`` is what the machine's clock was set by in it, as each host saw: no time of arrival depends on it.

    ``address_of`` overrides the fabric's addresses, for tests on one machine.
    """

    def __init__(
        self,
        stage: Stage,
        config: ProbeConfig,
        flows: Sequence[ProbeFlow],
        level: ServiceLevel = ServiceLevel.CONTROL,
        address_of: Mapping[NodeId, str] | None = None,
    ) -> None:
        if not flows:
            raise TrafficError("probes: no flows; name at least one pair of hosts")
        self.level = level
        self.name = level.label
        self.flows = tuple(flows)
        self.reports: dict[ProbeFlow, FlowReport] = {}
        self.clock_steps_s: dict[NodeId, tuple[float, ...]] = {}
        self._stage = stage
        self._config = config
        self._addresses = address_of or _addresses(stage, flows)
        self._programs: ProgramGroup[NodeId] = ProgramGroup(stage, "probes", survives=False)
        self._phase = ""

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its programs, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork a program into each host that sends or receives. Raises TrafficError."""
        hosts = sorted({node for flow in self.flows for node in (flow.source, flow.destination)})
        self._programs.start_all(run_host, {host: ("probes", host, self._arguments(host)) for host in hosts})
        listening = self._programs.collect("endpoint", START_TIMEOUT_S)
        self._programs.order({host.name: word.endpoint for host, word in listening.items()})
        self._programs.collect("readiness", START_TIMEOUT_S)

    def _arguments(self, host: NodeId) -> ProbeHostArguments:
        return ProbeHostArguments(
            address=self._addresses[host],
            sends={n: flow.destination.name for n, flow in enumerate(self.flows) if flow.source == host},
            tos=self.level.tos,
            period_s=self._config.period,
        )

    def play(self, phase: str) -> None:
        """Begin to send; returns once every host does."""
        self._phase = phase
        for order in (Play(phase), SendProbes()):
            self._programs.order(order)
            self._programs.collect("begin of probes", REPORT_TIMEOUT_S)

    def halt(self) -> Records:
        """Send no more, wait for what is under way, and return rows of blackouts and flows. Raises TrafficError."""
        self._programs.order(Halt())
        sent = self._programs.collect("count of probes sent", REPORT_TIMEOUT_S)
        time.sleep(DRAIN_S)
        self._programs.order(Collect())
        found = self._programs.collect("arrivals", REPORT_TIMEOUT_S)
        nothing = ProbeArrivals(np.empty(0, np.int64), np.empty(0))
        for number, flow in enumerate(self.flows):
            by_source: ProbesSent = sent[flow.source]
            arrivals = found[flow.destination].arrivals.get(number, nothing)
            self.reports[flow] = report_of(arrivals, by_source.count, by_source.began_s, by_source.ended_s)
        self.clock_steps_s = {host: heard.clock_steps_s for host, heard in found.items()}
        return self._records()

    def _records(self) -> Records:
        records = Records()
        for flow, report in self.reports.items():
            row = {"phase": self._phase, "flow": str(flow)}
            records.add("blackouts", [{**row, **vars(blackout)} for blackout in report.blackouts])
            counts = {
                "period_s": self._config.period,
                "sent_packets": report.sent,
                "lost_packets": report.lost,
                "reordered_packets": report.reordered,
                "duplicated_packets": report.duplicated,
                "longest_gap_s": report.longest_gap_s,
                "clock_steps": len(self.clock_steps_s[flow.destination]),
            }
            records.add("probes", [row | counts])
        return records

    def close(self) -> None:
        """End the programs."""
        self._programs.close()


def _addresses(stage: Stage, flows: Sequence[ProbeFlow]) -> dict[NodeId, str]:
    """Return the address by which each host takes part: of its only NIC, or, if it has more, of the one that reaches
    those it speaks with. Raises TrafficError for a host that would speak by several NICs, or by none."""
    found: dict[NodeId, Nic] = {}
    for flow in flows:
        pair = stage.fabric.nic_pair(flow.source, flow.destination)
        if pair is None:
            raise TrafficError(f"probes: no NIC of {flow.source} reaches one of {flow.destination}; choose others")
        for nic in pair:
            if found.setdefault(nic.node, nic) != nic:
                raise TrafficError(f"probes: {nic.node} would speak by two NICs; probe those it reaches in two jobs")
    return {host: stage.address_of(nic.ip) for host, nic in found.items()}
