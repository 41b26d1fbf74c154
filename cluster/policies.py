"""Scheduling policies as values: in which order tasks come, whether others may pass, what may be taken from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster.nodes import Ints
from cluster.placement import Placement
from cluster.tasks import Priority, Task, Users


class Order(str, Enum):
    """Which task comes first.

    - ``priority``: the higher level, then the older chain;
    - ``arrival``: the older chain;
    - ``fair_share``: the user who used the least for its share, then as ``priority``.
    """

    PRIORITY = "priority"
    ARRIVAL = "arrival"
    FAIR_SHARE = "fair_share"


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
    order: Order = Order.PRIORITY
    preempts: bool = False
    backfills: bool = False
    placement: Placement = Placement.PACKED
    crossing: int | None = 1
    ends_at_limit: bool = False

    def placed(self, placement: Placement) -> Policy:
        """Return the same policy with another placement."""
        return replace(self, placement=placement)


HAI = Policy("hai", preempts=True)
"""Fire-Flyer 2's: time sharing by priority, within a priority first come, first served. Of the public example
(scheduler/modules of hai-platform) it differs in two points: a running task is suspended only for one that gets its
nodes, and a task that asks for more nodes than are ready keeps nobody behind it waiting."""
HAI_BACKFILL = Policy("hai_backfill", preempts=True, backfills=True)
"""The same, but nodes that the first waiting task cannot use yet are lent to those behind it."""
FIFO = Policy("fifo", Order.ARRIVAL)
EASY = Policy("easy", Order.ARRIVAL, backfills=True)
FAIR_SHARE = Policy("fair_share", Order.FAIR_SHARE, backfills=True)
POLICIES = {policy.name: policy for policy in (HAI, HAI_BACKFILL, FIFO, EASY, FAIR_SHARE)}


def in_order(policy: Policy, tasks: Sequence[Task], levels: Sequence[Priority], users: Users) -> Ints:
    """Return the places of tasks, the first first. Priorities count in ``levels``, one per task."""
    numbers = np.array([task.number for task in tasks], dtype=np.int64)
    chains = np.array([task.chain for task in tasks], dtype=np.int64)
    keys: list[npt.NDArray[Any]] = [numbers, chains]
    if policy.order is not Order.ARRIVAL:
        keys.append(-np.array(levels, dtype=np.int64))
    if policy.order is Order.FAIR_SHARE:
        names = {task.user for task in tasks}
        used = {name: users.usage.get(name, 0.0) / users.shares.get(name, 1.0) for name in names}
        keys.append(np.array([used[task.user] for task in tasks]))
    found: Ints = np.lexsort(keys)
    return found
