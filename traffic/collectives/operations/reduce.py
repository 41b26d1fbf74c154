"""Reduce: the root gets the sum of all inputs. It travels along the ring to the root, and each rank adds its own.

By trees, each half goes up one of two binary trees: few hops, and no rank receives more than all.
"""

from __future__ import annotations

from collections.abc import Iterator

from traffic.collectives.chunk_program import DATA, ChunkProgram, ProgramTrace
from traffic.collectives.collective import ROOT, Collective, Expected, Layout, all_elements, of_all_data
from traffic.collectives.primitives import Primitive
from traffic.collectives.program_schedule import program_algorithm
from traffic.collectives.ring import Ring, ring_algorithm
from traffic.collectives.trees import double_tree_at_zero, from_the_root


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    """Return that the root gets the sum over all, and the others nothing."""
    return (Expected(slice(0, elements), tuple(range(ranks)), 0),) if rank == ROOT else ()


def ring_primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    """Yield a rank's primitives: all but the rank after the root receive, all but the root send."""
    before, after = ring.neighbours(rank)
    source = None if before == ROOT else before
    for piece in ring.slices(ring.data):
        if rank == ROOT:
            yield Primitive(source=before, own=piece, result=piece)
        else:
            yield Primitive(source, own=piece, target=after)


def _ring_flows(ranks: int) -> list[tuple[int, int, float]]:
    return [(rank, (rank + 1) % ranks, 1.0) for rank in range(1, ranks)]


def tree(layout: Layout) -> ChunkProgram:
    """Return the program over a double tree: a chunk for each."""
    trace = ProgramTrace(layout, [1, 1], all_elements)
    for chunk, one in enumerate(double_tree_at_zero(layout.ranks)):
        for parent, child in reversed(from_the_root(one)):
            trace.add(child, parent, (DATA, chunk))
    return trace.program(expected)


REDUCE = Collective(
    name="reduce",
    size="what each rank has before",
    input=all_elements,
    expected=expected,
    busbw_factor=of_all_data,
    algorithms={
        "ring": ring_algorithm(ring_primitives, _ring_flows),
        "tree": program_algorithm(tree, expected),
    },
    root=ROOT,
)
