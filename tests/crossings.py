"""Which edges of trees lie between zones: what tests of placement count."""

from __future__ import annotations

from collections.abc import Sequence

from traffic.collectives.trees import DoubleTree


def crossing_pairs(trees: DoubleTree, zones: Sequence[int]) -> frozenset[tuple[int, int]]:
    """Return the pairs of ranks (lower first) of different zones that share an edge in either tree."""
    edges = (sorted(edge) for tree in trees for edge in tree.edges())
    return frozenset((low, high) for low, high in edges if zones[low] != zones[high])
