"""Broadcast: every rank gets the root's data, which travels along the ring from the root, a slice behind the other."""

from __future__ import annotations

from collections.abc import Iterator

from traffic.collectives.collective import ROOT, Collective, Expected, at_root, of_all_data
from traffic.collectives.primitives import Primitive
from traffic.collectives.ring import Ring, ring_algorithm


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


BROADCAST = Collective(
    name="broadcast",
    size="what the root has",
    input=at_root,
    expected=expected,
    busbw_factor=of_all_data,
    algorithms={"ring": ring_algorithm(ring_primitives, _ring_flows)},
    root=ROOT,
)
