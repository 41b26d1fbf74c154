"""A tick of the scheduler: from nodes, users and tasks to what is done with each task, as a pure function.

The steps are HAI's: quotas say which tasks take part, then tasks are gone through in the policy's order. A task starts
only with all its nodes. One that must take nodes from others has them told to leave, keeps what is free for itself
meanwhile, and starts in the tick in which they have left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.decisions import Action, Decision, Reason
from cluster.nodes import Nodes
from cluster.policies import Policy, in_order
from cluster.room import Counts, FreeNodes
from cluster.tasks import LEVELS, Key, Priority, Task, TaskState, Users


@dataclass(frozen=True)
class ClusterState:
    """What a tick decides on."""

    nodes: Nodes
    users: Users
    tasks: Sequence[Task]
    now_s: float


def tick(state: ClusterState, policy: Policy, seed: int = 0) -> list[Decision]:
    """Return a decision for every task, in the order of ``state.tasks``. The same arguments give the same decisions;
    the seed counts where the placement is random.

    Raises ValueError if the state contradicts itself: a node of two tasks, a task with the wrong number of nodes, two
    tasks of the same number.
    """
    _verify(state)
    return _Tick(state, policy, seed).decide()


def _verify(state: ClusterState) -> None:
    if len({task.number for task in state.tasks}) != len(state.tasks):
        raise ValueError("tasks: two have the same number; each life has a number of its own")
    holding = [task for task in state.tasks if task.state is not TaskState.QUEUED]
    for task in holding:
        if len(task.placed) != task.nodes:
            raise ValueError(f"task {task.number}: it has {len(task.placed)} nodes and asks for {task.nodes}")
    places = [place for task in holding for place in task.placed]
    held = np.bincount(np.array(places, dtype=np.int64), minlength=len(state.nodes))
    if len(held) and held.max() > 1:
        place = int(held.argmax())
        both = [task.number for task in holding if place in task.placed]
        raise ValueError(f"{state.nodes.names[place]}: tasks {both} have it; a node has one task at a time")


@dataclass
class _Head:
    """The first task of a group that waits: others wait behind it, or pass it if it is not delayed by them.

    ``shadow_s``: when it can start at the latest if each running task ends at its limit; ``there``: the nodes that it
    has to choose from then, by zone; ``gone``: the tasks that have ended by then.
    """

    task: Task
    level: Priority
    shadow_s: float = 0.0
    there: Counts = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


class _Tick:
    """The state of one tick: what is decided, what is left."""

    def __init__(self, state: ClusterState, policy: Policy, seed: int) -> None:
        self.state, self.policy, self.tasks = state, policy, state.tasks
        self.room = FreeNodes(state.nodes, state.tasks, policy, seed)
        self.found: list[Decision | None] = [None] * len(self.tasks)
        self.levels = [task.level_at(state.now_s) for task in self.tasks]
        self.heads: dict[str, _Head] = {}
        self.running: list[int] = []
        self.position: dict[int, int] = {}

    def decide(self) -> list[Decision]:
        """Return the decisions."""
        self._quotas()
        order = in_order(self.policy, self.tasks, self.levels, self.state.users).tolist()
        self.position = {place: number for number, place in enumerate(order)}
        self._running(order)
        for place in order:
            if self.found[place] is None and self.tasks[place].state is TaskState.QUEUED:
                self._waiting(place)
        for place in self.running:
            if self.found[place] is None:
                self._note(place, Action.KEEP, Reason.RUNS)
        return [decision for decision in self.found if decision is not None]

    def _note(
        self, place: int, action: Action, reason: Reason, nodes: Iterable[int] = (), other: int | None = None
    ) -> None:
        self.found[place] = Decision(self.tasks[place].number, action, reason, tuple(nodes), other)

    # Quotas ---------------------------------------------------------------------------------------------------------

    def _quotas(self) -> None:
        """Decide on tasks that no quota has room for. Running tasks come first in their own quota, so that a user's
        task never interrupts another of the same user and level; then the older chain. What could not start if it were
        alone takes no quota from others."""

        def age(place: int) -> tuple[bool, int, int]:
            task = self.tasks[place]
            return task.state is TaskState.QUEUED, task.chain, task.number

        used: dict[Key, int] = {}
        for place in sorted(range(len(self.tasks)), key=age):
            task, level = self.tasks[place], self._level_with_room(place, used)
            if task.state is TaskState.QUEUED and task.nodes > self.room.ready.get(task.group, 0):
                is_group = task.group in self.room.ready
                self._note(place, Action.WAIT, Reason.TOO_LARGE if is_group else Reason.NO_GROUP)
            elif level is not None:
                self.levels[place] = level
                key = (task.user, level, task.group)
                used[key] = used.get(key, 0) + task.nodes
            elif task.state is TaskState.RUNNING:
                self._note(place, Action.SUSPEND, Reason.OVER_QUOTA)
            elif task.state is TaskState.QUEUED:
                largest = self.state.users.largest_quota(task)
                too_small = largest is not None and largest < task.nodes
                self._note(place, Action.WAIT, Reason.QUOTA_TOO_SMALL if too_small else Reason.OVER_QUOTA)

    def _level_with_room(self, place: int, used: dict[Key, int]) -> Priority | None:
        """Return the level at which a task takes part; of a task at AUTO the highest that has room."""
        task, level = self.tasks[place], self.levels[place]
        for one in LEVELS if level is Priority.AUTO else (level,):
            key = (task.user, one, task.group)
            quota = self.state.users.quota(key)
            if quota is None or used.get(key, 0) + task.nodes <= quota:
                return one
        return None

    # Tasks that have nodes ------------------------------------------------------------------------------------------

    def _running(self, order: Sequence[int]) -> None:
        """Decide on tasks that have nodes and cannot go on, and note the others in order."""
        ready = self.state.nodes.ready.tolist()
        for place in order:
            task = self.tasks[place]
            if task.state is TaskState.LEAVING:
                self._note(place, Action.WAIT, Reason.LEAVES)
            elif task.state is TaskState.RUNNING:
                if lost := [node for node in task.placed if not ready[node]]:
                    self._note(place, Action.STOP, Reason.NODE_LOST, lost)
                if self.found[place] is None:
                    self.running.append(place)
                else:
                    self.room.leave(task)

    # Tasks that wait ------------------------------------------------------------------------------------------------

    def _waiting(self, place: int) -> None:
        task = self.tasks[place]
        head = self.heads.get(task.group)
        if head is None:
            self._first(place)
        elif not self.policy.backfills:
            self._note(place, Action.WAIT, Reason.BEHIND, other=head.task.number)
        elif zones := self._passes(place, head):
            reason = Reason.LENT if self.policy.preempts else Reason.BACKFILLED
            self._note(place, Action.START, reason, self.room.start(task, zones), head.task.number)
        else:
            self._note(place, Action.WAIT, Reason.WOULD_DELAY, other=head.task.number)

    def _first(self, place: int) -> None:
        """Decide on a task that nobody of its group waits before."""
        task, room = self.tasks[place], self.room
        if zones := room.zones_for(task, room.free[task.group], room.may_cross()):
            self._note(place, Action.START, Reason.FREE, room.start(task, zones))
            return
        zones = room.zones_for(task, room.both(task.group), room.may_cross(room.left))
        if not zones and self.policy.preempts:
            for victim in self._victims(place):
                self._note(victim, Action.SUSPEND, Reason.YIELDS, other=task.number)
                room.leave(self.tasks[victim])
            zones = room.zones_for(task, room.both(task.group), room.may_cross(room.left))
        if zones:
            room.reserve(task, zones)
            self._note(place, Action.WAIT, Reason.NODES_LEAVING)
        else:
            self._becomes_head(place)

    def _victims(self, place: int) -> list[int]:
        """Return the places of the running tasks that must leave for one to start: the last ones first, and none that
        it can do without; empty if all of them would not be enough."""
        task, room = self.tasks[place], self.room
        while self.running and self.found[self.running[-1]] is not None:
            self.running.pop()
        there, gone = room.both(task.group), set(room.left)
        chosen: list[int] = []
        fits = False
        for one in reversed(self.running):
            if self.position[one] < self.position[place]:
                break
            if self._may_take(one, place):
                chosen.append(one)
                room.add_ready(there, self.tasks[one].placed)
                gone.add(self.tasks[one].number)
                if fits := bool(room.zones_for(task, there, room.may_cross(gone))):
                    break
        if not fits:
            return []
        needed = []
        for one in reversed(chosen):
            room.add_ready(there, self.tasks[one].placed, -1)
            gone.discard(self.tasks[one].number)
            if not room.zones_for(task, there, room.may_cross(gone)):
                room.add_ready(there, self.tasks[one].placed)
                gone.add(self.tasks[one].number)
                needed.append(one)
        return needed

    def _may_take(self, victim: int, place: int) -> bool:
        """Return whether a running task that comes later may be interrupted for one that waits."""
        mine, other = self.tasks[place], self.tasks[victim]
        same = mine.user == other.user and self.levels[place] == self.levels[victim]
        return self.found[victim] is None and mine.group == other.group and not same

    # Passing a task that waits --------------------------------------------------------------------------------------

    def _becomes_head(self, place: int) -> None:
        task, room = self.tasks[place], self.room
        there = room.both(task.group)
        crossing = room.crossing - room.left or room.crossing
        other = min(crossing) if crossing and room.zones_for(task, there, True) else None
        self._note(place, Action.WAIT, Reason.NO_ROOM if other is None else Reason.ZONES, other=other)
        self.heads[task.group] = head = _Head(task, self.levels[place])
        if self.policy.passes_by_limit:
            self._find_shadow(head, there)

    def _find_shadow(self, head: _Head, there: Counts) -> None:
        head.there, head.gone, head.shadow_s = there, list(self.room.left), self.state.now_s
        for end_s, number, placed in sorted(self._ends(head.task.group)):
            if self.room.zones_for(head.task, there, self.room.may_cross(head.gone)):
                break
            head.shadow_s = end_s
            head.gone.append(number)
            self.room.add_ready(there, placed)

    def _ends(self, group: str) -> Iterable[tuple[float, int, tuple[int, ...]]]:
        """Yield when tasks end at the latest that have nodes or get them in this tick, and the nodes of the group that
        they leave: tasks of the group, and those that cross zones, for then another may."""
        now_s = self.state.now_s
        for task, decision in zip(self.tasks, self.found, strict=True):
            if decision is not None and decision.action not in (Action.START, Action.KEEP):
                continue
            mine = task.group == group
            if not mine and task.number not in self.room.crossing:
                continue
            if decision is not None and decision.action is Action.START:
                yield now_s + _limit_s(task), task.number, decision.nodes if mine else ()
            elif task.state is TaskState.RUNNING:
                yield max(task.began_s + _limit_s(task), now_s), task.number, task.placed if mine else ()

    def _passes(self, place: int, head: _Head) -> tuple[int, ...]:
        """Return the zones in which a task fits now without delaying the head; empty if there are none."""
        task, room = self.tasks[place], self.room
        free = room.free[task.group]
        zones = room.zones_for(task, free, False)
        if not zones:
            return ()
        if self.policy.preempts:
            is_own = task.user == head.task.user and self.levels[place] == head.level
            return () if is_own else zones
        ends_s = self.state.now_s + _limit_s(task)
        if math.isfinite(ends_s) and ends_s <= head.shadow_s and math.isfinite(head.shadow_s):
            return zones
        left, missing = list(head.there), task.nodes
        for zone in zones:
            taken = min(missing, free[zone])
            left[zone] -= taken
            missing -= taken
        if not room.zones_for(head.task, left, room.may_cross(head.gone)):
            return ()
        head.there = left
        return zones


def _limit_s(task: Task) -> float:
    return math.inf if task.limit_s is None else task.limit_s
