"""Tasks, users and quotas, by HAI's rules.

A task asks for whole nodes of one group. A task that was suspended runs its command from the start when it gets nodes
again: each such life is a task of its own number, and ``chain``, the number of the first life, joins them
(github.com/HFAiLab/hai-platform, docs/guide/schedule.md and scheduler/, commit f9119b1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from cluster.nodes import Nodes
from fabric.errors import ConfigError
from fabric.suggestions import one_of

DEMOTED_AFTER_S = 1800.0
"""How long a task may run at ABOVE_NORMAL before it is NORMAL."""


class Priority(IntEnum):
    """HAI's priorities; the numbers are its own. AUTO is the highest of which the user's quota has room."""

    EXTREME_HIGH = 50
    VERY_HIGH = 40
    HIGH = 30
    ABOVE_NORMAL = 20
    NORMAL = 10
    UNDER_NORMAL = 8
    AUTO = -1


LEVELS = tuple(one for one in Priority if one is not Priority.AUTO)
"""Those that a quota is for, highest first."""


class TaskState(str, Enum):
    """Where a task is in its life; a suspended task waits as a new life in state QUEUED."""

    QUEUED = "queued"
    RUNNING = "running"
    LEAVING = "leaving"
    """Told to suspend or to stop; its nodes are not free yet."""


@dataclass(frozen=True)
class Task:
    """A life of a task. ``placed`` are places in :class:`cluster.nodes.Nodes`, in the order of ranks, while it has
    nodes, which it got at ``began_s``.

    ``ran_s``: how long its former lives ran. ``limit_s``: after how long it ends at the latest, which only backfilling
    asks for; None is not known.
    """

    number: int
    user: str
    nodes: int
    priority: Priority = Priority.NORMAL
    group: str = "training"
    submitted_s: float = 0.0
    chain: int = -1
    state: TaskState = TaskState.QUEUED
    placed: tuple[int, ...] = ()
    began_s: float = 0.0
    ran_s: float = 0.0
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if self.chain < 0:
            object.__setattr__(self, "chain", self.number)

    def level_at(self, now_s: float) -> Priority:
        """Return the priority that it has by now."""
        if self.priority is not Priority.ABOVE_NORMAL:
            return self.priority
        running_s = 0.0 if self.state is TaskState.QUEUED else now_s - self.began_s
        return Priority.NORMAL if self.ran_s + running_s >= DEMOTED_AFTER_S else Priority.ABOVE_NORMAL


Key = tuple[str, Priority, str]
"""User, priority and group: what a quota is for."""


@dataclass(frozen=True)
class Users:
    """What users may have. ``quotas`` are in nodes at once; whoever is not there has ``default``, None is no limit.

    ``shares`` and ``usage`` (node-seconds, decayed by whoever keeps the account) are for fair share; a user without a
    share has 1.
    """

    quotas: Mapping[Key, int] = field(default_factory=dict)
    default: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)

    def quota(self, key: Key) -> int | None:
        """Return the quota of a user, priority and group in nodes; None is no limit."""
        return self.quotas.get(key, self.default)

    def largest_quota(self, task: Task) -> int | None:
        """Return the most nodes that a task could have to its end of its user's quotas; None is no limit.

        Of AUTO that is the largest quota; of ABOVE_NORMAL the smaller one of its own and NORMAL's, which counts after
        half an hour.
        """
        levels = {Priority.AUTO: LEVELS, Priority.ABOVE_NORMAL: (Priority.ABOVE_NORMAL, Priority.NORMAL)}
        quotas = [self.quota((task.user, level, task.group)) for level in levels.get(task.priority, (task.priority,))]
        limits = [quota for quota in quotas if quota is not None]
        if task.priority is Priority.AUTO and len(limits) < len(quotas):
            return None
        return (max if task.priority is Priority.AUTO else min)(limits, default=None)


def verify_submission(task: Task, users: Users, nodes: Nodes) -> None:
    """Raise ConfigError if a task could never start, naming every reason at once."""
    if faults := list(_faults(task, users, nodes)):
        raise ConfigError(f"task {task.number}", faults)


def _faults(task: Task, users: Users, nodes: Nodes) -> Iterator[str]:
    if task.nodes < 1:
        yield f"nodes: {task.nodes}; a task asks for 1 or more whole nodes"
    if task.group not in nodes.groups:
        yield f"group: unknown group {task.group!r}; use {one_of(map(repr, nodes.groups))}"
        return
    there = int((nodes.group_of == nodes.groups.index(task.group)).sum())
    if task.nodes > there:
        yield f"nodes: {task.nodes}, but the group {task.group} has {there}; ask for {there} or fewer"
    quota = users.largest_quota(task)
    if quota is not None and task.nodes > quota:
        level = task.priority.name
        if task.priority is Priority.ABOVE_NORMAL:
            level += " (and at NORMAL, which it is after half an hour)"
        yield (
            f"nodes: {task.nodes}, but {task.user}'s quota at {level} in {task.group} is {quota}; ask for {quota} or "
            "fewer, or use another priority"
        )
