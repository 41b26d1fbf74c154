"""All-to-all: rank i's block j becomes rank j's block i.

It is direct: in round k a rank sends to the rank k places after it, and receives from the rank k places before it, as
NCCL does (``ncclAlltoAll``, grouped sends and receives). Unlike there, one peer follows the other in either direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.collective import (
    Collective,
    CollectiveAlgorithm,
    Expected,
    ScheduleOptions,
    all_elements,
    block_of,
    of_one_rank,
)
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype
from traffic.collectives.primitives import Primitive, PrimitivesWorker
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that a rank gets, one behind the other, the blocks that all ranks have for it."""
    first = block_of(rank, ranks, elements).start
    places = (_place(rank, source, ranks, elements) for source in range(ranks))
    return tuple(Expected(place, (source,), first) for source, place in enumerate(places))


def _place(rank: int, source: int, ranks: int, elements: int) -> slice:
    """Return where in a rank's result the block of a source is."""
    block = block_of(rank, ranks, elements)
    length = block.stop - block.start
    return slice(source * length, (source + 1) * length)


@dataclass(frozen=True)
class DirectAllToAll:
    """A schedule in which each rank has a connection to every other."""

    ranks: int
    elements: int
    piece_elements: int
    slots: int = DEFAULT_SLOTS
    dtype: Dtype = Dtype.FP32

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections from each rank to each other."""
        ranks = range(self.ranks)
        return tuple(Edge(0, source, target) for source in ranks for target in ranks if source != target)

    @property
    def longest_piece(self) -> int:
        """The elements of a piece."""
        return min(self.piece_elements, -(-self.elements // self.ranks))

    def shortened(self, elements: int) -> DirectAllToAll:
        """Return the same of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def primitives(self, rank: int) -> Iterator[Primitive]:
        """Yield what a rank does: its own block stays, then a peer in each direction per round."""
        for own, result in zip(self._sent(rank, rank), self._received(rank, rank), strict=True):
            yield Primitive(own=own, result=result)
        for distance in range(1, self.ranks):
            target, source = (rank + distance) % self.ranks, (rank - distance) % self.ranks
            yield from (Primitive(own=piece, target=target) for piece in self._sent(rank, target))
            yield from (Primitive(source, result=piece) for piece in self._received(rank, source))

    def _sent(self, rank: int, target: int) -> Iterator[slice]:
        block = block_of(target, self.ranks, self.elements)
        return pieces(block.start, block.stop, self.piece_elements)

    def _received(self, rank: int, source: int) -> Iterator[slice]:
        place = _place(rank, source, self.ranks, self.elements)
        return pieces(place.start, place.stop, self.piece_elements)

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> PrimitivesWorker:
        """Return a rank's part."""
        return PrimitivesWorker(self, context, finished[0])


def _direct(options: ScheduleOptions) -> DirectAllToAll:
    return DirectAllToAll(options.ranks, options.elements, options.piece_elements, options.slots, options.dtype)


def _direct_flows(ranks: int) -> list[tuple[int, int, float]]:
    return [(source, target, 1 / ranks) for source in range(ranks) for target in range(ranks) if source != target]


ALL_TO_ALL = Collective(
    name="all_to_all",
    size="what each rank has before",
    input=all_elements,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={"direct": CollectiveAlgorithm(_direct, _direct_flows)},
)
