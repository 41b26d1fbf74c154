"""A collective as one value: what each rank has and gets, how its bandwidth counts, and the algorithms that it has.

nccl-tests has one struct per collective likewise (NVIDIA/nccl-tests, ``struct testColl`` in ``src/common.h``). Elements
are counted in place, as there: a rank's input and its result are parts of one buffer. Unlike there, the size is not
rounded down to blocks of equal length: those of ranks differ by an element at most, so any number of elements will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from traffic.collectives.elements import Dtype
from traffic.collectives.schedule import DEFAULT_SLOTS, Schedule

FlowsOf = Callable[[int], list[tuple[int, int, float]]]
"""Gives (from rank, to rank, multiple of the size S) of all that a step over so many ranks sends."""
ROOT = 0
"""The rank that collectives with a root begin or end at, as nccl-tests' default has it."""


@dataclass(frozen=True)
class Expected:
    """A stretch of a rank's result, ``place``: elements of the inputs of ``ranks`` from ``first`` on, added up; of one
    rank, its own."""

    place: slice
    ranks: tuple[int, ...]
    first: int

    def __str__(self) -> str:
        if len(self.ranks) == 1:
            return f"the input of rank {self.ranks[0]}"
        return f"the sum over {len(self.ranks)} ranks"


class InputOf(Protocol):
    """Says which elements of the size S are a rank's input."""

    def __call__(self, rank: int, ranks: int, elements: int, /) -> slice:
        """Return them; an empty slice if it has none."""


class ExpectedOf(Protocol):
    """Says what a rank's result is: a module-level function, so that it can be pickled."""

    def __call__(self, rank: int, ranks: int, elements: int, /) -> tuple[Expected, ...]:
        """Return the stretches of the result, none of which overlap; none if it has no result."""


@dataclass(frozen=True)
class ScheduleOptions:
    """What an algorithm makes a schedule for. ``piece_elements``: the most that travels in one frame.

    ``channels``, ``queue_pairs`` and ``orders`` are for algorithms with channels: see :mod:`traffic.collectives.ring`.
    """

    ranks: int
    elements: int
    piece_elements: int
    slots: int = DEFAULT_SLOTS
    dtype: Dtype = Dtype.FP32
    channels: int = 1
    queue_pairs: int = 1
    orders: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class CollectiveAlgorithm:
    """A way to carry a collective out: its schedule, and in closed form what goes where.

    ``has_channels``: whether several channels and queue pairs can share its data, and orders through nodes are its own.
    """

    schedule: Callable[[ScheduleOptions], Schedule]
    flows: FlowsOf
    has_channels: bool = False

    def sent_fraction(self, ranks: int) -> float:
        """Return what the busiest rank sends, as a multiple of the size."""
        sent = [0.0] * ranks
        for source, _, share in self.flows(ranks):
            sent[source] += share
        return max(sent)


@dataclass(frozen=True)
class Collective:
    """A collective operation over two or more ranks. ``size``: what its size S is, by nccl-tests' convention.

    ``input``: what of S a rank has before; ``expected``: what it has after; ``busbw_factor``: busbw / algbw by the
    number of ranks; ``algorithms``: by their names, the default first; ``root``: the rank at which all begins or ends,
    if there is one.
    """

    name: str
    size: str
    input: InputOf
    expected: ExpectedOf
    busbw_factor: Callable[[int], float]
    algorithms: Mapping[str, CollectiveAlgorithm]
    root: int | None = None

    @property
    def reduces(self) -> bool:
        """Whether inputs of several ranks are added up."""
        return any(len(one.ranks) > 1 for rank in range(2) for one in self.expected(rank, 2, 2))

    def count(self, ranks: int, elements: int) -> int:
        """Return the count that nccl-tests prints of a size: all elements, or those of a block where ranks have one."""
        place = self.expected(self.root or 0, ranks, elements)[0].place
        return int(place.stop - place.start)

    def algorithm(self, name: str | None) -> CollectiveAlgorithm:
        """Return an algorithm by its name; without one, the default. Raises ValueError if it has none of that name."""
        found = next(iter(self.algorithms)) if name is None else name
        if found not in self.algorithms:
            raise ValueError(f"{found!r} is no algorithm of {self.name}; use one of {', '.join(self.algorithms)}")
        return self.algorithms[found]


def block_of(rank: int, ranks: int, elements: int) -> slice:
    """Return a rank's block of the elements, of those that differ by an element at most."""
    return slice(elements * rank // ranks, elements * (rank + 1) // ranks)


def all_elements(rank: int, ranks: int, elements: int) -> slice:
    """Return that a rank's input is all elements."""
    return slice(0, elements)


def at_root(rank: int, ranks: int, elements: int) -> slice:
    """Return that the root has all elements, and the others none."""
    return slice(0, elements if rank == ROOT else 0)


def of_one_rank(ranks: int) -> float:
    """Return the busbw factor where each rank sends or receives all but its own block."""
    return (ranks - 1) / ranks


def of_all_data(ranks: int) -> float:
    """Return the busbw factor where all data crosses each link once."""
    return 1.0
