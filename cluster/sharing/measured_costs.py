"""What starts, suspends and restarts cost, as lives that were played with packets say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cluster.jobs.spans import End
from cluster.sharing.composed import Played
from cluster.sharing.packets import median
from cluster.simulation.costs import Costs


def measured_costs(played: Sequence[Played], given: Costs) -> Costs:
    """Return costs in which each that the lives show is their median; the others, such as the interval between two
    checkpoints, are those given.

    ``start`` is all of a job's time with nodes in which it makes no steps, of jobs that were not interrupted: until its
    first step, and from its last one until it is known to have left.
    """
    starts = [seconds for one in played for seconds in _without_steps(one)]
    lives = [life for one in played for life in one.lives]
    start_s = median(starts)
    suspends = [life for life in lives if life.end is End.SUSPENDED]
    answer_s = median(_between(life.told_s, life.answered_s) for life in suspends)
    save_s = median(_between(life.answered_s, life.left_s) for life in suspends)
    found = {"start": start_s, "answer": answer_s, "suspend_save": save_s}
    # Every life begins alike: one that goes on from a checkpoint is told its step, and reads nothing.
    return given.model_copy(update={name: max(0.0, value) for name, value in found.items() if value is not None})


def _without_steps(played: Played) -> Iterator[float]:
    lives = Counter(life.job for life in played.lives)
    work_s = {job.number: job.work_s for job in played.jobs}
    for life in played.lives:
        if life.end is End.FINISHED and lives[life.job] == 1:
            yield life.left_s - life.began_s - work_s[life.job]


def _between(from_s: float | None, until_s: float | None) -> float | None:
    return None if from_s is None or until_s is None else until_s - from_s
