"""What the jobs of a phase did, as evidence for the verdict: whether they played for their time, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from fabric.measure.load_checks import FailedOperations, PlayedLoad
from runs.decided_jobs import Played
from traffic.flows.background import CONNECT_TIMEOUT_S
from traffic.job import FiniteJob, Records
from traffic.storage.metadata.loads import FILE_STEP_NAMES

_CLOSED, _OPEN = ("read", "write"), "flow"
_SUFFIXES = ("", "_failed", "_refused", "_abandoned")
_KINDS = {f"{kind}{suffix}": kind for kind in (*_CLOSED, _OPEN, *FILE_STEP_NAMES) for suffix in _SUFFIXES}
"""Of which kind operations are whose failures need a reason, by their names."""
_MISSED_S = 0.01
"""By how much less than its timeout one that timed out may have taken, by the clock of its rows."""
_AS_SLOW = 2
"""One that failed had a reason if it tried for no longer than so many times what the slowest took that completed."""

Row = Mapping[str, Any]
Times = npt.NDArray[np.float64]


def played_loads(played: Iterable[Played], records: Records) -> list[PlayedLoad]:
    """Return what each job did in each of its windows. Jobs with a fixed amount to do end by themselves, and programs
    of users as they like: they are left out, and so are jobs without rows."""
    names = {f"{kind}{suffix}" for kind in (*_CLOSED, _OPEN) for suffix in _SUFFIXES}
    operations = _by_job(row for row in records.rows("operations") if row["operation"] in names)
    steps = _by_job(chain(records.rows("steps"), records.rows("work_steps")))
    found = []
    for one in played:
        name = one.job.name
        times = steps.get(name, operations.get(name))
        if times is not None and not isinstance(one.job, FiniteJob):
            found.append(_load(one, times, is_steady=name in steps))
    return found


def _by_job(rows: Iterable[Row]) -> dict[str, Times]:
    """Return when each row of each job started and ended, shape (n, 2)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["job"], []).append((row["started_s"], row["ended_s"]))
    return {job: np.array(times, np.float64) for job, times in found.items()}


def _load(one: Played, times: Times, is_steady: bool) -> PlayedLoad:
    inside = times[(times[:, 1] > one.began) & (times[:, 0] < one.halted)]
    began, ended = inside[np.argsort(inside[:, 0], kind="stable")].T
    if not began.size:
        return PlayedLoad(one.job.name, one.halted - one.began, 0.0, 0.0, 0.0, 0, is_steady)
    pauses = began[1:] - np.maximum.accumulate(ended)[:-1]
    return PlayedLoad(
        job=one.job.name,
        seconds=one.halted - one.began,
        idle_begin_s=max(0.0, float(began[0]) - one.began),
        idle_end_s=max(0.0, one.halted - float(ended.max())),
        longest_pause_s=max(0.0, float(pauses.max(initial=0.0))),
        operations=int(began.size),
        is_steady=is_steady,
    )


def failed_operations(records: Records) -> list[FailedOperations]:
    """Return what became of each kind of operation of each job.

    One that failed has a reason if others took about as long that completed: then the network is as slow as that, as
    where a lane is full for seconds. A flow that failed before its connect could time out was turned away, which no
    network does.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for row in records.rows("operations"):
        if (kind := _KINDS.get(row["operation"])) is not None:
            found.setdefault((row["job"], kind), []).append(row)
    return [_failed_of(job, kind, rows) for (job, kind), rows in found.items()]


def _failed_of(job: str, kind: str, rows: Sequence[Row]) -> FailedOperations:
    slowest_s = max((row["ended_s"] - row["started_s"] for row in rows if row["operation"] == kind), default=0.0)
    tried_s = [row["ended_s"] - row["started_s"] for row in rows if row["operation"] == f"{kind}_failed"]
    least_s = CONNECT_TIMEOUT_S - _MISSED_S if kind == _OPEN else 0.0
    unexplained = sum(time_s > _AS_SLOW * slowest_s or time_s < least_s for time_s in tried_s)
    begun = sum(row["operation"] != f"{kind}_refused" for row in rows)
    return FailedOperations(job, kind, begun, len(tried_s), unexplained, slowest_s)
