"""Which nodes jobs get that ask for a number of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice

from fabric.model.identity import NodeId
from fabric.model.network import Fabric

Asked = Mapping[str, int | Sequence[str]]
"""By the name of a job: how many compute nodes it asks for, or their names."""


class Allocation(str, Enum):
    """How jobs that ask for a number of nodes get them.

    - ``packed``: each the next ones;
    - ``spread``: one after the other a node at a time, so that they share leaves;
    - ``random``: each any that are free, by the seed;
    - ``zones``: each within a zone as far as one has enough, as Fire-Flyer 2's scheduler has it: at most one job
      crosses zones (arXiv 2408.14158v2, VI-B).
    """

    PACKED = "packed"
    SPREAD = "spread"
    RANDOM = "random"
    ZONES = "zones"


def allocate(asked: Asked, fabric: Fabric, allocation: Allocation, seed: int = 0) -> dict[str, tuple[NodeId, ...]]:
    """Return the nodes of each job by its name. Those given by name are theirs; the others get what is left."""
    named = {
        name: [] if isinstance(nodes, int) else [fabric.host_named(node) for node in nodes]
        for name, nodes in asked.items()
    }
    taken = {node for nodes in named.values() for node in nodes}
    free = [node for node in fabric.computes if node not in taken]
    counts = {name: nodes for name, nodes in asked.items() if isinstance(nodes, int)}
    if allocation is Allocation.RANDOM:
        random.Random(seed).shuffle(free)
    if allocation is Allocation.ZONES:
        found = _by_zones(counts, free)
    elif allocation is Allocation.SPREAD:
        found = _dealt(counts, free)
    else:
        left = iter(free)
        found = {name: list(islice(left, count)) for name, count in counts.items()}
    return {name: tuple(found.get(name, named[name])) for name in asked}


def _dealt(counts: Mapping[str, int], free: Sequence[NodeId]) -> dict[str, list[NodeId]]:
    """Return the nodes of jobs that take turns."""
    found: dict[str, list[NodeId]] = {name: [] for name in counts}
    left = iter(free)
    while missing := [name for name, count in counts.items() if len(found[name]) < count]:
        for name in missing:
            found[name].append(next(left))
    return found


def _by_zones(counts: Mapping[str, int], free: Sequence[NodeId]) -> dict[str, list[NodeId]]:
    """Return the nodes of jobs, the largest first: of the zone that has the fewest of those with enough, else of those
    that have the most."""
    zones: dict[int | None, list[NodeId]] = {}
    for node in free:
        zones.setdefault(node.zone, []).append(node)
    found: dict[str, list[NodeId]] = {}
    for name in sorted(counts, key=lambda one: -counts[one]):
        enough = [zone for zone, nodes in zones.items() if len(nodes) >= counts[name]]
        if enough:
            order = [min(enough, key=lambda zone: len(zones[zone]))]
        else:
            order = sorted(zones, key=lambda zone: -len(zones[zone]))
        found[name] = []
        for zone in order:
            missing = counts[name] - len(found[name])
            found[name] += zones[zone][:missing]
            del zones[zone][:missing]
    return found


def crossing_zones(asked: Asked, fabric: Fabric) -> Iterator[str]:
    """Yield the jobs that ask for a number of nodes and cross zones although they are allocated by zones, if there is
    more than one."""
    nodes = allocate(asked, fabric, Allocation.ZONES)
    crossing = [name for name in asked if isinstance(asked[name], int) and len({n.zone for n in nodes[name]}) > 1]
    if len(crossing) > 1:
        yield from crossing
