"""Chunk programs as schedules: how a rank carries its part out, with one thread that takes and one that sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from traffic.collectives.chunk_connection import Edge, FramesUnderWay
from traffic.collectives.chunk_program import (
    OWN,
    ChunkProgram,
    ProgramOf,
    Send,
    Take,
    compiled,
    place_of_result,
)
from traffic.collectives.collective import CollectiveAlgorithm, ExpectedOf, Flows, Layout, ScheduleOptions, block_of
from traffic.collectives.elements import Dtype, Elements, ElementType
from traffic.collectives.progress import EVERYTHING, Progress
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext

_AHEAD = 2
"""Time slots that taking may be ahead of what was sent."""
_Move = TypeVar("_Move", Send, Take)


@dataclass(frozen=True)
class ProgramSchedule:
    """A chunk program over real data. ``expected``: what its collective says that ranks get; ``piece_elements``: the
    most elements of a chunk that travel in one frame; ``slots``: see :attr:`skew`."""

    program_of: ProgramOf
    layout: Layout
    expected: ExpectedOf
    elements: int
    piece_elements: int
    dtype: ElementType = Dtype.FP32
    slots: int = DEFAULT_SLOTS

    @property
    def skew(self) -> int:
        """How many time slots a stage is behind the one before it: so many that a rank sends as many pieces meanwhile
        as it has ``slots``, while what it waits for is on its way."""
        most = max(len(rank.sends) for rank in self.program.ranks)
        return max(1, -(-self.slots // max(1, most)))

    @property
    def overlap(self) -> Overlap:
        """How loops overlap."""
        return Overlap(self.loops, self.program.stages, self.skew, _AHEAD + self.program.behind)

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


@dataclass(frozen=True)
class Overlap:
    """How loops overlap: in time slot t, stage s is that of loop t - skew x s. ``ahead``: time slots that taking may be
    ahead of sending; a rank has memory for so many loops beyond those under way."""

    loops: int
    stages: int
    skew: int
    ahead: int

    @property
    def held_loops(self) -> int:
        """Of how many loops a rank holds values at once."""
        return max(1, min(self.loops, self.skew * (self.stages - 1) + 1 + self.ahead))

    @property
    def lead(self) -> int:
        """Time slots that sending may be ahead of taking: a little more than what travels takes."""
        return self.skew + 2

    def slot_of(self, loop: int, stage: int) -> int:
        """Return the time slot of a stage of a loop."""
        return loop + self.skew * stage

    def in_order(self, moves: Sequence[_Move]) -> Iterator[tuple[int, int, _Move]]:
        """Yield (time slot, loop, move) of all loops over a rank's moves."""
        ordered = sorted(moves, key=lambda one: one.order.number)
        for time_slot in range(self.loops + self.skew * (self.stages - 1) if self.loops else 0):
            for move in ordered:
                loop = time_slot - self.skew * move.order.stage
                if 0 <= loop < self.loops:
                    yield time_slot, loop, move


class ProgramWorker:
    """A rank's part in a :class:`ProgramSchedule`."""

    def __init__(self, schedule: ProgramSchedule, context: RankContext, finished: Finished) -> None:
        program = schedule.program
        mine = program.ranks[context.rank]
        (self._own,) = context.inputs
        self._context = context
        self._finished = finished
        self._pieces = schedule.pieces()
        self._starts = place_of_result(schedule.expected, context.rank, program, schedule.elements)
        self._bounds = program.bounds(schedule.elements)
        self._program = program
        self._mine = mine
        self._overlap = schedule.overlap
        shape = (self._overlap.held_loops, mine.slots, schedule.longest_piece)
        self._memory = np.empty(shape, schedule.dtype.numpy)
        self._spare = np.empty(schedule.longest_piece, schedule.dtype.numpy)
        self._progress = Progress(f"rank {context.rank}", context.timeout_s)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's two tasks."""
        self._progress.begin()
        return [partial(self._take_all, step), partial(self._send_all, step)]

    def abort(self) -> None:
        """Wake both threads, as far as they wait for each other."""
        self._progress.abort()

    def _send_all(self, step: int) -> None:
        numbers, frames, last = Counter[Edge](), FramesUnderWay(), -1
        for time_slot, loop, move in self._overlap.in_order(self._mine.sends):
            if time_slot != last:
                last = time_slot
                frames.finish(before=time_slot - self._program.behind)
                self._progress.sending(time_slot - self._program.behind)
                self._keep_pace(time_slot - self._overlap.lead, frames)
            piece = self._pieces[loop][move.chunk]
            if piece.start == piece.stop and not self._program.signals:
                continue
            if move.after is not None:
                taken = (self._overlap.slot_of(loop, move.after.stage), move.after.number)
                if not self._progress.has_taken(taken):
                    frames.finish()  # What peers have of this rank may be what they wait for.
                    self._progress.await_taken(taken)
            frames.send(
                self._context.links[move.edge], step, numbers[move.edge], self._value(loop, move.slot, piece), time_slot
            )
            numbers[move.edge] += 1
            if not self._program.behind:
                frames.finish()
        frames.finish()
        self._progress.all_sent()

    def _keep_pace(self, time_slot: int, frames: FramesUnderWay) -> None:
        """Wait until all of a time slot was taken. Ranks that run ahead fill queues at each other's receivers: with 8
        on a switch, a direct reduce-scatter so reached 75 % of its NICs instead of 99 %."""
        if not self._progress.is_taking_after(time_slot):
            frames.finish()
            self._progress.await_taking_after(time_slot)

    def _take_all(self, step: int) -> None:
        numbers = Counter[Edge]()
        for time_slot, loop, move in self._overlap.in_order(self._mine.takes):
            self._progress.taking(time_slot)
            self._progress.await_sent(time_slot - self._overlap.ahead)
            piece = self._pieces[loop][move.chunk]
            if piece.start != piece.stop or self._program.signals:
                self._take(step, loop, move, piece, numbers)
            self._progress.taken((time_slot, move.order.number))
        self._progress.taking(EVERYTHING)

    def _take(self, step: int, loop: int, move: Take, piece: slice, numbers: Counter[Edge]) -> None:
        length = piece.stop - piece.start
        into = self._spare if move.slot is None else self._memory[loop % self._overlap.held_loops, move.slot]
        into = into[:length]
        if move.edge is not None:
            found = into if move.base is None else self._spare[:length]
            self._context.links[move.edge].receive(step, numbers[move.edge], found)
            numbers[move.edge] += 1
        else:
            assert move.source is not None, "what comes from nobody is in a slot of the rank's own"
            found = self._value(loop, move.source, piece)
        if move.base is not None:
            found = self._context.combine(self._value(loop, move.base, piece), found, into)
        elif move.slot is not None and move.edge is None:
            into[:] = found
        if move.result is not None and length:
            start = self._starts[move.result] + piece.start - self._bounds[move.chunk].start
            self._finished(slice(start, start + length), found)

    def _value(self, loop: int, slot: int, piece: slice) -> Elements:
        if slot == OWN:
            return self._own[piece]
        found: Elements = self._memory[loop % self._overlap.held_loops, slot, : piece.stop - piece.start]
        return found


def program_algorithm(program_of: ProgramOf, expected: ExpectedOf) -> CollectiveAlgorithm:
    """Return a chunk program as an algorithm of the collective that expects ``expected``."""
    in_layout = partial(_program_flows, program_of)
    return CollectiveAlgorithm(
        partial(_program_schedule, program_of, expected), partial(_plain_flows, program_of), flows_in=in_layout
    )


def _program_schedule(program_of: ProgramOf, expected: ExpectedOf, options: ScheduleOptions) -> ProgramSchedule:
    elements, piece = options.elements, options.piece_elements
    return ProgramSchedule(program_of, options.layout, expected, elements, piece, options.dtype, options.slots)


def _program_flows(program_of: ProgramOf, layout: Layout) -> Flows:
    return compiled(program_of, layout).flows()


def _plain_flows(program_of: ProgramOf, ranks: int) -> Flows:
    return _program_flows(program_of, Layout(ranks))
