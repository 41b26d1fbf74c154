"""The compute nodes of a cluster as a scheduler sees them: zone, leaf, group, and whether they may be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fabric.model.network import Fabric

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GROUP = "training"
"""The group of nodes that nobody put into another."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """All nodes, by their place in ``names``; every array has one entry per node.

    ``zones`` and ``leaves`` are numbers, ``group_of`` is a place in ``groups``: tasks get nodes of one group only.
    ``ready``: whether a node may be used; one that failed, or that the validator took out, is not.
    """

    names: tuple[str, ...]
    zones: Ints
    leaves: Ints
    groups: tuple[str, ...]
    group_of: Ints
    ready: Bools

    def __post_init__(self) -> None:
        sizes = {len(one) for one in (self.names, self.zones, self.leaves, self.group_of, self.ready)}
        if len(sizes) != 1:
            raise ValueError(f"nodes: columns of {sorted(sizes)} entries; give one entry per node in each")

    @classmethod
    def of(cls, fabric: Fabric, groups: Mapping[str, str] | None = None) -> Nodes:
        """Return a fabric's compute nodes, all ready, in the groups given by their names, else in :data:`GROUP`.

        A node's leaf is that of its first NIC. Raises ConfigError for a name that the fabric does not have.
        """
        named = {fabric.host_named(name): group for name, group in (groups or {}).items()}
        leaves = [fabric.leaf_of(fabric.nics_of[node][0]) for node in fabric.computes]
        numbers = {leaf: number for number, leaf in enumerate(dict.fromkeys(leaves))}
        group_of = [named.get(node, GROUP) for node in fabric.computes]
        known = tuple(dict.fromkeys(group_of))
        return cls(
            names=tuple(node.name for node in fabric.computes),
            zones=np.array([node.zone or 0 for node in fabric.computes], dtype=np.int64),
            leaves=np.array([numbers[leaf] for leaf in leaves], dtype=np.int64),
            groups=known,
            group_of=np.array([known.index(group) for group in group_of], dtype=np.int64),
            ready=np.ones(len(group_of), dtype=np.bool_),
        )

    @classmethod
    def grid(cls, zones: int, leaves: int, nodes_per_leaf: int, group: str = GROUP) -> Nodes:
        """Return the nodes of zones with as many leaves each, and as many nodes on each leaf, all ready."""
        each = leaves * nodes_per_leaf
        numbers = np.arange(zones * each, dtype=np.int64)
        return cls(
            names=tuple(f"z{number // each}h{number % each:03d}" for number in range(zones * each)),
            zones=numbers // each,
            leaves=numbers // nodes_per_leaf,
            groups=(group,),
            group_of=np.zeros(len(numbers), dtype=np.int64),
            ready=np.ones(len(numbers), dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def zone_count(self) -> int:
        """How many zones there are, counted to the last that has a node."""
        return int(self.zones.max()) + 1 if len(self) else 1

    @cached_property
    def zone_list(self) -> tuple[int, ...]:
        """The zone of each node, as plain numbers."""
        return tuple(self.zones.tolist())

    def crosses(self, placed: Sequence[int]) -> bool:
        """Return whether nodes are in more than one zone."""
        if self.zone_count == 1 or not placed:
            return False
        zones, first = self.zone_list, self.zone_list[placed[0]]
        return any(zones[place] != first for place in placed)

    def without(self, places: Iterable[int]) -> Nodes:
        """Return the same nodes, of which some are not ready."""
        return self._readiness(places, False)

    def with_ready(self, places: Iterable[int]) -> Nodes:
        """Return the same nodes, of which some are ready again."""
        return self._readiness(places, True)

    def _readiness(self, places: Iterable[int], ready: bool) -> Nodes:
        changed = self.ready.copy()
        changed[list(places)] = ready
        return replace(self, ready=changed)


def pairs_across_zones(ranks: Sequence[int], nodes: Nodes) -> int:
    """Return how many neighbours in the order of a task's ranks are in different zones: with one, a tree or ring within
    each zone needs one pair of nodes between them."""
    zones = nodes.zone_list
    return sum(zones[one] != zones[other] for one, other in pairwise(ranks))
