"""A collective as one value: what each rank has and gets, how its bandwidth counts, and the algorithms that it has.

nccl-tests has one struct per collective likewise (NVIDIA/nccl-tests, ``struct testColl`` in ``src/common.h``). Elements
are counted in place, as there: a rank's input and its result are parts of one buffer. Unlike there, the size is not
rounded down to blocks of equal length: those of ranks differ by an element at most, so any number of elements will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from traffic.collectives.elements import Dtype, ElementType
from traffic.collectives.schedule import DEFAULT_SLOTS, Schedule

Flows = list[tuple[int, int, float]]
"""(From rank, to rank, multiple of the size S) of all that a step sends."""
FlowsOf = Callable[[int], Flows]
"""Gives what a step over so many ranks sends."""
Groups = tuple[tuple[int, ...], ...]
"""Ranks by the node that they share."""
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
class Layout:
    """How many ranks there are, which of them share a node (``groups``; None: not known), and how many of the last ones
    are servers without data of their own."""

    ranks: int
    groups: Groups | None = None
    servers: int = 0

    @property
    def node_of(self) -> Mapping[int, int]:
        """The number of each rank's node; nothing where nodes are not known."""
        return {rank: number for number, group in enumerate(self.groups or ()) for rank in group}


def channel_between(node_of: Mapping[int, int], source: int, target: int) -> int:
    """Return the channel of two ranks, by which a job chooses their addresses: 0 between nodes, 1 in a node."""
    return int(source in node_of and node_of[source] == node_of.get(target))


@dataclass(frozen=True)
class ScheduleOptions:
    """What an algorithm makes a schedule for. ``piece_elements``: the most that travels in one frame.

    ``channels``, ``queue_pairs`` and ``orders`` are for algorithms with channels: see :mod:`traffic.collectives.ring`.
    ``groups`` and ``servers``: as in :class:`Layout`.
    """

    ranks: int
    elements: int
    piece_elements: int
    slots: int = DEFAULT_SLOTS
    dtype: ElementType = Dtype.FP32
    channels: int = 1
    queue_pairs: int = 1
    orders: tuple[tuple[int, ...], ...] | None = None
    groups: Groups | None = None
    servers: int = 0

    @property
    def layout(self) -> Layout:
        """The ranks, their nodes and the servers among them."""
        return Layout(self.ranks, self.groups, self.servers)


@dataclass(frozen=True)
class CollectiveAlgorithm:
    """A way to carry a collective out: its schedule, and in closed form what goes where.

    ``has_channels``: whether several channels and queue pairs can share its data, and orders through nodes are its own.
    ``flows_in``: where what it sends depends on who shares a node, or on servers; ``flows`` is that without either.
    """

    schedule: Callable[[ScheduleOptions], Schedule]
    flows: FlowsOf
    has_channels: bool = False
    flows_in: Callable[[Layout], Flows] | None = None

    def flows_over(self, layout: Layout) -> Flows:
        """Return what a step sends. Raises ValueError for a layout that it cannot be carried out on."""
        return self.flows(layout.ranks) if self.flows_in is None else self.flows_in(layout)

    def busiest_fraction(self, layout: Layout) -> float:
        """Return what the busiest rank sends or receives, whichever is more, as a multiple of the size: with links that
        carry both at once, the time of a step is at least that over their rate. Raises as :meth:`flows_over`."""
        busy = [[0.0, 0.0] for _ in range(layout.ranks)]
        for source, target, share in self.flows_over(layout):
            busy[source][0] += share
            busy[target][1] += share
        return max(max(one) for one in busy)

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
    if there is one; ``in_place``: a rank's result may take the place of its input; ``synchronises``: no rank has ended
    before all have begun, whatever the size; ``serving``: makes it the same over ranks of which so many of the last are
    servers, if it knows such.

    The line is drawn at elements of an array: what a rank has, gets and sends is said of numbers and ranks alone, so
    that it can be verified without a packet, and played over sockets, through nodes and by any transport.

    Example: all of a rank's data goes to the rank before it, by blocks that go straight there::

        def to_last(ranks):
            return [(rank, (rank - 1) % ranks) for rank in range(ranks)]

        def expected(rank, ranks, elements):
            return (Expected(slice(0, elements), ((rank + 1) % ranks,), 0),)

        def exchanged(source, target, ranks, elements):
            return Block(slice(0, elements), 0)

        def flows(ranks):
            return [(source, target, 1.0) for source, target in to_last(ranks)]

        SHIFT = Collective(
            name="shift",
            size="what each rank sends",
            input=all_elements,
            expected=expected,
            busbw_factor=of_all_data,
            algorithms={"direct": exchange_algorithm(to_last, exchanged, flows)},
            in_place=False,
        )
    """

    name: str
    size: str
    input: InputOf
    expected: ExpectedOf
    busbw_factor: Callable[[int], float]
    algorithms: Mapping[str, CollectiveAlgorithm]
    root: int | None = None
    in_place: bool = True
    synchronises: bool = False
    serving: Callable[[int], Collective] | None = None

    def with_servers(self, servers: int) -> Collective:
        """Return it over ranks of which the last ``servers`` have no data. Raises ValueError if it knows no servers."""
        if not servers:
            return self
        if self.serving is None:
            raise ValueError(f"{self.name} has no servers; leave them out, or use push_pull")
        return self.serving(servers)

    def with_algorithm(self, name: str, algorithm: CollectiveAlgorithm) -> Collective:
        """Return it with one algorithm only."""
        return replace(self, algorithms={name: algorithm})

    @property
    def reduces(self) -> bool:
        """Whether inputs of several ranks are added up."""
        return any(len(one.ranks) > 1 for rank in range(2) for one in self.expected(rank, 2, 2))

    def count(self, ranks: int, elements: int) -> int:
        """Return the count that nccl-tests prints of a size: all elements, or those of a block where ranks have one."""
        found = self.expected(self.root or 0, ranks, elements)
        return int(found[0].place.stop - found[0].place.start) if found else 0

    def algorithm(self, name: str | None) -> CollectiveAlgorithm:
        """Return an algorithm by its name; without one, the default. Raises ValueError if it has none of that name."""
        found = next(iter(self.algorithms)) if name is None else name
        if found not in self.algorithms:
            raise ValueError(f"{found!r} is not an algorithm of {self.name}; use one of {', '.join(self.algorithms)}")
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


def no_elements(rank: int, ranks: int, elements: int) -> slice:
    """Return that a rank's input is nothing."""
    return slice(0, 0)


def sum_everywhere(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets the sum over all."""
    return (Expected(slice(0, elements), tuple(range(ranks)), 0),)


def of_one_rank(ranks: int) -> float:
    """Return the busbw factor where each rank sends or receives all but its own block."""
    return (ranks - 1) / ranks


def of_all_data(ranks: int) -> float:
    """Return the busbw factor where all data crosses each link once."""
    return 1.0
