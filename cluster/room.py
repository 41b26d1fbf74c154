"""The nodes that a tick can give: which are free, which will be once tasks have left, and who crosses zones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cluster.nodes import Bools, Nodes
from cluster.placement import choose, zones_for
from cluster.policies import Policy
from cluster.tasks import Task, TaskState

Counts = list[int]
"""Nodes of a group by zone."""


class FreeNodes:
    """Free and leaving nodes, by node and, per group, by zone. Nodes that are not ready are neither."""

    def __init__(self, nodes: Nodes, tasks: Iterable[Task], policy: Policy, seed: int) -> None:
        self.nodes, self.policy = nodes, policy
        self._rng = np.random.default_rng(seed)
        held, leaving = np.zeros((2, len(nodes)), dtype=np.bool_)
        self.crossing: set[int] = set()
        """The tasks that cross zones, those that leave included."""
        self.left: set[int] = set()
        """The tasks that were told to leave, now or before."""
        for task in tasks:
            if task.state is not TaskState.QUEUED:
                held[list(task.placed)] = True
                if nodes.crosses(task.placed):
                    self.crossing.add(task.number)
            if task.state is TaskState.LEAVING:
                leaving[list(task.placed)] = True
                self.left.add(task.number)
        self._free, self._leaving = nodes.ready & ~held, nodes.ready & leaving
        groups = range(len(nodes.groups))
        self.ready = {name: self._count(code, nodes.ready) for code, name in zip(groups, nodes.groups, strict=True)}
        self.free = {name: self._by_zone(code, self._free) for code, name in zip(groups, nodes.groups, strict=True)}
        self.leaving = {
            name: self._by_zone(code, self._leaving) for code, name in zip(groups, nodes.groups, strict=True)
        }

    def _count(self, code: int, mask: Bools) -> int:
        return int((mask & (self.nodes.group_of == code)).sum())

    def _by_zone(self, code: int, mask: Bools) -> Counts:
        mine = mask & (self.nodes.group_of == code)
        found: Counts = np.bincount(self.nodes.zones[mine], minlength=self.nodes.zone_count).tolist()
        return found

    def both(self, group: str) -> Counts:
        """Return the nodes that are free, or will be once those that leave have left."""
        return [free + leaving for free, leaving in zip(self.free[group], self.leaving[group], strict=True)]

    def may_cross(self, gone: Iterable[int] = ()) -> bool:
        """Return whether one more task may cross zones when the tasks ``gone`` have gone."""
        limit = self.policy.crossing
        return limit is None or len(self.crossing.difference(gone)) < limit

    def zones_for(self, task: Task, counts: Sequence[int], may_cross: bool) -> tuple[int, ...]:
        """Return the zones that a task would get its nodes of; empty if it does not fit."""
        return zones_for(task.nodes, counts, may_cross, any_zones=self.policy.crossing is None)

    def add_ready(self, counts: Counts, placed: Iterable[int], sign: int = 1) -> None:
        """Add those of a task's nodes that are ready to counts by zone, or take them away."""
        zones, ready = self.nodes.zone_list, self.nodes.ready
        for node in placed:
            if ready[node]:
                counts[zones[node]] += sign

    def leave(self, task: Task) -> None:
        """Count a running task's nodes as those that will be free."""
        self.left.add(task.number)
        self.add_ready(self.leaving[task.group], task.placed)
        self._leaving[list(task.placed)] = self.nodes.ready[list(task.placed)]

    def start(self, task: Task, zones: Sequence[int]) -> tuple[int, ...]:
        """Give free nodes of some zones to a task; return them in the order of its ranks."""
        candidates = np.flatnonzero(self._free & self._mine(task))
        nodes = choose(task.nodes, candidates, zones, self.nodes, self.policy.placement, self._rng)
        self._take(task, nodes)
        return nodes

    def reserve(self, task: Task, zones: Sequence[int]) -> None:
        """Keep nodes for a task that starts when others have left: free ones first, so that few are waited for."""
        mine = self._mine(task)
        chosen: list[int] = []
        for zone in zones:
            for mask in (self._free, self._leaving):
                there = np.flatnonzero(mask & mine & (self.nodes.zones == zone))
                chosen += there[: task.nodes - len(chosen)].tolist()
        assert len(chosen) == task.nodes, "zones_for() has counted them"
        self._take(task, chosen)

    def _mine(self, task: Task) -> Bools:
        mine: Bools = self.nodes.group_of == self.nodes.groups.index(task.group)
        return mine

    def _take(self, task: Task, nodes: Sequence[int]) -> None:
        if self.nodes.crosses(nodes):
            self.crossing.add(task.number)
        places = np.array(nodes, dtype=np.int64)
        free = self._free[places]
        for counts, mine in ((self.free, places[free]), (self.leaving, places[~free])):
            for zone, count in enumerate(np.bincount(self.nodes.zones[mine], minlength=self.nodes.zone_count).tolist()):
                counts[task.group][zone] -= count
        self._free[places] = False
        self._leaving[places] = False
