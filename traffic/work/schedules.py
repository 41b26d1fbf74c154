"""Which collective and schedule of :mod:`traffic.collectives` a call of a group is carried out by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabric.errors import ConfigError
from traffic.collectives.collective import Collective, CollectiveAlgorithm, Flows, Groups, Layout, ScheduleOptions
from traffic.collectives.elements import Dtype
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.node_allreduce import NodeAllreduce
from traffic.collectives.operations.all_to_all_v import Counts, all_to_all_of, size_of
from traffic.collectives.schedule import DEFAULT_SLOTS, Schedule
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import tree_flows, zone_aware_double_tree
from traffic.work.operations import CollectiveCall

HFREDUCE = "hfreduce"
"""The algorithm of an allreduce over trees between nodes that cross zones once (:mod:`traffic.collectives.trees`)."""


def known_algorithms() -> dict[str, tuple[str, ...]]:
    """Return the algorithms of each collective that calls may have."""
    known = {name: tuple(one.algorithms) for name, one in COLLECTIVES.items()}
    known["allreduce"] = tuple(dict.fromkeys((*known["allreduce"], HFREDUCE)))
    return known


@dataclass(frozen=True)
class RankPlaces:
    """Where ranks are: the number of the node of each, and its zone."""

    nodes: tuple[int, ...]
    zones: tuple[int, ...]

    def layout(self, members: Sequence[int]) -> Layout:
        """Return which of a group's ranks share a node, by their places in it; nothing if none do."""
        by_node: dict[int, list[int]] = {}
        for place, rank in enumerate(members):
            by_node.setdefault(self.nodes[rank], []).append(place)
        shared = len(by_node) < len(members)
        return Layout(len(members), tuple(map(tuple, by_node.values())) if shared else None)


@dataclass(frozen=True)
class PlannedCall:
    """How a call is carried out, by the places of ``ranks`` from its root on. ``flows``: as multiples of its size."""

    ranks: tuple[int, ...]
    collective: Collective
    schedule: Schedule
    flows: Flows


@dataclass(frozen=True)
class ScheduleChoice:
    """What schedules are made by, the same for all calls. ``algorithms``: by the name of the collective, for calls that
    name none. ``gpus``: of a node whose CPU can add up for its ranks; 0: nodes are points."""

    piece_bytes: int
    places: RankPlaces
    slots: int = DEFAULT_SLOTS
    algorithms: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0

    def planned(self, call: CollectiveCall, members: Sequence[int], counts: Counts | None = None) -> PlannedCall:
        """Return how a call over two or more ranks is carried out. ``counts``: of an all-to-all-v, the elements from
        each rank to each. Raises ConfigError if its algorithm cannot be carried out over these ranks."""
        ranks = (*members[call.root :], *members[: call.root])  # Schedules have their root at place 0.
        dtype = Dtype(call.dtype)
        elements = call.size_bytes // dtype.size_bytes if counts is None else size_of(counts)
        piece = max(1, min(self.piece_bytes // dtype.size_bytes, elements))
        collective = collective_named(call.collective) if counts is None else all_to_all_of(counts)
        name = call.algorithm or self.algorithms.get(call.collective)
        layout = self.places.layout(ranks)
        if (call.collective, name) == ("allreduce", HFREDUCE):
            groups = layout.groups or tuple((place,) for place in range(len(ranks)))
            trees = zone_aware_double_tree([self.places.zones[ranks[group[0]]] for group in groups])
            tree = TreeAllreduce(trees, elements, piece, slots=self.slots, dtype=dtype)
            if layout.groups is None:
                return PlannedCall(ranks, collective, tree, tree_flows(trees))
            self._require_whole_nodes(call.group, groups)
            in_nodes = NodeAllreduce(tree, groups)
            return PlannedCall(ranks, collective, in_nodes, in_nodes.flows())
        try:
            algorithm: CollectiveAlgorithm = collective.algorithm(name)
            options = ScheduleOptions(len(ranks), elements, piece, self.slots, dtype, groups=layout.groups)
            return PlannedCall(ranks, collective, algorithm.schedule(options), algorithm.flows_over(layout))
        except ValueError as error:
            raise ConfigError(f"group {call.group}", [f"{call.collective}: {error}"]) from error

    def _require_whole_nodes(self, name: str, groups: Groups) -> None:
        """Raise ConfigError unless nodes have an inside, and a group all GPUs of each of its nodes."""
        some = next((len(group) for group in groups if len(group) != self.gpus), None)
        if not self.gpus:
            step = "group a rank of each, or use another algorithm"
            raise ConfigError(
                f"group {name}", [f"allreduce: {HFREDUCE} is between nodes, and ranks share some; {step}"]
            )
        if some is not None:
            what = f"{HFREDUCE} adds up whole nodes of {self.gpus} GPUs, and the group has {some} of one"
            raise ConfigError(f"group {name}", [f"allreduce: {what}; give it all GPUs of its nodes, or one of each"])


def without_counts(call: CollectiveCall) -> CollectiveCall:
    """Return a call of an all-to-all-v whose ranks send what they do without counts: over the same connections."""
    return replace(call, sent_bytes=()) if call.sent_bytes else call
