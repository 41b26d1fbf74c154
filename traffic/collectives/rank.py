"""One rank of an allreduce over TCP: the program in its host, its orders and its answers.

A collective is a :class:`Schedule`, a pure value: which ranks are connected, and what one rank does in a step. The
program :func:`run_rank` wires a rank accordingly and carries out steps as the run orders them.

Every rank checks every element of its result in every step, piece by piece as it is finished, and then uses the
piece's memory again: a rank needs memory for data in flight, not for all of its data. Touching memory for the first
time takes a guest in virtual time longer than packets do.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Protocol

from fabric.errors import TrafficError
from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge, PeerGoneError, StalledError
from traffic.collectives.dataset import Buffer, Dataset, SumCheck
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.gpu_copies import GpuLinks, NodeParts, connect_parts
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.program_group import FAILURES_TIMEOUT_S, ProgramFailed
from traffic.transport import (
    Endpoint,
    FlowSampler,
    SocketOptions,
    UnreachableError,
    accept,
    connect,
    has_carrier,
    listen,
)

START_TIMEOUT_S = 60.0
WARM_UP_BYTES = 4 * 2**20
"""Bytes that warm a collective up. At 200 Gbit/s, a connection's windows are open after a few hundred KiB."""
DEFAULT_SLOTS = 8
"""Pieces that a rank holds at most between receiving and forwarding them, as NCCL's FIFO does."""
TREES = 2
"""Of a double tree."""
_HELLO = struct.Struct("!II")


Finished = Callable[[slice, Elements], None]
"""Callback for each finished piece of the result, in any order. The buffer is reused after the call returns."""


class Worker(Protocol):
    """One rank's part in a collective."""

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return what the rank's threads do in a step, always equally many; each raises TrafficError if it fails."""

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""


class Schedule(Protocol):
    """A collective as a pure, picklable value: who is connected, and what each rank does."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, sorted. Data goes from the dialer to the listener only."""

    @property
    def elements(self) -> int:
        """Number of elements that are added up."""

    @property
    def longest_piece(self) -> int:
        """The most elements that travel in one frame."""

    @property
    def dtype(self) -> Dtype:
        """The type of the elements."""

    def shortened(self, elements: int) -> Schedule:
        """Return the same collective, over the same connections, of the first ``elements``, if it has more."""

    def worker(self, seat: Seat, finished: Finished) -> Worker:
        """Return a rank's part; it gives its result to ``finished``, piece by piece."""


@dataclass(frozen=True)
class Seat:
    """A rank's place in a collective: its connections, its input buffers, how long its threads wait for each other.

    That time limits a step; a thread that waits for another rank detects whether that rank stalls.
    """

    rank: int
    links: Mapping[Edge, ChunkConnection]
    inputs: Sequence[Buffer]
    timeout_s: float
    parts: NodeParts | None = None
    gpu_links: Sequence[Sequence[GpuLinks]] = ()
    """Of a node with an inside: its parts, and the connections of each GPU, tree by tree."""
    others_finished: Sequence[Finished] = ()
    """Callbacks for the results of all GPUs but the first, whose is the rank's."""


@dataclass(frozen=True)
class RankArguments:
    """What :func:`run_rank` needs to know. ``addresses``: those of the rank's NICs, which its channels use in turn."""

    collective: str
    rank: int
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    options: SocketOptions
    schedule: Schedule
    dataset: Dataset
    timeout_s: float
    stall_s: float
    parts: NodeParts | None = None

    def name(self, rank: int) -> str:
        """Return a rank's name in messages."""
        return f"{self.collective} rank {rank} ({self.hosts[rank]})"


@dataclass(frozen=True)
class RankListening:
    """A rank's report that peers can connect to it, at each of its addresses, and whether the link of each is up."""

    endpoints: tuple[Endpoint, ...]
    up: tuple[bool, ...]


@dataclass(frozen=True)
class Wiring:
    """The order to connect: the collective that is played, over which of the ranks' addresses (``places``, the same for
    all), and where each rank listens there."""

    schedule: Schedule
    places: tuple[int, ...]
    endpoints: tuple[tuple[Endpoint, ...], ...]


@dataclass(frozen=True)
class StepOrder:
    """The order to carry out one step, of the whole size or, to warm up, of its first few MiB."""

    step: int
    warms_up: bool = False


@dataclass(frozen=True)
class StepDone:
    """A rank's report that a step ended with the right sum; times are ``time.monotonic()``."""

    step: int
    started: float
    ended: float


def run_rank(agent: Agent, arguments: RankArguments) -> None:
    """Run one rank of a collective until the run stops it (a program of :mod:`fabric.world.programs.agents`)."""
    try:
        with contextlib.ExitStack() as open_links:
            wired, links = _connected(agent, arguments)
            for link in links.values():
                open_links.callback(link[0].close)
            _carry_out_orders(agent, wired, links)
    except TrafficError as error:
        is_stall = isinstance(error, StalledError | UnreachableError)
        agent.report(ProgramFailed(str(error), isinstance(error, PeerGoneError), is_stall))


Connections = dict[Edge, tuple[ChunkConnection, socket.socket]]


def _connected(agent: Agent, arguments: RankArguments) -> tuple[RankArguments, Connections]:
    """Return what the run made of the arguments once every rank listened, and the rank's connections."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(contextlib.closing(listen(address, 0, arguments.options)))
            for address in arguments.addresses
        ]
        up = tuple(has_carrier(address) for address in arguments.addresses)
        agent.report(RankListening(tuple(listener.getsockname()[:2] for listener in listeners), up))
        wiring: Wiring = agent.receive(START_TIMEOUT_S)
        addresses = tuple(arguments.addresses[place] for place in wiring.places)
        arguments = replace(arguments, schedule=wiring.schedule, addresses=addresses)
        listeners = [listeners[place] for place in wiring.places]
        rank = arguments.rank
        edges = arguments.schedule.edges
        dialled = [edge for edge in edges if edge.dialer == rank]
        sockets = {edge: _dial(edge, wiring.endpoints[edge.listener], arguments) for edge in dialled}
        expected = {edge for edge in edges if edge.listener == rank}
        for place, listener in enumerate(listeners):
            here = {edge for edge in expected if edge.channel % len(listeners) == place}
            while here - sockets.keys():
                sockets |= _accepted(listener, arguments)
    return arguments, {edge: (_link(edge, sock, arguments), sock) for edge, sock in sockets.items()}


def _accepted(listener: socket.socket, arguments: RankArguments) -> dict[Edge, socket.socket]:
    """Return the next connection and its edge; None if its dialer closed it and tries again."""
    sock, address = accept(listener, arguments.options, START_TIMEOUT_S)
    sock.settimeout(START_TIMEOUT_S)
    try:
        hello = sock.recv(_HELLO.size, socket.MSG_WAITALL)
    except TimeoutError as error:
        raise UnreachableError(f"{address}: connected and said nothing within {START_TIMEOUT_S:g} s") from error
    except OSError:
        hello = b""
    if len(hello) < _HELLO.size:
        sock.close()
        return {}
    sock.settimeout(None)
    channel, dialer = _HELLO.unpack(hello)
    return {Edge(channel, dialer, arguments.rank): sock}


def _dial(edge: Edge, endpoints: Sequence[Endpoint], arguments: RankArguments) -> socket.socket:
    """Connect a channel's own two addresses."""
    endpoint = endpoints[edge.channel % len(endpoints)]
    source = arguments.addresses[edge.channel % len(arguments.addresses)]
    sock = connect(*endpoint, arguments.options, START_TIMEOUT_S, source=source)
    sock.sendall(_HELLO.pack(edge.channel, edge.dialer))
    return sock


def _link(edge: Edge, sock: socket.socket, arguments: RankArguments) -> ChunkConnection:
    name = f"{arguments.name(arguments.rank)} with {arguments.name(edge.peer(arguments.rank))}"
    return ChunkConnection(sock, edge.channel, name, arguments.stall_s)


def _carry_out_orders(
    agent: Agent, arguments: RankArguments, connections: Mapping[Edge, tuple[ChunkConnection, socket.socket]]
) -> None:
    links = {edge: link for edge, (link, _) in connections.items()}
    stepper = _Stepper(arguments, links)
    sampler = FlowSampler()
    for edge, (_, sock) in connections.items():
        if edge.dialer == arguments.rank:
            sampler.track(sock, arguments.hosts[edge.peer(arguments.rank)])
    phase = ""
    agent.report(Ready())
    with contextlib.closing(stepper):
        while True:
            order = agent.receive()  # Without a timeout: the run decides when, and its end raises StopRequested.
            if isinstance(order, Play):
                phase = order.phase
                sampler.start()
                agent.report(Ready())
            elif isinstance(order, StepOrder):
                agent.report(stepper.step(order))
            elif isinstance(order, Halt):
                rows = flow_rows(sampler.stop(), phase, arguments.options.level, agent.host)
                agent.report(Records(flows=rows))


def _gpu_links(arguments: RankArguments) -> list[list[GpuLinks]]:
    """Return the connections inside a rank's node; none if it is a point."""
    if arguments.parts is None:
        return []
    name = arguments.name(arguments.rank)
    chunk_bytes = arguments.schedule.longest_piece * arguments.schedule.dtype.size_bytes
    return connect_parts(arguments.parts, TREES, chunk_bytes, arguments.options, name, arguments.stall_s)


class _Stepper:
    """Carries out steps of a rank, times them and checks their sums."""

    def __init__(self, arguments: RankArguments, links: Mapping[Edge, ChunkConnection]) -> None:
        self._name = arguments.name(arguments.rank)
        self._timeout_s = arguments.timeout_s
        self._links = links
        inputs, expected = arguments.dataset.inputs(arguments.rank), arguments.dataset.expected()
        self._gpu_links = _gpu_links(arguments)
        self._seat = Seat(arguments.rank, links, inputs, arguments.timeout_s, arguments.parts, self._gpu_links)
        whole = arguments.schedule
        short = whole.shortened(WARM_UP_BYTES // whole.dtype.size_bytes)
        self._parts = [self._part(schedule, expected) for schedule in (whole, short)]
        self._threads = ThreadPoolExecutor(max_workers=len(self._parts[0][0].tasks(0)))

    def _part(self, schedule: Schedule, expected: Buffer) -> tuple[Worker, list[SumCheck]]:
        results = 1 if self._seat.parts is None else len(self._seat.parts.gpus)
        checks = [SumCheck(expected, schedule.elements) for _ in range(results)]
        seat = replace(self._seat, others_finished=[check.piece for check in checks[1:]])
        return schedule.worker(seat, checks[0].piece), checks

    def step(self, order: StepOrder) -> StepDone:
        """Carry out one step. Raises TrafficError if it fails, takes too long or the sum is wrong."""
        worker, checks = self._parts[order.warms_up]
        for place, check in enumerate(checks):
            check.begin(f"{self._name}, step {order.step}" + (f", GPU {place}" if len(checks) > 1 else ""))
        started = time.monotonic()
        self._await([self._threads.submit(task) for task in worker.tasks(order.step)], worker, order.step)
        ended = time.monotonic()
        for check in checks:
            check.end()
        return StepDone(order.step, started, ended)

    def _await(self, tasks: list[Future[None]], worker: Worker, number: int) -> None:
        done, unfinished = wait(tasks, self._timeout_s, FIRST_EXCEPTION)
        failed = [task for task in done if task.exception() is not None]
        if not failed and not unfinished:
            return
        self._abort(worker)
        if not failed:
            raise StalledError(
                f"{self._name}: step {number} did not end within {self._timeout_s:g} s; raise step_timeout"
            )
        done, _ = wait(tasks, FAILURES_TIMEOUT_S)
        errors = [error for task in done if (error := task.exception()) is not None]
        raise min(errors, key=lambda error: isinstance(error, PeerGoneError))

    def _abort(self, *workers: Worker) -> None:
        inner = [link for tree in self._gpu_links for gpu in tree for link in gpu.all]
        for link in [*self._links.values(), *inner]:
            link.abort()
        for worker in workers:
            worker.abort()

    def close(self) -> None:
        """End the threads."""
        self._abort(*(worker for worker, _ in self._parts))
        self._threads.shutdown(wait=False, cancel_futures=True)
