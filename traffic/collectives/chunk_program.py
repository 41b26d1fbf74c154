"""Algorithms as programs over chunks: what each rank sends, takes and adds, as MSCCL's algorithms are written.

A program is a collective in miniature: the size S is cut into chunks, and a rank has places for them. An algorithm is
written as a sequence of copies and sums from a place of one rank to a place of another (as in MSCCLang, ASPLOS 2023).
:class:`ProgramTrace` follows which inputs each place is the sum of, and so knows at the end whether every rank has what
the collective says. What it makes of it is for two threads of each rank, one that takes and one that sends, each in one
order. Nothing is overwritten that is still to be read: values have slots of their own.

Real data is carried out in loops over a piece of every chunk, and loops overlap: in time slot t a rank does the moves
of stage s (as many transfers behind the first as their data depends on) for loop t - s. All ranks go by the order (t,
number), and a move needs only what comes before it there. So no two ranks wait for each other forever, however little
connections buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.collective import ExpectedOf, Flows, Groups, InputOf, Layout, channel_between

OWN = -1
"""As a slot: the rank's own input."""

BEHIND = 16
"""Of algorithms in which each rank talks to all others: loops that a peer may be behind, so that a rank does not wait
for one that is late while others have nothing to do."""
Place = tuple[str, int]
"""A room of a rank's memory, and the number of a chunk in it."""
DATA = "data"
"""The room that has the rank's input first and, of most algorithms, its result at the end."""
OUTPUT = "output"
SCRATCH = "scratch"


class ProgramError(ValueError):
    """A program that does not do what its collective means, or cannot be carried out."""


class Order(NamedTuple):
    """When a rank does a move: ``stage``, and among those of one stage ``number``, which counts transfers."""

    stage: int
    number: int


class Send(NamedTuple):
    """A chunk that a rank sends from a slot, once it has come there by what it took at ``after`` (None: it is own)."""

    order: Order
    edge: Edge
    chunk: int
    slot: int
    after: Order | None


class Take(NamedTuple):
    """A chunk that a rank takes from a peer (``edge``) or from its own slot ``source``, and keeps in ``slot``.

    ``base``: the slot of what is added to it; ``slot`` None: it is not read again. ``result``: its place in the rank's
    result, in chunks; None: it is none of it.
    """

    order: Order
    edge: Edge | None
    chunk: int
    source: int | None
    base: int | None
    slot: int | None
    result: int | None


@dataclass(frozen=True)
class RankProgram:
    """What one rank does, each in the order of its moves. ``slots``: how many values it holds at once, per loop."""

    sends: tuple[Send, ...]
    takes: tuple[Take, ...]
    slots: int


@dataclass(frozen=True)
class ChunkProgram:
    """A program: per rank its moves, and how large the chunks are relative to each other (``weights``).

    ``signals``: a chunk without elements is sent, too, as a message that says only that it came. ``behind``: loops that
    a peer may be behind in taking what a rank sends, while that sends to others; 0: each waits for the one before.
    """

    ranks: tuple[RankProgram, ...]
    weights: tuple[int, ...]
    signals: bool = False
    behind: int = 0

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Every connection, sorted."""
        return tuple(sorted({move.edge for rank in self.ranks for move in rank.sends}))

    @property
    def stages(self) -> int:
        """How many transfers follow each other: those of the longest dependence."""
        sent = [move.order.stage for rank in self.ranks for move in rank.sends]
        return 1 + max(sent + [move.order.stage for rank in self.ranks for move in rank.takes], default=0)

    def flows(self) -> Flows:
        """Return (from rank, to rank, multiple of the size S) of all that it sends."""
        sent: Counter[tuple[int, int]] = Counter()
        for rank in self.ranks:
            for move in rank.sends:
                sent[move.edge.dialer, move.edge.listener] += self.weights[move.chunk]
        total = sum(self.weights)
        return [(source, target, weight / total) for (source, target), weight in sorted(sent.items()) if weight]

    def bounds(self, elements: int) -> list[slice]:
        """Return the elements of each chunk, of so many."""
        total = sum(self.weights)
        ends = [elements * end // total for end in accumulate(self.weights)]
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


ProgramOf = Callable[[Layout], ChunkProgram]
"""Makes a program; picklable, hashable and without side effects."""


@lru_cache(maxsize=32)
def compiled(program_of: ProgramOf, layout: Layout) -> ChunkProgram:
    """Return a program, made once per process."""
    return program_of(layout)


class Value(NamedTuple):
    """What a place has: a chunk of the size S, of the sum of the inputs of ``ranks`` (a bit for each)."""

    chunk: int
    ranks: int

    @classmethod
    def of(cls, chunk: int, ranks: Iterable[int]) -> Value:
        """Return the sum over some ranks."""
        return cls(chunk, sum(1 << rank for rank in ranks))

    def __str__(self) -> str:
        ranks = _numbers(self.ranks)
        of = f"rank {ranks[0]}" if len(ranks) == 1 else f"the sum over ranks {', '.join(map(str, ranks))}"
        return f"chunk {self.chunk} of {of}"


@dataclass(eq=False)
class _Slot:
    """Memory of a rank for a value; ``is_read``: somebody needs it after it was written."""

    is_read: bool = False


@dataclass(eq=False)
class _Version:
    """What a place has at some time: ``slot`` None is the rank's own input; ``written`` is who wrote it."""

    value: Value
    slot: _Slot | None
    written: _DraftTake | None
    reads: int = 0

    @property
    def stage(self) -> int:
        """The stage in which it is written; before all, if it is the rank's own."""
        return -1 if self.written is None else self.written.order.stage

    def read(self) -> _Slot | None:
        """Note a reader, and return the slot."""
        self.reads += 1
        if self.slot is not None:
            self.slot.is_read = True
        return self.slot


@dataclass(eq=False)
class _DraftTake:
    order: Order
    edge: Edge | None
    chunk: int
    source: _Version | None
    base: _Slot | None
    has_base: bool
    slot: _Slot
    result: int | None = None


class _DraftSend(NamedTuple):
    order: Order
    edge: Edge
    version: _Version
    slot: _Slot | None


@dataclass(frozen=True)
class Message:
    """A chunk under way: what its place had when it was sent."""

    edge: Edge
    version: _Version
    slot: _Slot | None


@dataclass(eq=False)
class _RankTrace:
    places: dict[Place, _Version] = field(default_factory=dict)
    sends: list[_DraftSend] = field(default_factory=list)
    takes: list[_DraftTake] = field(default_factory=list)


class ProgramTrace:
    """Follows an algorithm over the chunks of all ranks, copy by copy and sum by sum, and makes a program of it.

    ``weights``: the chunks' sizes relative to each other. ``input``: as a :class:`Collective` has it; a rank's input is
    in its room DATA, chunk by chunk. All methods raise ProgramError for what no collective could mean.
    """

    def __init__(self, layout: Layout, weights: Sequence[int], input_of: InputOf) -> None:
        ranks = layout.ranks
        self._node_of = layout.node_of
        self._weights = tuple(weights)
        self._ranks = [_RankTrace() for _ in range(ranks)]
        self._number = 0
        for rank, trace in enumerate(self._ranks):
            mine = input_of(rank, ranks, len(weights))
            for chunk in range(mine.start, mine.stop):
                trace.places[DATA, chunk] = _Version(Value.of(chunk, [rank]), None, None)

    def copy(self, source: int, target: int, place: Place, to: Place | None = None, adds: bool = False) -> None:
        """Send what a place of rank ``source`` has to a place of another rank, by default the same; ``adds``: there it
        is added to what is there."""
        there = to or place
        self.take(self.send(source, target, place), there, there if adds else None)

    def add(self, source: int, target: int, place: Place, to: Place | None = None) -> None:
        """Send what a place has to another rank's, where it is added to what is there."""
        self.copy(source, target, place, to, adds=True)

    def send(self, source: int, target: int, place: Place, channel: int | None = None) -> Message:
        """Return what a place has as a message to another rank, by a connection of that channel: by default one for
        ranks of one node, and another between nodes."""
        if channel is None:
            channel = channel_between(self._node_of, source, target)
        found = self._at(source, place)
        return Message(Edge(channel, source, target), found, found.read())

    def take(self, message: Message, place: Place, added: Place | None = None) -> None:
        """Let the target of a message put it into a place of its own, with what it has in ``added`` added to it."""
        target, sent = message.edge.listener, message.version
        base = None if added is None else self._at(target, added)
        order = self._next(max(sent.stage + 1, -1 if base is None else base.stage))
        sender = self._ranks[message.edge.dialer]
        sender.sends.append(_DraftSend(order, message.edge, sent, message.slot))
        self._write(target, place, order, message.edge, sent, base)

    def move(self, rank: int, source: Place, target: Place, adds: bool = False) -> None:
        """Copy what a place of a rank has to another of its own, or add it to what is there."""
        found = self._at(rank, source)
        found.read()
        base = self._at(rank, target) if adds else None
        order = self._next(max(0, found.stage, -1 if base is None else base.stage))
        self._write(rank, target, order, None, found, base)

    def value(self, rank: int, place: Place) -> Value:
        """Return what a place has."""
        return self._at(rank, place).value

    def _at(self, rank: int, place: Place) -> _Version:
        found = self._ranks[rank].places.get(place)
        if found is None:
            raise ProgramError(f"rank {rank}: reads chunk {place[1]} of {place[0]}, in which nothing has come yet")
        return found

    def _next(self, stage: int) -> Order:
        self._number += 1
        return Order(stage, self._number)

    def _write(
        self, rank: int, place: Place, order: Order, edge: Edge | None, source: _Version, base: _Version | None
    ) -> None:
        value, slot = source.value, _Slot()
        if base is not None:
            value = self._sum(rank, place, source.value, base.value)
            if base.slot is not None and not base.reads and self._ranks[rank].places.get(place) is base:
                slot = base.slot  # Nobody else has read it, and nobody will: the sum takes its memory.
            base.read()
        local = source if edge is None else None
        base_slot = None if base is None else base.slot
        take = _DraftTake(order, edge, value.chunk, local, base_slot, base is not None, slot)
        trace = self._ranks[rank]
        trace.takes.append(take)
        trace.places[place] = _Version(value, slot, take)

    def _sum(self, rank: int, place: Place, first: Value, second: Value) -> Value:
        where = f"rank {rank}, chunk {place[1]} of {place[0]}"
        if first.chunk != second.chunk:
            raise ProgramError(f"{where}: adds up chunk {first.chunk} and chunk {second.chunk}, which are not the same")
        if twice := _numbers(first.ranks & second.ranks):
            raise ProgramError(f"{where}: the input of rank {twice[0]} is added twice")
        return Value(first.chunk, first.ranks | second.ranks)

    # The program -----------------------------------------------------------------------------------------------------

    def program(self, expected: ExpectedOf, room: str = DATA, signals: bool = False, behind: int = 0) -> ChunkProgram:
        """Return the program, whose ranks have their results in a room. Raises ProgramError naming a rank's chunk that
        is not what the collective says."""
        for rank in range(len(self._ranks)):
            self._mark_results(rank, expected, room)
        return ChunkProgram(tuple(self._compiled(trace) for trace in self._ranks), self._weights, signals, behind)

    def _mark_results(self, rank: int, expected: ExpectedOf, room: str) -> None:
        trace = self._ranks[rank]
        for one in expected(rank, len(self._ranks), len(self._weights)):
            for place in range(one.place.start, one.place.stop):
                wanted = Value.of(one.first + place - one.place.start, one.ranks)
                found = trace.places.get((room, place))
                if found is None or found.value != wanted:
                    has = "nothing" if found is None else str(found.value)
                    raise ProgramError(f"rank {rank}: chunk {place} of the result is {has}, not {wanted}")
                self._mark(rank, found, place)

    def _mark(self, rank: int, version: _Version, place: int) -> None:
        if version.written is not None and version.written.result is None:
            version.written.result = place
            return
        version.read()
        order = self._next(max(0, version.stage))
        kept = _DraftTake(order, None, version.value.chunk, version, None, False, _Slot(), place)
        self._ranks[rank].takes.append(kept)

    def _compiled(self, trace: _RankTrace) -> RankProgram:
        numbers: dict[int, int] = {}

        def number(slot: _Slot | None) -> int:
            return OWN if slot is None else numbers.setdefault(id(slot), len(numbers))

        sends = [
            Send(one.order, one.edge, one.version.value.chunk, number(one.slot), _written(one.version))
            for one in trace.sends
        ]
        takes = [
            Take(
                one.order,
                one.edge,
                one.chunk,
                None if one.source is None else number(one.source.slot),
                number(one.base) if one.has_base else None,
                number(one.slot) if one.slot.is_read else None,
                one.result,
            )
            for one in trace.takes
        ]
        return RankProgram(tuple(sorted(sends)), tuple(sorted(takes, key=lambda one: one.order)), len(numbers))


def _written(version: _Version) -> Order | None:
    return None if version.written is None else version.written.order


def _numbers(ranks: int) -> list[int]:
    return [rank for rank in range(ranks.bit_length()) if ranks >> rank & 1]


def place_of_result(expected: ExpectedOf, rank: int, program: ChunkProgram, elements: int) -> Mapping[int, int]:
    """Return, for each chunk of a rank's result, at which element of the real result it begins."""
    bounds = program.bounds(elements)
    ranks, chunks = len(program.ranks), len(program.weights)
    found: dict[int, int] = {}
    real = expected(rank, ranks, elements)
    for small, one in zip(expected(rank, ranks, chunks), real, strict=True):
        for number in range(small.place.start, small.place.stop):
            chunk = small.first + number - small.place.start
            found[number] = one.place.start + bounds[chunk].start - one.first
    return found


def equal_groups(layout: Layout) -> Groups:
    """Return the layout's groups, which have equally many ranks; without any, as many ranks in a row as come closest to
    the root of their number. Raises ProgramError if groups differ in length or are not all ranks."""
    if layout.groups is None:
        length = max(one for one in range(1, layout.ranks + 1) if layout.ranks % one == 0 and one * one <= layout.ranks)
        return tuple(tuple(range(first, first + length)) for first in range(0, layout.ranks, length))
    lengths = sorted({len(group) for group in layout.groups})
    if len(lengths) != 1:
        raise ProgramError(
            f"nodes have {lengths[0]} to {lengths[-1]} ranks; a hierarchical algorithm needs equally many"
        )
    if sorted(rank for group in layout.groups for rank in group) != list(range(layout.ranks)):
        raise ProgramError(f"groups {layout.groups} are not each of ranks 0 to {layout.ranks - 1} once")
    return layout.groups
