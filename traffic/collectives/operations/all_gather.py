"""All-gather: every rank gets the blocks of all ranks.

In the ring a rank sends its own block to the next, then forwards each that it receives: n-1 blocks of n.
Directly, it sends its own to each other rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from traffic.collectives.collective import Collective, Expected, block_of, of_one_rank
from traffic.collectives.exchange import Block, all_pairs, equal_flows, exchange_algorithm
from traffic.collectives.primitives import Primitive
from traffic.collectives.ring import Ring, ring_algorithm, ring_flows


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets every rank's block, each at its place."""
    blocks = [block_of(owner, ranks, elements) for owner in range(ranks)]
    return tuple(Expected(block, (owner,), block.start) for owner, block in enumerate(blocks))


def ring_primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    """Yield a rank's primitives: in each loop its own block, then those of the ranks before it, the nearest first."""
    before, after = ring.neighbours(rank)
    place = ring.place_of(rank)
    for slices_of in ring.block_loops():
        for piece in slices_of(rank):
            yield Primitive(own=piece, result=piece, target=after)
        for back in range(1, ring.ranks):
            target = after if back < ring.ranks - 1 else None
            for piece in slices_of(ring.rank_at(place - back)):
                yield Primitive(before, None, piece, target)


def _ring_flows(ranks: int) -> list[tuple[int, int, float]]:
    return ring_flows(of_one_rank(ranks), ranks)


def exchanged(source: int, target: int, ranks: int, elements: int) -> Block:
    """Return that a rank's block keeps its place, wherever it goes."""
    block = block_of(source, ranks, elements)
    return Block(block, block.start)


ALL_GATHER = Collective(
    name="all_gather",
    size="what each rank has afterwards",
    input=block_of,
    expected=expected,
    busbw_factor=of_one_rank,
    algorithms={
        "ring": ring_algorithm(ring_primitives, _ring_flows),
        "direct": exchange_algorithm(all_pairs, exchanged, partial(equal_flows, all_pairs)),
    },
)
