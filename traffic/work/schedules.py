"""Which schedule of :mod:`traffic.collectives` a call of a group has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from traffic.collectives.collective import ScheduleOptions
from traffic.collectives.elements import Dtype
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.schedule import DEFAULT_SLOTS, Schedule
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import zone_aware_double_tree
from traffic.work.operations import CollectiveCall

HFREDUCE = "hfreduce"
"""The algorithm of an allreduce over trees between nodes that cross zones once (:mod:`traffic.collectives.trees`)."""


def known_algorithms() -> dict[str, tuple[str, ...]]:
    """Return the algorithms of each collective that calls may have."""
    known = {name: tuple(one.algorithms) for name, one in COLLECTIVES.items()}
    known["allreduce"] = tuple(dict.fromkeys((*known["allreduce"], HFREDUCE)))
    return known


@dataclass(frozen=True)
class ScheduleChoice:
    """What schedules are made by, the same for all calls. ``algorithms``: by the name of the collective, for calls that
    name none; ``zones``: that of each rank."""

    piece_bytes: int
    slots: int = DEFAULT_SLOTS
    algorithms: Mapping[str, str] = field(default_factory=dict)
    zones: tuple[int, ...] = ()

    def schedule(self, call: CollectiveCall, members: Sequence[int]) -> Schedule:
        """Return the schedule of a call over the ranks of its group, from its root on."""
        dtype = Dtype(call.dtype)
        elements = call.size_bytes // dtype.size_bytes
        piece = max(1, min(self.piece_bytes // dtype.size_bytes, elements))
        algorithm = call.algorithm or self.algorithms.get(call.collective)
        if (call.collective, algorithm) == ("allreduce", HFREDUCE):
            trees = zone_aware_double_tree([self.zones[rank] for rank in members])
            return TreeAllreduce(trees, elements, piece, slots=self.slots, dtype=dtype)
        options = ScheduleOptions(len(members), elements, piece, slots=self.slots, dtype=dtype)
        return collective_named(call.collective).algorithm(algorithm).schedule(options)


def in_order_from_root(call: CollectiveCall, members: Sequence[int]) -> tuple[int, ...]:
    """Return a group's ranks from a call's root on: schedules have their root at place 0."""
    return (*members[call.root :], *members[: call.root])
