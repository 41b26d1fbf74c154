"""Collectives in which nothing is added up, carried out directly: each block goes straight from rank to rank.

A rank sends to all of its peers side by side, as NCCL's grouped sends and receives do: each block is spread in pieces
over the whole time, so that long blocks and short ones end together, and no uplink carries several long ones at once.
Pieces have one order on all ranks, by how much of their block goes before them, so no ranks wait for each other in a
circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.collective import (
    CollectiveAlgorithm,
    Flows,
    FlowsOf,
    Groups,
    Layout,
    ScheduleOptions,
    channel_between,
)
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype
from traffic.collectives.primitives import Primitive, PrimitivesWorker
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext


class Block(NamedTuple):
    """What goes from a rank to another: elements of the source's input, and where in the target's result they begin."""

    own: slice
    place: int


class BlockOf(Protocol):
    """Says what goes from rank to rank: a module-level function or a frozen dataclass, so that it can be pickled."""

    def __call__(self, source: int, target: int, ranks: int, elements: int, /) -> Block:
        """Return it; an empty slice if nothing does. Of a rank to itself, too: that stays where it is."""


Pairs = Callable[[int], Sequence[tuple[int, int]]]
"""Gives all pairs of ranks that may exchange something, whatever the size: a rank with itself, too."""


@dataclass(frozen=True)
class Exchange:
    """A schedule in which each of some pairs of ranks has a connection from the first to the second."""

    pairs: Pairs
    block_of: BlockOf
    ranks: int
    elements: int
    piece_elements: int
    slots: int = DEFAULT_SLOTS
    dtype: Dtype = Dtype.FP32
    groups: Groups | None = None

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections."""
        node_of = Layout(self.ranks, self.groups).node_of
        between = (pair for pair in self.pairs(self.ranks) if pair[0] != pair[1])
        return tuple(sorted(Edge(channel_between(node_of, *pair), *pair) for pair in between))

    @property
    def longest_piece(self) -> int:
        """The elements of a piece."""
        blocks = (self.block_of(*pair, self.ranks, self.elements).own for pair in self.pairs(self.ranks))
        return min(self.piece_elements, max((block.stop - block.start for block in blocks), default=0))

    def shortened(self, elements: int) -> Exchange:
        """Return the same of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def primitives(self, rank: int) -> Iterator[Primitive]:
        """Yield what a rank does: its own block stays, then the pieces of all peers in their order."""
        pairs = set(self.pairs(self.ranks))
        if (rank, rank) in pairs:
            yield from self._kept(rank)
        found: list[tuple[float, int, Primitive]] = []
        for distance in range(1, self.ranks):
            target, source = (rank + distance) % self.ranks, (rank - distance) % self.ranks
            if (rank, target) in pairs:
                sent = [Primitive(own=piece, target=target) for piece in self._sent(rank, target)]
                found += _spread(sent, distance)
            if (source, rank) in pairs:
                received = [Primitive(source, result=piece) for piece in self._received(rank, source)]
                found += _spread(received, distance)
        yield from (primitive for _, _, primitive in sorted(found, key=lambda one: one[:2]))

    def _kept(self, rank: int) -> Iterator[Primitive]:
        for own, result in zip(self._sent(rank, rank), self._received(rank, rank), strict=True):
            yield Primitive(own=own, result=result)

    def _sent(self, rank: int, target: int) -> Iterator[slice]:
        own, _ = self.block_of(rank, target, self.ranks, self.elements)
        return pieces(own.start, own.stop, self.piece_elements)

    def _received(self, rank: int, source: int) -> Iterator[slice]:
        own, place = self.block_of(source, rank, self.ranks, self.elements)
        return pieces(place, place + own.stop - own.start, self.piece_elements)

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> PrimitivesWorker:
        """Return a rank's part."""
        return PrimitivesWorker(self, context, finished[0])


def _spread(block: Sequence[Primitive], distance: int) -> list[tuple[float, int, Primitive]]:
    """Return the pieces of a block with their place in the order of all: how much of it goes before their middle."""
    return [((number + 0.5) / len(block), distance, piece) for number, piece in enumerate(block)]


def all_pairs(ranks: int) -> list[tuple[int, int]]:
    """Return that each rank may send to each."""
    return [(source, target) for source in range(ranks) for target in range(ranks)]


def exchange_algorithm(pairs: Pairs, block_of: BlockOf, flows: FlowsOf) -> CollectiveAlgorithm:
    """Return a direct exchange of blocks as an algorithm."""
    return CollectiveAlgorithm(partial(_exchange, pairs, block_of), flows)


def _exchange(pairs: Pairs, block_of: BlockOf, options: ScheduleOptions) -> Exchange:
    return Exchange(
        pairs,
        block_of,
        options.ranks,
        options.elements,
        options.piece_elements,
        options.slots,
        options.dtype,
        options.groups,
    )


def equal_flows(pairs: Pairs, ranks: int) -> Flows:
    """Return that a block of n goes from rank to rank wherever they are not the same."""
    return [(source, target, 1 / ranks) for source, target in pairs(ranks) if source != target]
