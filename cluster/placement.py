"""Which of the free nodes a task gets: the zone rule first, then how leaves are filled.

Fire-Flyer 2's scheduler lets at most one task cross zones, and in it one pair of nodes (arXiv 2408.14158v2, III-B). A
task that crosses gets nodes of two zones, and its ranks are numbered zone by zone: a tree in each zone then needs one
pair between them. Whether the program builds such trees is its own business.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from cluster.nodes import Ints, Nodes


class Placement(str, Enum):
    """How nodes of a zone are chosen.

    - ``packed``: the first free ones, leaf by leaf;
    - ``spread``: one after the other of the leaf that has most free ones, so that tasks share leaves;
    - ``leaves``: of as few leaves as can be: the fullest one that has enough, else the emptiest ones first;
    - ``random``: any, by the seed.
    """

    PACKED = "packed"
    SPREAD = "spread"
    LEAVES = "leaves"
    RANDOM = "random"


def zones_for(count: int, free: Sequence[int], may_cross: bool, any_zones: bool = False) -> tuple[int, ...]:
    """Return the zones that a task of ``count`` nodes gets its nodes of, in this order, by the free nodes of each zone;
    empty if it does not fit.

    Of the zones that have enough the one with the fewest; else the two with the most if it may cross, or as many as
    it takes with ``any_zones``.
    """
    enough = [zone for zone, nodes in enumerate(free) if nodes >= count]
    if enough:
        return (min(enough, key=lambda zone: free[zone]),)
    if not may_cross and not any_zones:
        return ()
    order = sorted(range(len(free)), key=lambda zone: -free[zone])
    taken = order if any_zones else order[:2]
    if sum(free[zone] for zone in taken) < count:
        return ()
    found: list[int] = []
    for zone in taken:
        found.append(zone)
        count -= free[zone]
        if count <= 0:
            break
    return tuple(found)


def choose(
    count: int, candidates: Ints, zones: Sequence[int], nodes: Nodes, how: Placement, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return ``count`` of the candidates (places of nodes, ascending), of the zones in their order: all that the first
    ones have, the rest of the last."""
    chosen: list[int] = []
    for zone in zones:
        inside = candidates[nodes.zones[candidates] == zone]
        chosen += _of_one_zone(min(count - len(chosen), len(inside)), inside, nodes, how, rng)
    assert len(chosen) == count, "zones_for() has counted them"
    return tuple(chosen)


def _of_one_zone(count: int, inside: Ints, nodes: Nodes, how: Placement, rng: np.random.Generator) -> list[int]:
    if how is Placement.RANDOM:
        return sorted(rng.choice(inside, count, replace=False).tolist())
    leaves = nodes.leaves[inside]
    if how is Placement.PACKED:
        order = np.lexsort((inside, leaves))
    elif how is Placement.SPREAD:
        order = _spread_order(inside, leaves)
    else:
        return _of_few_leaves(count, inside, leaves)
    found: list[int] = inside[order[:count]].tolist()
    return found


def _spread_order(inside: Ints, leaves: Ints) -> Ints:
    """Return the order in which nodes are taken of the leaf that has most left, the first of equals."""
    order = np.lexsort((inside, leaves))
    sorted_leaves = leaves[order]
    begins = np.searchsorted(sorted_leaves, sorted_leaves, side="left")
    sizes = np.searchsorted(sorted_leaves, sorted_leaves, side="right") - begins
    # How many its leaf has left when a node's turn comes, if each leaf is taken from its first node on.
    left = sizes - (np.arange(len(inside)) - begins)
    found: Ints = order[np.lexsort((sorted_leaves, -left))]
    return found


def _of_few_leaves(count: int, inside: Ints, leaves: Ints) -> list[int]:
    numbers, counts = np.unique(leaves, return_counts=True)
    left = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    found: list[int] = []
    while len(found) < count:
        missing = count - len(found)
        enough = [leaf for leaf, there in left.items() if there >= missing]
        leaf = min(enough, key=lambda one: left[one]) if enough else max(left, key=lambda one: left[one])
        found += inside[leaves == leaf][:missing].tolist()
        del left[leaf]
    return found
