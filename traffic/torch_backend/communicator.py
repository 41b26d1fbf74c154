"""A rank's part in a group: carries out its calls, one operation after another, as NCCL's stream does."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, wait

from fabric.errors import TrafficError
from traffic.collectives.chunk_connection import Edge
from traffic.collectives.collective import ScheduleOptions
from traffic.collectives.elements import Elements
from traffic.collectives.exchange import Exchange, all_pairs
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.schedule import RankContext, Schedule, Worker
from traffic.program_group import FAILURES_TIMEOUT_S, PeerGoneError
from traffic.torch_backend.calls import Call, Member
from traffic.torch_backend.choice import Choice, GroupChoice
from traffic.torch_backend.meeting import Meeting
from traffic.torch_backend.operation import Operation, silence_s
from traffic.torch_backend.threads import DaemonThreads

_KINDS_KEPT = 32
_STEPS = 2**32
_END_S = 10.0


class _Part:
    """A worker for calls of a kind: what it reads and writes is the present call's."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.worker: Worker | None = None

    def __getitem__(self, piece: slice, /) -> Elements:
        assert self.call is not None
        return self.call.source[piece]

    def finished(self, piece: slice, found: Elements) -> None:
        assert self.call is not None
        self.call.finished(piece, found)


class Communicator:
    """Carries out a rank's calls in a group, in the order in which they are made. After one that fails it is broken:
    all others fail, too, here and, as their connections end, at its peers."""

    def __init__(self, name: str, member: Member, meeting: Meeting, choice: Choice) -> None:
        self._name, self._member, self._meeting, self._choice = name, member, meeting, choice
        self._queue: queue.SimpleQueue[tuple[Operation, Sequence[Call]] | None] = queue.SimpleQueue()
        self._parts: OrderedDict[tuple[object, ...], _Part] = OrderedDict()
        self._group: GroupChoice | None = None
        self._threads = DaemonThreads(f"{name} rank {member.rank}")
        self._step = 0
        self._broken: BaseException | None = None
        self._running: Worker | None = None
        self._playing = threading.Thread(target=self._play_all, name=f"{name} calls", daemon=True)
        self._playing.start()

    def submit(self, operation: Operation, calls: Sequence[Call]) -> None:
        """Have calls carried out, one after another, as an operation."""
        self._queue.put((operation, calls))

    def _play_all(self) -> None:
        while (asked := self._queue.get()) is not None:
            operation, calls = asked
            try:
                if self._broken is not None:
                    raise TrafficError(f"{operation.what}: its group has failed before: {self._broken}")
                operation.await_turn()
                for call in calls:
                    self._play(operation, call)
            except BaseException as error:
                self._broken = self._broken or error
                self._abort()
                operation.end(error)
            else:
                operation.end()

    def _play(self, operation: Operation, call: Call) -> None:
        self._step = (self._step + 1) % _STEPS
        if call.check is not None:
            call.check.begin(f"{self._name}, rank {self._member.rank}, call {self._step}, {call.collective.name}")
        if self._member.ranks == 1:
            _play_alone(call)
        elif call.elements or call.splits or call.collective is BARRIER:
            part = self._part(operation, call)
            part.call = call
            try:
                self._carry_out(operation, part)
            finally:
                part.call = None
        if call.check is not None:
            call.check.end()

    def _carry_out(self, operation: Operation, part: _Part) -> None:
        worker = self._running = part.worker
        assert worker is not None
        tasks = [self._threads.submit(task) for task in worker.tasks(self._step)]
        done, unfinished = wait(tasks, operation.left_s, FIRST_EXCEPTION)
        errors = [error for task in done if (error := task.exception()) is not None]
        if errors or unfinished:
            self._abort()
            if not errors:
                raise operation.took_too_long()
            done, _ = wait(tasks, FAILURES_TIMEOUT_S)
            errors = [error for task in done if (error := task.exception()) is not None]
            raise min(errors, key=lambda error: isinstance(error, PeerGoneError))
        self._running = None

    def _part(self, operation: Operation, call: Call) -> _Part:
        """Return what carries calls of a kind out, with connections that are made if they are not there."""
        part = self._parts.get(call.kind)
        if part is None:
            part = self._parts[call.kind] = _Part()
            part.worker = self._worker(operation, call, part)
            if len(self._parts) > _KINDS_KEPT:
                self._parts.popitem(last=False)
        self._parts.move_to_end(call.kind)
        return part

    def _worker(self, operation: Operation, call: Call, part: _Part) -> Worker:
        schedule = self._schedule(call)
        edges = {edge: self._between(edge, call.root) for edge in schedule.edges if call.place in _ends(edge)}
        links = self._meeting.connected(edges.values(), operation.left_s)
        of_schedule = {edge: links[between] for edge, between in edges.items()}
        limit_s = silence_s(operation.timeout_s)
        context = RankContext(call.place, of_schedule, [part], limit_s, combine=call.reduction.combine)
        return schedule.worker(context, [part.finished])

    def _schedule(self, call: Call) -> Schedule:
        ranks = self._member.ranks
        piece = max(1, self._choice.piece_bytes // call.dtype.size_bytes)
        if call.splits is not None:
            return Exchange(all_pairs, call.splits, ranks, call.elements, piece, dtype=call.dtype)
        if self._group is None:
            self._group = GroupChoice(self._choice, [self._meeting.place_of(rank) for rank in range(ranks)])
        options = ScheduleOptions(ranks, call.elements, max(1, min(piece, call.elements)), dtype=call.dtype)
        return self._group.schedule(call.collective, options, call.root)

    def _between(self, edge: Edge, root: int) -> Edge:
        """Return an edge between places, counted from a root, as one between ranks of the group."""
        ranks = self._member.ranks
        return Edge(edge.channel, (edge.dialer + root) % ranks, (edge.listener + root) % ranks)

    def _abort(self) -> None:
        self._meeting.abort()
        if (worker := self._running) is not None:
            worker.abort()

    def close(self) -> None:
        """End its threads; calls that are under way fail."""
        self._queue.put(None)
        if self._running is not None:
            self._abort()
        self._playing.join(_END_S)
        self._threads.close()


def _ends(edge: Edge) -> tuple[int, int]:
    return edge.dialer, edge.listener


def _play_alone(call: Call) -> None:
    """Carry a call of a group of one out: what it has is what it gets."""
    if call.splits is not None:
        call.finished(slice(0, call.elements), call.source[slice(0, call.elements)])
        return
    for one in call.expected:
        length = one.place.stop - one.place.start
        step = length if call.check is None else 1 << 18
        for start in range(0, length, max(1, step)):
            stop = min(length, start + step)
            piece = slice(one.place.start + start, one.place.start + stop)
            call.finished(piece, call.source[slice(one.first + start, one.first + stop)])
