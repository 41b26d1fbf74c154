"""Rings, as NCCL has them: over one connection from each rank to the next, data travels in slices from rank to rank.

A slice is forwarded as soon as it is there, so that the rounds of a collective overlap. What goes round, and what is
added to it, is the collective's own: see :mod:`traffic.collectives.operations`.

Of several channels, each is a ring over its own part of the data; where hosts have several NICs, ring r uses NIC r (of
as many as there are), as NCCL's channels do. Of several queue pairs, the slices of a ring take turns, so that hashes
choose a path for each (``NCCL_IB_QPS_PER_CONNECTION``).

Where a switch joins all GPUs of a node (NVSwitch), rings run from GPU to GPU over it, and each has a NIC of its own.
Ring c enters each node by NIC c at the first GPU that uses it, goes round, and leaves by NIC c again, as NCCL's rings
do (``NCCL_CROSS_NIC``): rails are not crossed, and planes, which no link joins, need not be. What the last GPU sends to
the next node goes by the PCIe link of the first, as if handed to it (``NCCL_PXN``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.collective import CollectiveAlgorithm, FlowsOf, ScheduleOptions, block_of
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype, ElementType
from traffic.collectives.primitives import Primitive, PrimitivesWorker, PrimitivesWorkers
from traffic.collectives.schedule import DEFAULT_SLOTS, Finished, RankContext


class PrimitivesOf(Protocol):
    """What a rank does in a ring: a module-level function, so that it can be pickled."""

    def __call__(self, ring: Ring, rank: int, /) -> Iterable[Primitive]:
        """Return a rank's primitives, in order."""


@dataclass(frozen=True)
class Rings:
    """Several rings as a schedule: each has its own part of the data, at the same time.

    ``slots``: how many slices a rank holds between receiving and sending on. Channels of the same remainder by
    ``rings`` are one ring's. Of ranks that a switch joins, ``orders`` are those in which rings go through each node,
    which take turns, and ring c has channel c of those behind all others inside nodes.
    """

    primitives_of: PrimitivesOf
    ranks: int
    elements: int
    slice_elements: int
    slots: int = DEFAULT_SLOTS
    rings: int = 1
    queue_pairs: int = 1
    dtype: ElementType = Dtype.FP32
    orders: tuple[tuple[int, ...], ...] | None = None

    @property
    def parts(self) -> tuple[Ring, ...]:
        """The rings."""
        return tuple(Ring(self, number) for number in range(self.rings))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections of all rings."""
        return tuple(sorted(edge for ring in self.parts for edge in ring.edges))

    @property
    def longest_piece(self) -> int:
        """The elements of a slice."""
        return max(ring.longest_piece for ring in self.parts)

    def shortened(self, elements: int) -> Rings:
        """Return the same rings of the first ``elements``."""
        return replace(self, elements=min(elements, self.elements))

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> PrimitivesWorkers:
        """Return a rank's part."""
        return PrimitivesWorkers([PrimitivesWorker(ring, context, finished[0]) for ring in self.parts])


@dataclass(frozen=True)
class Ring:
    """One of :class:`Rings`, by its number: its way through the ranks, and its part of the data."""

    whole: Rings
    number: int = 0

    @property
    def ranks(self) -> int:
        """How many ranks it goes through."""
        return self.whole.ranks

    @property
    def slots(self) -> int:
        """Slices that a rank holds between receiving and sending on."""
        return self.whole.slots

    @property
    def dtype(self) -> ElementType:
        """The type of the elements."""
        return self.whole.dtype

    @property
    def longest_piece(self) -> int:
        """The elements of a slice."""
        data = self.data
        return min(self.whole.slice_elements, int(data.stop - data.start))

    def primitives(self, rank: int) -> Iterable[Primitive]:
        """Return what a rank does."""
        return self.whole.primitives_of(self, rank)

    # The way through the ranks ---------------------------------------------------------------------------------------

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The connections from each rank to the next, in the order of their turns."""
        return tuple(sorted(edge for rank in range(self.ranks) for edge in self.edges_from(rank)))

    def edges_from(self, rank: int) -> tuple[Edge, ...]:
        """Return the connections from a rank to the next, in the order of their turns."""
        _, following = self.neighbours(rank)
        outer = self.whole.rings * self.whole.queue_pairs
        is_inside = following // len(self._order) == rank // len(self._order)
        if self.whole.orders is not None and is_inside:
            return (Edge(outer + self.number, rank, following),)
        return tuple(Edge(channel, rank, following) for channel in range(self.number, outer, self.whole.rings))

    def neighbours(self, rank: int) -> tuple[int, int]:
        """Return the ranks before and after a rank."""
        place = self.place_of(rank)
        return self.rank_at(place - 1), self.rank_at(place + 1)

    def rank_at(self, place: int) -> int:
        """Return the rank at a place of the ring; places go round."""
        node, within = divmod(place % self.ranks, len(self._order))
        return node * len(self._order) + self._order[within]

    def place_of(self, rank: int) -> int:
        """Return a rank's place in the ring."""
        node, within = divmod(rank, len(self._order))
        return node * len(self._order) + self._order.index(within)

    @property
    def _order(self) -> tuple[int, ...]:
        """The ranks of each node by their numbers in it, in the order in which the ring goes through them."""
        orders = self.whole.orders or ((0,),)
        return orders[self.number % len(orders)]

    # Its part of the data --------------------------------------------------------------------------------------------

    @property
    def data(self) -> slice:
        """Its part of all elements."""
        return self._part(slice(0, self.whole.elements))

    def block(self, rank: int) -> slice:
        """Return its part of a rank's block of the data, of those that differ by an element at most."""
        return self._part(block_of(rank, self.ranks, self.whole.elements))

    def _part(self, stretch: slice) -> slice:
        length, rings = stretch.stop - stretch.start, self.whole.rings
        bounds = (stretch.start + length * number // rings for number in (self.number, self.number + 1))
        return slice(*bounds)

    @property
    def loop_elements(self) -> int:
        """The most elements of a rank's segment in a loop: half of its slots, as in NCCL. With all slots free a rank
        can take in a whole segment while it still sends its own, so no two ranks wait for each other."""
        return (self.slots // 2) * self.whole.slice_elements

    def slices(self, stretch: slice) -> Iterator[slice]:
        """Yield a stretch in slices; none if it is empty."""
        return pieces(stretch.start, stretch.stop, self.whole.slice_elements)

    def block_loops(self) -> Iterator[Callable[[int], Iterator[slice]]]:
        """Yield, for each loop over the blocks of all ranks, what gives the slices of a rank's block in it."""
        blocks = [self.block(rank) for rank in range(self.ranks)]
        longest = max(block.stop - block.start for block in blocks)
        for first in range(0, longest, self.loop_elements):

            def of_block(rank: int, first: int = first) -> Iterator[slice]:
                start, stop = blocks[rank].start + first, blocks[rank].stop
                return pieces(start, min(start + self.loop_elements, stop), self.whole.slice_elements)

            yield of_block


def ring_algorithm(primitives_of: PrimitivesOf, flows: FlowsOf) -> CollectiveAlgorithm:
    """Return a collective's ring by what a rank does in it, and what goes where."""
    return CollectiveAlgorithm(partial(_rings, primitives_of), flows, has_channels=True)


def _rings(primitives_of: PrimitivesOf, options: ScheduleOptions) -> Rings:
    return Rings(
        primitives_of,
        options.ranks,
        options.elements,
        options.piece_elements,
        options.slots,
        options.channels,
        options.queue_pairs,
        options.dtype,
        options.orders,
    )


def ring_flows(share: float, ranks: int) -> list[tuple[int, int, float]]:
    """Return that each rank sends so much of the size to the next."""
    return [(rank, (rank + 1) % ranks, share) for rank in range(ranks)]
