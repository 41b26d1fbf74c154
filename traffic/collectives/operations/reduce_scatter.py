"""Reduce-scatter: every rank gets its block of the sum of all inputs.

In the ring a block begins at the rank after its own, each rank on its way adds its input, and its own adds the last.
Directly, each rank sends each other one its block, and adds up what it gets.
"""

from __future__ import annotations

from collections.abc import Iterator

from traffic.collectives.chunk_program import DATA, ChunkProgram, ProgramTrace
from traffic.collectives.collective import Collective, Expected, Layout, all_elements, block_of, of_one_rank
from traffic.collectives.primitives import Primitive
from traffic.collectives.program_schedule import program_algorithm
from traffic.collectives.ring import Ring, ring_algorithm, ring_flows


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets its block of the sum, at its place."""
    block = block_of(rank, ranks, elements)
    return (Expected(block, tuple(range(ranks)), block.start),)


def ring_primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    """Yield a rank's primitives: in each loop the block of the rank before it, then those before that, its own last."""
    before, after = ring.neighbours(rank)
    place = ring.place_of(rank)
    for slices_of in ring.block_loops():
        for piece in slices_of(before):
            yield Primitive(own=piece, target=after)
        for back in range(2, ring.ranks + 1):
            is_own = back == ring.ranks
            for piece in slices_of(ring.rank_at(place - back)):
                yield Primitive(before, piece, piece if is_own else None, None if is_own else after)


def _ring_flows(ranks: int) -> list[tuple[int, int, float]]:
    return ring_flows(of_one_rank(ranks), ranks)


def direct(layout: Layout) -> ChunkProgram:
    """Return the program in which every block goes straight to its rank, one distance after the other."""
    trace = ProgramTrace(layout, [1] * layout.ranks, all_elements)
    for distance in range(1, layout.ranks):
        for rank in range(layout.ranks):
            target = (rank + distance) % layout.ranks
            trace.add(rank, target, (DATA, target))
    return trace.program(expected)


REDUCE_SCATTER = Collective(
    name="reduce_scatter",
    size="what each rank has before",
    input=all_elements,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={
        "ring": ring_algorithm(ring_primitives, _ring_flows),
        "direct": program_algorithm(direct, expected),
    },
)
