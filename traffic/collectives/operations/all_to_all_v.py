"""All-to-all with blocks of unequal length: what rank i has for rank j becomes rank j's block of rank i.

Without counts the blocks grow with the distance from rank to rank: of n ranks' size S, 2k/n^2 goes to the rank k places
on, and 1/n stays, so each rank sends and receives (n-1)/n S as in an all-to-all, 2/n^2 to 2(n-1)/n^2 to one peer.
:func:`all_to_all_of` makes one of any counts, in which the busiest row or column binds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from traffic.collectives.collective import Collective, Expected, Flows, of_one_rank
from traffic.collectives.exchange import Block, all_pairs, exchange_algorithm

Counts = tuple[tuple[int, ...], ...]
"""Elements from each rank (rows) to each (columns)."""


def growing(ranks: int) -> Counts:
    """Return the counts for a size of n^2 elements, without any by the user."""
    return tuple(tuple(2 * ((target - source) % ranks) or ranks for target in range(ranks)) for source in range(ranks))


def size_of(counts: Counts) -> int:
    """Return the size: the most elements that a rank has before or after."""
    return max(max(map(sum, counts)), max(map(sum, zip(*counts, strict=True))))


@dataclass(frozen=True)
class Blocks:
    """Where in inputs and results the blocks are, of counts that are scaled to a size; without counts, growing ones.

    A rank's blocks are scaled in the order of its peers' distances, so that equal rows are cut alike.
    """

    counts: Counts | None = None

    def lengths(self, ranks: int, elements: int) -> Counts:
        """Return the elements from each rank to each. Raises ValueError if the counts are of other ranks."""
        return _lengths(self._of(ranks), elements)

    def _of(self, ranks: int) -> Counts:
        if self.counts is not None and len(self.counts) != ranks:
            raise ValueError(f"counts of {len(self.counts)} ranks are not those of {ranks}; give one row per rank")
        return self.counts or growing(ranks)

    def input(self, rank: int, ranks: int, elements: int) -> slice:
        """Return what a rank has."""
        return slice(0, sum(self.lengths(ranks, elements)[rank]))

    def __call__(self, source: int, target: int, ranks: int, elements: int) -> Block:
        """Return what goes from rank to rank."""
        lengths = self.lengths(ranks, elements)
        first = sum(lengths[source][:target])
        return Block(slice(first, first + lengths[source][target]), sum(row[target] for row in lengths[:source]))

    def expected(self, rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
        """Return that a rank gets, one behind the other, what all ranks have for it."""
        blocks = (self(source, rank, ranks, elements) for source in range(ranks))
        return tuple(
            Expected(slice(one.place, one.place + one.own.stop - one.own.start), (source,), one.own.start)
            for source, one in enumerate(blocks)
        )

    def flows(self, ranks: int) -> Flows:
        """Return what goes where. Raises ValueError as :meth:`lengths`."""
        counts = self._of(ranks)
        size = size_of(counts)
        return [
            (source, target, counts[source][target] / size)
            for source, target in all_pairs(ranks)
            if source != target and counts[source][target]
        ]


@lru_cache(maxsize=64)
def _lengths(counts: Counts, elements: int) -> Counts:
    ranks, size = len(counts), size_of(counts)
    found = []
    for source, row in enumerate(counts):
        lengths, before = [0] * ranks, 0
        for distance in range(ranks):
            target = (source + distance) % ranks
            lengths[target] = elements * (before + row[target]) // size - elements * before // size
            before += row[target]
        found.append(tuple(lengths))
    return tuple(found)


_GROWING = Blocks()


def input_of(rank: int, ranks: int, elements: int) -> slice:
    """Return what a rank has, of growing counts."""
    return _GROWING.input(rank, ranks, elements)


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return what a rank gets, of growing counts."""
    return _GROWING.expected(rank, ranks, elements)


ALL_TO_ALL_V = Collective(
    name="all_to_all_v",
    size="the most that a rank has, before or after",
    input=input_of,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": exchange_algorithm(all_pairs, _GROWING, _GROWING.flows)},
    in_place=False,
)


def all_to_all_of(counts: Sequence[Sequence[int]]) -> Collective:
    """Return the all-to-all-v of some counts: elements from each rank (rows) to each (columns). Its size is
    :func:`size_of` them. Raises ValueError unless they are a square of numbers from 0 on, not all 0."""
    made = tuple(tuple(row) for row in counts)
    if any(len(row) != len(made) for row in made):
        raise ValueError(f"counts: {len(made)} rows of {sorted({len(row) for row in made})} numbers; give a square")
    if (least := min((min(row) for row in made), default=0)) < 0:
        raise ValueError(f"counts: {least} elements; give 0 or more")
    if not made or not size_of(made):
        raise ValueError("counts: nothing goes anywhere; give one that is not 0")
    blocks = Blocks(made)
    algorithm = exchange_algorithm(all_pairs, blocks, blocks.flows)
    return replace(ALL_TO_ALL_V, input=blocks.input, expected=blocks.expected, algorithms={"direct": algorithm})
