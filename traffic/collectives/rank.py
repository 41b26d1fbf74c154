"""One rank of a collective: the program in its host, its orders and its answers.

What it does is its schedule's, a pure value (:mod:`traffic.collectives.schedule`): which ranks are connected, and what
one rank does in a step. The program :func:`run_rank` wires a rank accordingly and carries out steps as the run orders
them.

Every rank checks every element of its result in every step, piece by piece as it is finished, and then uses the
piece's memory again: a rank needs memory for data in flight, not for all of its data. Touching memory for the first
time takes a guest in virtual time longer than packets do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np

from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.dataset import Buffer, pieces
from traffic.collectives.elements import Elements
from traffic.collectives.orders import RankArguments, ShapedStepOrder, StepShape
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.schedule import Finished, NodeConnections, RankContext, Schedule, Worker
from traffic.collectives.wiring import connected
from traffic.job import Records
from traffic.program_group import FAILURES_TIMEOUT_S, PeerGoneError, StalledError
from traffic.stepped_job import StepDone, StepOrder
from traffic.stepped_rank import carry_out_orders, failures_reported
from traffic.transport.sampling import FlowSampler

WARM_UP_BYTES = 4 * 2**20
"""Bytes that warm a collective up. At 200 Gbit/s, a connection's windows are open after a few hundred KiB."""


class OwnedBuffer:
    """A rank's own memory for a collective in place: its input is there first, and its result takes that place, so what
    a schedule reads of it is what it is by then."""

    def __init__(self, original: Buffer, schedule: Schedule) -> None:
        self._original = original
        self._piece = max(1, schedule.longest_piece)
        self._elements: Elements = np.empty(schedule.elements, schedule.dtype.numpy)

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return a view."""
        return self._elements[piece]

    def fill(self) -> None:
        """Put the input there again."""
        for piece in pieces(0, self._elements.size, self._piece):
            self._elements[piece] = self._original[piece]

    def taking(self, finished: Finished) -> Finished:
        """Return what puts each piece of a result into its place, and then gives it on."""

        def take(piece: slice, found: Elements) -> None:
            self._elements[piece] = found
            finished(piece, found)

        return take


def run_rank(agent: Agent, arguments: RankArguments) -> None:
    """Run one rank of a collective until the run stops it (a program of :mod:`fabric.world.programs.agents`)."""
    with failures_reported(agent), contextlib.ExitStack() as open_links:
        wired, links = connected(agent, arguments)
        for link in links.values():
            open_links.callback(link.close)
        stepper = open_links.enter_context(contextlib.closing(_Stepper(wired, links)))
        sampler = FlowSampler()
        for edge, link in links.items():
            if edge.dialer == wired.rank:
                sampler.track(link, wired.hosts[edge.peer(wired.rank)])
        carry_out_orders(agent, stepper, sampler, wired.transport.options.level)


class _Part(NamedTuple):
    """What carries out steps of a shape: the rank's worker, checks of its results, and its buffer if it is in place."""

    worker: Worker
    checks: list[ResultCheck]
    owned: OwnedBuffer | None


class _Stepper:
    """Carries out steps of a rank, times them and checks their results."""

    def __init__(self, arguments: RankArguments, links: Mapping[Edge, ChunkConnection]) -> None:
        self._name = arguments.name(arguments.rank)
        self._timeout_s = arguments.timeout_s
        self._links = links
        self._arguments = arguments
        self._node = self._connected_node(arguments)
        whole = arguments.schedule
        self._whole = StepShape(whole.elements)
        self._short = StepShape(min(whole.elements, WARM_UP_BYTES // whole.dtype.size_bytes))
        self._parts: dict[StepShape, _Part] = {}
        self._threads = ThreadPoolExecutor(max_workers=len(self._part(self._whole).worker.tasks(0)))
        self._part(self._short)

    def _connected_node(self, arguments: RankArguments) -> NodeConnections | None:
        """Return the connections inside the rank's node; none if it is a point."""
        if arguments.node is None:
            return None
        chunk_bytes = arguments.schedule.longest_piece * arguments.schedule.dtype.size_bytes
        return arguments.node.connect(chunk_bytes, arguments.transport, self._name, arguments.stall_s)

    def _part(self, shape: StepShape) -> _Part:
        """Return what carries out steps of a shape, made when it is first needed."""
        if shape not in self._parts:
            self._parts[shape] = self._made(shape)
        return self._parts[shape]

    def _made(self, shape: StepShape) -> _Part:
        arguments = self._arguments
        schedule = arguments.schedule.shortened(shape.elements)
        results = 1 if self._node is None else self._node.results
        expected = arguments.expected(arguments.rank, len(arguments.hosts), schedule.elements)
        checks = [ResultCheck.of(arguments.dataset, expected, schedule.elements) for _ in range(results)]
        inputs: Sequence[Buffer] = arguments.dataset.inputs(arguments.rank)
        finished: list[Finished] = [check.piece for check in checks]
        owned = None
        if shape.in_place:
            owned = OwnedBuffer(inputs[0], schedule)
            inputs, finished = [owned], [owned.taking(finished[0])]
        context = RankContext(arguments.rank, self._links, inputs, arguments.timeout_s, self._node)
        return _Part(schedule.worker(context, finished), checks, owned)

    def begin(self, phase: str) -> None:
        """Begin a phase."""

    def rows(self) -> Records:
        """Return no rows: those of its steps are made where they are ordered."""
        return Records()

    def step(self, order: StepOrder) -> StepDone:
        """Carry out one step. Raises TrafficError if it fails, takes too long or its result is wrong."""
        shape = self._short if order.warms_up else self._whole
        if isinstance(order, ShapedStepOrder) and order.shape is not None:
            shape = order.shape
        worker, checks, owned = self._part(shape)
        if owned is not None:
            owned.fill()
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
        for link in self._links.values():
            link.abort()
        if self._node is not None:
            self._node.abort()
        for worker in workers:
            worker.abort()

    def close(self) -> None:
        """End the threads."""
        self._abort(*(part.worker for part in self._parts.values()))
        self._threads.shutdown(wait=False, cancel_futures=True)
