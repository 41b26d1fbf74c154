"""How long a job waits at most under HAI's rules, where quotas limit what may come before it.

Without quotas nothing bounds the wait: jobs of a higher priority may keep coming. With quotas whose sum over all users
and higher levels leaves the cluster enough nodes for it, a job waits for older ones of its own level only, and for
notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.jobs.spans import LifeSpan
from cluster.nodes import Nodes
from cluster.simulation.costs import ANSWER_WITHIN_S, SAVE_WITHIN_S
from cluster.simulation.lives import Job
from cluster.tasks import LEVELS, Priority, Users

NOTICE_S = ANSWER_WITHIN_S + SAVE_WITHIN_S


def nodes_before(level: Priority, users: Users, names: Iterable[str], group: str = "training") -> int | None:
    """Return the most nodes that jobs of higher levels can have at once by their users' quotas; None is no limit.

    ABOVE_NORMAL and AUTO are not told apart from the levels whose quotas they use.
    """
    total = 0
    for name in names:
        for one in LEVELS:
            if one > level:
                quota = users.quota((name, one, group))
                if quota is None:
                    return None
                total += quota
    return total


def longest_wait_s(older: int, longest_s: float, interruptions: int, tick_s: float) -> float:
    """Return how long a job waits at most that has room beside all higher levels (:func:`nodes_before`), in one zone.

    ``older``: jobs of its level that were submitted before it and had not ended; ``longest_s``: how long one of them
    has its nodes at most, all its lives together; ``interruptions``: how many lives of higher levels began meanwhile.
    Each of them may take the nodes that others are leaving for it, and it waits for another notice.
    """
    notice_s = NOTICE_S + 2 * tick_s
    return older * (longest_s + notice_s) + (interruptions + 1) * notice_s


@dataclass(frozen=True)
class BoundedWait:
    """How long a job waited for its first nodes, and how long it does at most."""

    job: int
    waited_s: float
    bound_s: float


def bounded_waits(
    jobs: Sequence[Job], lives: Sequence[LifeSpan], users: Users, nodes: Nodes, tick_s: float
) -> list[BoundedWait]:
    """Return the first wait of each job that has a bound, as HAI's rules played the list, and none of the others.

    A job has one if it has room in a zone whatever jobs of higher levels have by their quotas, so have all of its level
    that came before it and were still there, and none of these has a quota at that level. Levels at which a user
    submits nothing do not count.
    """
    firsts = {life.job: life for life in sorted(lives, key=lambda life: -life.began_s)}
    ended_s = {job.number: max(life.left_s for life in lives if life.job == job.number) for job in jobs}
    had_s = {job.number: sum(life.left_s - life.began_s for life in lives if life.job == job.number) for job in jobs}
    level_of = {job.number: job.priority for job in jobs}
    found = []
    for job in jobs:
        alike = [one for one in jobs if one.priority is job.priority and one.number < job.number]
        older = [one for one in alike if ended_s[one.number] > job.submitted_s]
        if not all(_has_room(one, jobs, users, nodes) for one in (job, *older)):
            continue
        first = firsts[job.number]
        began = sum(
            level_of[life.job] > job.priority and job.submitted_s <= life.began_s <= first.began_s for life in lives
        )
        longest_s = max((had_s[one.number] for one in older), default=0.0)
        found.append(BoundedWait(job.number, first.waited_s, longest_wait_s(len(older), longest_s, began, tick_s)))
    return found


def _has_room(job: Job, jobs: Sequence[Job], users: Users, nodes: Nodes) -> bool:
    if users.quota((job.user, job.priority, job.group)) is not None:
        return False
    higher = {(one.user, one.priority, one.group) for one in jobs if one.priority > job.priority}
    quotas = [users.quota(key) for key in higher]
    if None in quotas:
        return False
    before = sum(quota for quota in quotas if quota is not None)
    # Wherever these are, one of the zones has as many left as the job asks for.
    return len(nodes) - before > len(np.unique(nodes.zones)) * (job.nodes - 1)
