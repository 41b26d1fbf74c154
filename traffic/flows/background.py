"""The traffic of everybody else: flows between random hosts, with Poisson arrivals and heavy-tailed sizes.

Every host is a source and a sink. A source opens a TCP connection for each flow at the flow's arrival, whatever became
of the flows before (an open loop), sends the flow's bytes and waits until the sink confirms all of them; a flow's time
runs from arrival to that confirmation. Arrivals are the same in every phase, so that phases can be compared, unless a
job is told to draw new ones.

Rows of the ``operations`` table show the outcome of every arrival:

==================  =============================================================================================
``flow``            completed
``flow_abandoned``  still running when the load was halted; its times end there, its size is what was acknowledged
``flow_failed``     its connection could not be opened or broke
``flow_refused``    arrived while ``max_flows`` of its source were running, and did not start
==================  =============================================================================================

Percentiles over ``flow`` alone flatter a congested fabric: its slowest flows are in the other rows.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from fabric.config import Strict
from fabric.delivered import ABANDONED, COMPLETED
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.rails import rails_in_common
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, Stage, flow_rows
from traffic.program_group import ProgramGroup, ProgramsPerProcess
from traffic.transport.connection import Endpoint, SocketOptions
from traffic.transport.sampling import FlowSampler
from traffic.transport.tcp import TcpConnection, accept_alike, bytes_acked, connect, listen

START_TIMEOUT_S = 60.0
REPORT_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 10.0
FAILED, REFUSED = "flow_failed", "flow_refused"


# Sizes and arrivals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizeCdf:
    """A distribution of flow sizes: (bytes, percent of flows not larger), linear in between, from 0 to 100 %."""

    points: tuple[tuple[float, float], ...]

    @property
    def mean_bytes(self) -> float:
        """The mean size."""
        steps = itertools.pairwise(self.points)
        return sum((low + high) / 2 * (after - before) / 100 for (low, before), (high, after) in steps)

    def size_at(self, fraction: float) -> float:
        """Return the size in bytes that ``fraction`` of flows do not exceed."""
        sizes, percents = zip(*self.points, strict=True)
        return float(np.interp(fraction * 100, percents, sizes))

    def scaled(self, factor: float) -> SizeCdf:
        """Return the same shape with all sizes multiplied."""
        return replace(self, points=tuple((size * factor, percent) for size, percent in self.points))


SIZE_CDFS: Mapping[str, SizeCdf] = {
    # Web search, "Data Center TCP" (DCTCP, SIGCOMM 2010), as in alibaba-edu/High-Precision-Congestion-Control,
    # traffic_gen/WebSearch_distribution.txt.
    "web_search": SizeCdf(
        (
            (0, 0),
            (10_000, 15),
            (20_000, 20),
            (30_000, 30),
            (50_000, 40),
            (80_000, 53),
            (200_000, 60),
            (1_000_000, 70),
            (2_000_000, 80),
            (5_000_000, 90),
            (10_000_000, 97),
            (30_000_000, 100),
        )
    ),
    # Alibaba's storage, 2019: traffic_gen/AliStorage2019.txt of the same repository.
    "ali_storage": SizeCdf(
        (
            (0, 0),
            (4_000, 22.93),
            (8_000, 69.21),
            (16_000, 80.61),
            (32_000, 90.47),
            (64_000, 93.53),
            (128_000, 96.77),
            (256_000, 97.53),
            (2_000_000, 100),
        )
    ),
}


class BackgroundConfig(Strict):
    """The load that each host offers, and the sizes of flows."""

    load: Annotated[float, Field(gt=0, le=100, strict=False)] = Field(
        default=0.05,
        description=(
            "Load that each host offers, as a fraction of the rate of its NICs. Above 1, more arrives than they "
            "carry, and flows pile up."
        ),
    )
    cdf: str = Field(default="web_search", description="Distribution of flow sizes, by name.")
    size_scale: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=0.1, description="Multiplies flow sizes. Slower NICs need smaller flows, lest a run see only a few."
    )
    max_flows: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=64, description="Flows that a host may have running; arrivals beyond are refused and counted."
    )
    within_zone: bool = Field(
        default=False,
        description=(
            "Whether flows stay in the zone of their source, as Fire-Flyer 2 places jobs. Otherwise half of the "
            "load crosses between two zones."
        ),
    )
    hosts_per_process: ProgramsPerProcess = Field(
        default=None,
        description="Hosts whose programs share an interpreter. Without it, as many as the engine prefers.",
    )

    @field_validator("cdf")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SIZE_CDFS:
            raise ValueError(f"{name!r} is not a distribution; use one of {', '.join(SIZE_CDFS)}")
        return name

    @property
    def sizes(self) -> SizeCdf:
        """The distribution of sizes, scaled."""
        return SIZE_CDFS[self.cdf].scaled(self.size_scale)


@dataclass(frozen=True)
class Arrival:
    """One arrival: seconds since the load began, the place of its sink among the job's hosts, and its size."""

    at_s: float
    sink: int
    size_bytes: int


def arrivals(
    config: BackgroundConfig,
    nic_rate_bps: float,
    source: int,
    sinks: Sequence[int],
    seed: int,
    stream: Sequence[int] = (),
) -> Iterator[Arrival]:
    """Yield the flows of a host without end: Poisson at load x NIC rate / mean size, to ``sinks``, drawn evenly.

    ``source`` and ``sinks`` are places among a job's hosts.
    The same arguments yield the same flows; other sources, seeds or streams yield independent ones.
    """
    sizes = config.sizes
    mean_gap_s = sizes.mean_bytes * 8 / (config.load * nic_rate_bps)
    random = np.random.default_rng([seed, source, *stream])
    at_s = 0.0
    while True:
        at_s += float(random.exponential(mean_gap_s))
        sink = sinks[int(random.integers(len(sinks)))]
        size_bytes = max(1, round(sizes.size_at(float(random.random()))))
        yield Arrival(at_s, sink, size_bytes)


# The program in a host -----------------------------------------------------------------------------------------------

_SIZE = struct.Struct("!Q")
_HAVE_ALL = b"\x06"
_BLOCK = bytes(256 * 1024)
_BEGIN_BYTES = 32 * 1024
"""What of a flow is sent with its size, in one call."""
_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class BackgroundHostArguments:
    """What :func:`run_host` needs to know. ``place``: the host's own among ``hosts``, ``sinks``: those it sends to;
    ``addresses``: those of its NICs; ``draws_anew``: in each phase."""

    place: int
    sinks: tuple[int, ...]
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    options: SocketOptions
    config: BackgroundConfig
    nic_rate_bps: float
    seed: int
    draws_anew: bool = False


@dataclass(frozen=True)
class PlayAt(Play):
    """The order to begin a phase's flows, at a load of its own."""

    load: float


def run_host(agent: Agent, arguments: BackgroundHostArguments) -> None:
    """Be the sink and the source of one host until told to stop (a program of :mod:`fabric.world.programs.agents`)."""
    with contextlib.ExitStack() as stack:
        sinks = [_Sink(address, arguments.options) for address in arguments.addresses]
        for sink in sinks:
            stack.callback(sink.close)
        agent.report(tuple(sink.endpoint for sink in sinks))
        source = _Source(arguments, agent.receive(START_TIMEOUT_S))
        agent.report(Ready())
        while True:
            order = agent.receive()  # Without a timeout: the run decides when, and its end raises StopRequested.
            if isinstance(order, PlayAt):
                source.play(order.phase, order.load)
                agent.report(Ready())
            elif isinstance(order, Halt):
                agent.report(source.halt())


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


class _Sink:
    """Receives all flows of a host. Threads wait for the next flow, take it, and wait again; one more begins when none
    waits, so that there are as many as ever took flows at once. To start one for each flow cost more than the flow."""

    def __init__(self, address: str, options: SocketOptions) -> None:
        self._options = options
        self._listener = listen(address, 0, options)
        self._lock = threading.Lock()
        self._waiting = 0
        self._wait_with_another()

    @property
    def endpoint(self) -> Endpoint:
        """Where flows come."""
        address, port = self._listener.getsockname()[:2]
        return address, port

    def close(self) -> None:
        """Take no more flows; those under way end by themselves."""
        self._listener.shutdown(socket.SHUT_RDWR)  # To close it alone would leave threads waiting.
        self._listener.close()

    def _wait_with_another(self) -> None:
        self._waiting += 1
        _in_thread(self._take_flows)

    def _take_flows(self) -> None:
        buffer = bytearray(_READ_BYTES)
        while True:
            try:
                sock = accept_alike(self._listener, self._options)
            except ConnectionAbortedError:
                continue  # Its source has given it up.
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):
                    return  # The program ends.
                raise
            with contextlib.closing(sock), contextlib.suppress(OSError):
                self._take_flow(sock, buffer)

    def _take_flow(self, sock: socket.socket, buffer: bytearray) -> None:
        """Receive one flow and say so; one that its source abandons ends early and needs no word."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self._wait_with_another()
        try:
            has_come = _all_has_come(sock, buffer)
        finally:
            with self._lock:
                self._waiting += 1  # As good as: the next flow may follow on the word.
        if has_come:
            sock.sendall(_HAVE_ALL)


def _all_has_come(sock: socket.socket, buffer: bytearray) -> bool:
    """Receive a flow; return whether all of it came before its source ended it."""
    got = 0
    while got < _SIZE.size:
        received = sock.recv_into(memoryview(buffer)[got:])
        if not received:
            return False
        got += received
    left = _SIZE.unpack_from(buffer)[0] + _SIZE.size - got
    while left:
        received = sock.recv_into(buffer, min(left, len(buffer)), socket.MSG_WAITALL)
        if not received:
            return False
        left -= received
    return True


class _Source:
    """The generator of a host's flows, phase by phase. ``endpoints``: of each host, where its NICs take flows."""

    def __init__(self, arguments: BackgroundHostArguments, endpoints: Sequence[Sequence[Endpoint]]) -> None:
        self._arguments = arguments
        self._endpoints = endpoints
        self._sampler = FlowSampler()
        self._plays = 0
        self._playing: _FlowsOfPhase | None = None

    def play(self, phase: str, load: float) -> None:
        """Begin the flows of a phase."""
        arguments = self._arguments
        config = arguments.config.model_copy(update={"load": load})
        stream = (_stream_of(arguments.options.level), self._plays if arguments.draws_anew else 0)
        self._plays += 1
        self._sampler.start()
        self._playing = _FlowsOfPhase(arguments, config, self._endpoints, phase, stream, self._sampler)

    def halt(self) -> Records:
        """Begin no more flows, abandon those that run, and return all rows."""
        playing, self._playing = self._playing, None
        rows = [] if playing is None else playing.halt()
        level, host = self._arguments.options.level, self._arguments.hosts[self._arguments.place]
        flows = flow_rows(self._sampler.stop(), "" if playing is None else playing.phase, level, host)
        return Records(operations=rows, flows=flows)


def _stream_of(level: ServiceLevel) -> int:
    """Return what tells the random draws of service levels apart: the SL of a class selector, others above all SLs."""
    service_level, rest = divmod(level.dscp, 8)
    return 64 + level.dscp if rest else service_level


class _FlowsOfPhase:
    """The flows of a host in one phase. Each of its threads takes the next arrival, waits for its time, carries that
    flow to its end, and takes the next; one more begins when none waits, so that none begins late."""

    def __init__(
        self,
        arguments: BackgroundHostArguments,
        config: BackgroundConfig,
        endpoints: Sequence[Sequence[Endpoint]],
        phase: str,
        stream: Sequence[int],
        sampler: FlowSampler,
    ) -> None:
        self.phase = phase
        self._arguments = arguments
        self._max_flows = config.max_flows
        self._nics = NicChoice(arguments.addresses, endpoints)
        self._sampler = sampler
        place, sinks = arguments.place, arguments.sinks
        self._arrivals = arrivals(config, arguments.nic_rate_bps, place, sinks, arguments.seed, stream)
        self._lock = threading.Lock()
        self._halting = threading.Event()
        self._waiting = 0
        self._running: dict[_Running, None] = {}  # In the order of their begin.
        self._rows: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._wait_with_another()

    def _wait_with_another(self) -> None:
        self._waiting += 1
        _in_thread(self._carry_flows)

    def halt(self) -> list[dict[str, Any]]:
        """Begin no more flows, abandon those that run, and return all rows."""
        self._halting.set()
        with self._lock:
            abandoned, self._running = self._running, {}
            now = time.monotonic()
            self._rows += [
                self._row(running.flow, ABANDONED, running.started, now) | {"size_bytes": running.delivered_bytes()}
                for running in abandoned
            ]
            rows = self._rows
        for running in abandoned:
            running.abort()
        return rows

    def _carry_flows(self) -> None:
        while True:
            with self._lock:
                flow = next(self._arrivals)
                way = self._nics.way_of(flow)
            due = self._began + flow.at_s
            self._halting.wait(max(0.0, due - time.monotonic()))
            running = _Running(flow, due)
            with self._lock:
                if self._halting.is_set():
                    return
                if len(self._running) >= self._max_flows:
                    self._rows.append(self._row(flow, REFUSED, due, due))
                    continue
                self._running[running] = None
                self._waiting -= 1
                if not self._waiting:
                    self._wait_with_another()
            self._carry(running, way)
            with self._lock:
                self._waiting += 1

    def _carry(self, running: _Running, way: Way) -> None:
        outcome = COMPLETED
        try:
            self._send(running, *way)
        except (OSError, TrafficError):
            outcome = FAILED
        now = time.monotonic()
        with self._lock:
            # A flow that halt() has taken out of the running ones is abandoned, and has its row.
            if running in self._running:
                del self._running[running]
                self._rows.append(self._row(running.flow, outcome, running.started, now))

    def _send(self, running: _Running, source: str, endpoint: Endpoint) -> None:
        options, flow = self._arguments.options, running.flow
        sock = connect(*endpoint, options, CONNECT_TIMEOUT_S, source=source)
        with contextlib.closing(sock):
            running.connected(sock)
            peer, connection = self._arguments.hosts[flow.sink], TcpConnection(sock)
            self._sampler.track(connection, peer)
            _send_flow(sock, flow.size_bytes)
            self._sampler.release(connection, peer)

    def _row(self, flow: Arrival, outcome: str, started: float, ended: float) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "service_level": self._arguments.options.level.label,
            "operation": outcome,
            "host": self._arguments.hosts[self._arguments.place],
            "peer": self._arguments.hosts[flow.sink],
            "size_bytes": flow.size_bytes,
            "started_s": started,
            "ended_s": ended,
            "retries": 0,
        }


Way = tuple[str, Endpoint]
"""From which of its source's addresses a flow goes where."""


class NicChoice:
    """Which NICs a flow goes between, where hosts have several: the pair that has least to carry so far, of all that
    its source sends and of what it sends to that sink."""

    def __init__(self, addresses: Sequence[str], endpoints: Sequence[Sequence[Endpoint]]) -> None:
        self._addresses, self._endpoints = addresses, endpoints
        self._of_all, self._of_sink = Counter[int](), Counter[tuple[int, int]]()

    def way_of(self, flow: Arrival) -> Way:
        """Return the next flow's."""
        there, here = self._endpoints[flow.sink], self._addresses
        pairs = range(max(len(here), len(there)))
        one = min(pairs, key=lambda pair: self._of_all[pair] + self._of_sink[flow.sink, pair])
        self._of_all[one] += flow.size_bytes
        self._of_sink[flow.sink, one] += flow.size_bytes
        return here[one % len(here)], there[one % len(there)]


class _Running:
    """A flow under way, which another thread may abort at any time."""

    def __init__(self, flow: Arrival, started: float) -> None:
        self.flow = flow
        self.started = started
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._is_aborted = False

    def connected(self, sock: socket.socket) -> None:
        """Take the flow's connection. Raises OSError if the flow was aborted meanwhile."""
        with self._lock:
            if self._is_aborted:
                raise OSError("abandoned")
            self._sock = sock

    def delivered_bytes(self) -> int:
        """Return how much of the flow its sink has acknowledged so far."""
        with self._lock:
            acknowledged = 0 if self._sock is None else bytes_acked(self._sock)
        return min(self.flow.size_bytes, max(0, acknowledged - _SIZE.size))

    def abort(self) -> None:
        """End the flow's connection, now or as soon as it has one; its thread sees OSError."""
        with self._lock:
            self._is_aborted = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)


def _send_flow(sock: socket.socket, size_bytes: int) -> None:
    """Send a flow, its size first, and wait for the sink's word. Raises OSError if the connection ends before."""
    block = memoryview(_BLOCK)
    begin = block[: min(size_bytes, _BEGIN_BYTES)]
    sock.sendall(b"".join((_SIZE.pack(size_bytes), begin)))
    for start in range(len(begin), size_bytes, len(block)):
        sock.sendall(block[: size_bytes - start])
    if sock.recv(1) != _HAVE_ALL:
        raise ConnectionError("the sink ended the connection")


# The job -------------------------------------------------------------------------------------------------------------


class BackgroundJob:
    """A :class:`traffic.job.Job` of background flows among ``hosts``, in the service level "other" or another.

    ``address_of`` gives a node's address on the fabric, by default those of all NICs that all have in common.
    ``outcomes`` counts
    the arrivals of the last phase by what became of them. ``load`` is what the next phase offers, at first the
    config's. Flows of different levels are independent; if ``draws_anew`` is set before the start, so are those of
    different phases.
    """

    def __init__(
        self,
        stage: Stage,
        config: BackgroundConfig,
        hosts: Sequence[NodeId],
        address_of: Callable[[NodeId], str] | None = None,
        level: ServiceLevel = ServiceLevel.OTHER,
        name: str | None = None,
    ) -> None:
        if len(hosts) < 2:
            raise TrafficError(f"background: {len(hosts)} hosts; flows need a source and a sink, so at least 2")
        self.level = level
        self.name = name or level.label
        self.load = config.load
        self.hosts = tuple(hosts)
        self.draws_anew = False
        self.outcomes: Counter[str] = Counter()
        self._stage = stage
        self._config = config
        self._nics = rails_in_common(stage.fabric, self.hosts)
        self._address_of = address_of
        self._programs: ProgramGroup[int] = ProgramGroup(stage, "background")
        alone = [str(host) for place, host in enumerate(self.hosts) if not self._sinks(place)]
        if alone:
            raise TrafficError(
                f"background: {', '.join(alone)}: no other host in its zone; name more or leave out within_zone"
            )

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """Its programs, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork the programs and tell each where the sinks are. Raises TrafficError naming a host that failed."""
        starts = {place: ("background", host, self._arguments(place)) for place, host in enumerate(self.hosts)}
        self._programs.start_all(run_host, starts, self._config.hosts_per_process)
        listening = self._programs.collect("listening", START_TIMEOUT_S)
        self._programs.order(list(listening.values()))
        self._programs.collect("readiness", START_TIMEOUT_S)

    def _arguments(self, place: int) -> BackgroundHostArguments:
        node = self.hosts[place]
        nics = self._nics[node]
        addresses = [self._stage.address_of(nic.ip) for nic in nics]
        if self._address_of is not None:
            addresses = [self._address_of(node)]
        return BackgroundHostArguments(
            place=place,
            sinks=self._sinks(place),
            hosts=tuple(host.name for host in self.hosts),
            addresses=tuple(dict.fromkeys(addresses)),
            options=self._stage.socket_options(self.level),
            config=self._config,
            nic_rate_bps=sum(self._stage.fabric.link_at[nic.port].rate_bps for nic in nics),
            seed=self._stage.seed,
            draws_anew=self.draws_anew,
        )

    def _sinks(self, place: int) -> tuple[int, ...]:
        """Return the places of the hosts that a host sends to."""
        zones = [self._nics[host][0].zone for host in self.hosts]
        reached = (zone == zones[place] or not self._config.within_zone for zone in zones)
        return tuple(other for other, is_reached in enumerate(reached) if is_reached and other != place)

    def play(self, phase: str) -> None:
        """Begin the flows; returns once every host has."""
        if not self._programs.handles:
            raise TrafficError("background: has not started; call start() before play()")
        self._programs.order(PlayAt(phase, self.load))
        self._programs.collect("begin of flows", REPORT_TIMEOUT_S)

    def halt(self) -> Records:
        """Abandon the flows that run and return rows of all arrivals. Raises TrafficError if a program failed."""
        self._programs.order(Halt())
        records = Records()
        for message in self._programs.collect("rows", REPORT_TIMEOUT_S).values():
            records.extend(message)
        self.outcomes = Counter(row["operation"] for row in records.rows("operations"))
        return records

    def close(self) -> None:
        """End the programs."""
        self._programs.close()
