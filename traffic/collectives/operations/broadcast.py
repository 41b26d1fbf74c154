"""Broadcast: every rank gets the root's data, which travels along the ring from the root, a slice behind the other.

By trees, each half of it goes down one of two binary trees from the root: few hops, and no rank sends more than all.
"""

from __future__ import annotations

from collections.abc import Iterator

from traffic.collectives.chunk_program import DATA, ChunkProgram, ProgramTrace
from traffic.collectives.collective import ROOT, Collective, Expected, Layout, at_root, of_all_data
from traffic.collectives.primitives import Primitive
from traffic.collectives.program_schedule import program_algorithm
from traffic.collectives.ring import Ring, ring_algorithm
from traffic.collectives.trees import double_tree_at_zero, from_the_root


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that each rank gets the root's input."""
    return (Expected(slice(0, elements), (ROOT,), 0),)


def ring_primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    """Yield a rank's primitives: all but the root receive, all but the last send."""
    before, after = ring.neighbours(rank)
    target = None if after == ROOT else after
    for piece in ring.slices(ring.data):
        if rank == ROOT:
            yield Primitive(own=piece, result=piece, target=target)
        else:
            yield Primitive(before, None, piece, target)


def _ring_flows(ranks: int) -> list[tuple[int, int, float]]:
    return [(rank, rank + 1, 1.0) for rank in range(ranks - 1)]


def tree(layout: Layout) -> ChunkProgram:
    """Return the program over a double tree: a chunk for each."""
    trace = ProgramTrace(layout, [1, 1], at_root)
    for chunk, one in enumerate(double_tree_at_zero(layout.ranks)):
        for parent, child in from_the_root(one):
            trace.copy(parent, child, (DATA, chunk))
    return trace.program(expected)


BROADCAST = Collective(
    name="broadcast",
    size="what the root has",
    input=at_root,
    expected=expected,
    busbw_factor=of_all_data,
    algorithms={
        "ring": ring_algorithm(ring_primitives, _ring_flows),
        "tree": program_algorithm(tree, expected),
    },
    root=ROOT,
)
