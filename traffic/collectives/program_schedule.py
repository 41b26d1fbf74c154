"""Chunk programs as schedules: how a rank carries its part out, with one thread that takes and one that sends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.chunk_program import OWN, ChunkProgram, ProgramOf, Send, Take, compiled, place_of_result
from traffic.collectives.collective import CollectiveAlgorithm, ExpectedOf, Flows, Layout, ScheduleOptions, block_of
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.schedule import Finished, RankContext
from traffic.program_group import PeerGoneError, StalledError

_AHEAD = 2
"""Time slots that taking may be ahead of sending. A rank has memory for so many loops beyond those under way."""
_Move = TypeVar("_Move", Send, Take)


@dataclass(frozen=True)
class ProgramSchedule:
    """A chunk program over real data. ``expected``: what its collective says that ranks get; ``piece_elements``: the
    most elements of a chunk that travel in one frame."""

    program_of: ProgramOf
    layout: Layout
    expected: ExpectedOf
    elements: int
    piece_elements: int
    dtype: Dtype = Dtype.FP32

    @property
    def program(self) -> ChunkProgram:
        """The program."""
        return compiled(self.program_of, self.layout)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection."""
        return self.program.edges

    @property
    def loops(self) -> int:
        """In how many parts every chunk is sent: the longest in pieces of up to ``piece_elements``; signals once."""
        return 1 if self.program.signals else -(-self._longest_chunk // self.piece_elements)

    @property
    def longest_piece(self) -> int:
        """The most elements of a chunk that travel in one frame."""
        return -(-self._longest_chunk // max(1, self.loops))

    @property
    def _longest_chunk(self) -> int:
        return max(int(chunk.stop - chunk.start) for chunk in self.program.bounds(self.elements))

    def shortened(self, elements: int) -> ProgramSchedule:
        """Return the same of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def pieces(self) -> list[list[slice]]:
        """Return, loop by loop, the elements of each chunk; those of a loop may be none."""
        loops, bounds = self.loops, self.program.bounds(self.elements)
        return [[_part(chunk, loop, loops) for chunk in bounds] for loop in range(loops)]

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> ProgramWorker:
        """Return a rank's part."""
        return ProgramWorker(self, context, finished[0])


def _part(chunk: slice, loop: int, loops: int) -> slice:
    part = block_of(loop, loops, chunk.stop - chunk.start)
    return slice(chunk.start + part.start, chunk.start + part.stop)


def in_order(moves: Sequence[_Move], loops: int, slots: int) -> Iterator[tuple[int, int, _Move]]:
    """Yield (time slot, loop, move) of all loops over a rank's moves: in time slot t, stage s is that of loop t - s."""
    ordered = sorted(moves, key=lambda one: one.order.number)
    for time_slot in range(slots):
        for move in ordered:
            loop = time_slot - move.order.stage
            if 0 <= loop < loops:
                yield time_slot, loop, move


class ProgramWorker:
    """A rank's part in a :class:`ProgramSchedule`."""

    def __init__(self, schedule: ProgramSchedule, context: RankContext, finished: Finished) -> None:
        program = schedule.program
        mine = program.ranks[context.rank]
        (self._own,) = context.inputs
        self._links = context.links
        self._finished = finished
        self._pieces = schedule.pieces()
        self._starts = place_of_result(schedule.expected, context.rank, program, schedule.elements)
        self._bounds = program.bounds(schedule.elements)
        self._signals = program.signals
        self._plan = _Plan(mine.sends, mine.takes, len(self._pieces), program.stages)
        shape = (self._plan.held_loops, mine.slots, schedule.longest_piece)
        self._memory = np.empty(shape, schedule.dtype.numpy)
        self._spare = np.empty(schedule.longest_piece, schedule.dtype.numpy)
        self._progress = _Progress(f"rank {context.rank}", context.timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        self._progress.begin()
        return [partial(self._take_all, step), partial(self._send_all, step)]

    def abort(self) -> None:
        """Wake both threads, as far as they wait for each other."""
        self._progress.abort()

    def _send_all(self, step: int) -> None:
        numbers = Counter[Edge]()
        for time_slot, loop, move in self._plan.sends():
            self._progress.sending(time_slot)
            piece = self._pieces[loop][move.chunk]
            if piece.start == piece.stop and not self._signals:
                continue
            if move.after is not None:
                self._progress.await_taken((loop + move.after.stage, move.after.number))
            self._links[move.edge].send(step, numbers[move.edge], self._value(loop, move.slot, piece))
            numbers[move.edge] += 1
        self._progress.all_sent()

    def _take_all(self, step: int) -> None:
        numbers = Counter[Edge]()
        for time_slot, loop, move in self._plan.takes():
            self._progress.await_sent(time_slot - _AHEAD)
            piece = self._pieces[loop][move.chunk]
            if piece.start != piece.stop or self._signals:
                self._take(step, loop, move, piece, numbers)
            self._progress.taken((time_slot, move.order.number))

    def _take(self, step: int, loop: int, move: Take, piece: slice, numbers: Counter[Edge]) -> None:
        length = piece.stop - piece.start
        into = self._spare if move.slot is None else self._memory[loop % self._plan.held_loops, move.slot]
        into = into[:length]
        if move.edge is not None:
            found = into if move.base is None else self._spare[:length]
            self._links[move.edge].receive(step, numbers[move.edge], found)
            numbers[move.edge] += 1
        else:
            assert move.source is not None, "what comes from nobody is in a slot of the rank's own"
            found = self._value(loop, move.source, piece)
        if move.base is not None:
            found = np.add(self._value(loop, move.base, piece), found, out=into)
        elif move.slot is not None and move.edge is None:
            into[:] = found
        if move.result is not None and length:
            start = self._starts[move.result] + piece.start - self._bounds[move.chunk].start
            self._finished(slice(start, start + length), found)

    def _value(self, loop: int, slot: int, piece: slice) -> Elements:
        if slot == OWN:
            return self._own[piece]
        found: Elements = self._memory[loop % self._plan.held_loops, slot, : piece.stop - piece.start]
        return found


@dataclass(frozen=True)
class _Plan:
    """The moves of a rank over all loops. ``held_loops``: of how many loops it holds values at once."""

    send_moves: tuple[Send, ...]
    take_moves: tuple[Take, ...]
    loops: int
    stages: int

    @property
    def held_loops(self) -> int:
        """Loops under way at once, and as many more as taking may be ahead of sending."""
        return max(1, min(self.loops, self.stages + _AHEAD))

    @property
    def _time_slots(self) -> int:
        return self.loops + self.stages - 1 if self.loops else 0

    def sends(self) -> Iterator[tuple[int, int, Send]]:
        """Yield (time slot, loop, move) of what it sends."""
        return in_order(self.send_moves, self.loops, self._time_slots)

    def takes(self) -> Iterator[tuple[int, int, Take]]:
        """Yield (time slot, loop, move) of what it takes."""
        return in_order(self.take_moves, self.loops, self._time_slots)


_EVERYTHING = 1 << 62


class _Progress:
    """How far the two threads of a rank are in a step, and how they wait for each other."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._taken = (-1, 0)
        self._sending = -1
        self._aborted = False

    def begin(self) -> None:
        """Begin a step."""
        with self._changed:
            self._taken, self._sending = (-1, 0), -1

    def taken(self, until: tuple[int, int]) -> None:
        """Say which move, by time slot and number, was taken last."""
        with self._changed:
            self._taken = until
            self._changed.notify()

    def sending(self, time_slot: int) -> None:
        """Say in which time slot sending is: all before are done."""
        if time_slot != self._sending:
            with self._changed:
                self._sending = time_slot
                self._changed.notify()

    def all_sent(self) -> None:
        """Say that nothing more is sent."""
        self.sending(_EVERYTHING)

    def await_taken(self, until: tuple[int, int]) -> None:
        """Wait until a move was taken. Raises PeerGoneError if it will not be, StalledError if it takes too long."""
        self._await(lambda: self._taken >= until, "piece to send")

    def await_sent(self, time_slot: int) -> None:
        """Wait until all of a time slot was sent: what it read may be overwritten. Raises as :meth:`await_taken`."""
        if self._sending <= time_slot:
            self._await(lambda: self._sending > time_slot, "room for a piece")

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._aborted or is_there(), self._timeout_s):
                raise StalledError(f"{self._name}: {what}: none within {self._timeout_s:g} s; raise step_timeout")
            if self._aborted:
                raise PeerGoneError(f"{self._name}: {what}: its thread failed")

    def abort(self) -> None:
        """Wake who waits, with PeerGoneError."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()


def program_algorithm(program_of: ProgramOf, expected: ExpectedOf) -> CollectiveAlgorithm:
    """Return a chunk program as an algorithm of the collective that expects ``expected``."""
    in_layout = partial(_program_flows, program_of)
    return CollectiveAlgorithm(
        partial(_program_schedule, program_of, expected), partial(_plain_flows, program_of), flows_in=in_layout
    )


def _program_schedule(program_of: ProgramOf, expected: ExpectedOf, options: ScheduleOptions) -> ProgramSchedule:
    elements, piece = options.elements, options.piece_elements
    return ProgramSchedule(program_of, options.layout, expected, elements, piece, options.dtype)


def _program_flows(program_of: ProgramOf, layout: Layout) -> Flows:
    return compiled(program_of, layout).flows()


def _plain_flows(program_of: ProgramOf, ranks: int) -> Flows:
    return _program_flows(program_of, Layout(ranks))
