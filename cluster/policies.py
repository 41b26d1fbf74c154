"""Scheduling policies as values: in which order tasks come, whether others may pass, what may be taken from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from cluster.nodes import Ints
from cluster.placement import Placement
from cluster.tasks import Priority, Task, Users

Columns = Sequence[Sequence[float]]
"""What tasks are sorted by: a column for each criterion, the decisive one first, with a number for each task. The lower
number comes first."""


class ColumnsOf(Protocol):
    """Says what tasks are sorted by."""

    def __call__(self, tasks: Sequence[Task], levels: Sequence[Priority], users: Users, /) -> Columns:
        """Return the columns; ``levels`` are the tasks' priorities by now."""


@dataclass(frozen=True)
class Order:
    """Which task comes first, by ``columns``; among equals the older chain. ``by_usage``: whether that depends on what
    users have used, and so changes with time alone."""

    columns: ColumnsOf
    by_usage: bool = False


def _nothing(tasks: Sequence[Task], levels: Sequence[Priority], users: Users) -> Columns:
    return ()


def _higher_level(tasks: Sequence[Task], levels: Sequence[Priority], users: Users) -> Columns:
    return ([-level for level in levels],)


def _less_used(tasks: Sequence[Task], levels: Sequence[Priority], users: Users) -> Columns:
    names = {task.user for task in tasks}
    used = {name: users.usage.get(name, 0.0) / users.shares.get(name, 1.0) for name in names}
    return ([used[task.user] for task in tasks], *_higher_level(tasks, levels, users))


PRIORITY = Order(_higher_level)
ARRIVAL = Order(_nothing)
LEAST_USED = Order(_less_used, by_usage=True)
"""The user who used the least for its share, then by priority."""


@dataclass(frozen=True)
class Policy:
    """How a cluster is shared.

    ``preempts``: a task that comes first takes nodes of running ones that come later, whole tasks, the last first,
    never of the same user and level. ``backfills``: while the first waiting task of a group waits, others may pass it
    if they do not delay it; else none may. Without ``preempts`` that is EASY, by the limits that tasks state; with it
    the first one takes their nodes back once it can start, so others than its own user's of its level pass freely.
    ``crossing``: how many tasks may cross zones at a time; None: any, over any number of zones. ``ends_at_limit``: who
    acts on decisions stops a task for good whose life has run for as long as it stated; else it goes on.
    """

    name: str
    order: Order = PRIORITY
    preempts: bool = False
    backfills: bool = False
    placement: Placement = Placement.PACKED
    crossing: int | None = 1
    ends_at_limit: bool = False

    @property
    def passes_by_limit(self) -> bool:
        """Whether it backfills as EASY does, by the limits that tasks state."""
        return self.backfills and not self.preempts

    def placed(self, placement: Placement) -> Policy:
        """Return the same policy with another placement."""
        return replace(self, placement=placement)


HAI = Policy("hai", preempts=True)
"""Fire-Flyer 2's: time sharing by priority, within a priority first come, first served. Of the public example
(scheduler/modules of hai-platform) it differs in two points: a running task is suspended only for one that gets its
nodes, and a task that asks for more nodes than are ready keeps nobody behind it waiting."""
HAI_BACKFILL = Policy("hai_backfill", preempts=True, backfills=True)
"""The same, but nodes that the first waiting task cannot use yet are lent to those behind it."""
FIFO = Policy("fifo", ARRIVAL)
EASY = Policy("easy", ARRIVAL, backfills=True)
FAIR_SHARE = Policy("fair_share", LEAST_USED, backfills=True)
POLICIES = {policy.name: policy for policy in (HAI, HAI_BACKFILL, FIFO, EASY, FAIR_SHARE)}


def in_order(policy: Policy, tasks: Sequence[Task], levels: Sequence[Priority], users: Users) -> Ints:
    """Return the places of tasks, the first first. Priorities count in ``levels``, one per task."""
    columns = policy.order.columns(tasks, levels, users)
    chains, numbers = [task.chain for task in tasks], [task.number for task in tasks]
    last_first = [np.array(column) for column in (numbers, chains, *reversed(columns))]
    found: Ints = np.lexsort(last_first)
    return found
