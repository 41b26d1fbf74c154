"""What the jobs of a phase did, as evidence for the verdict: whether they played for their time, and what failed.

What failures could touch that were asked for is left out of both (:mod:`runs.excuses`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from fabric.measure.load_checks import FailedOperations, PlayedLoad
from runs.decided_jobs import Played
from runs.excuses import Excuse, Excuses, without
from traffic.flows.background import CONNECT_TIMEOUT_S
from traffic.job import FiniteJob, Job, Records, RestingJob
from traffic.storage.metadata.loads import FILE_STEP_NAMES

_CLOSED, _OPEN = ("read", "write"), "flow"
_SUFFIXES = ("", "_failed", "_refused", "_abandoned")
_KINDS = {f"{kind}{suffix}": kind for kind in (*_CLOSED, _OPEN, *FILE_STEP_NAMES) for suffix in _SUFFIXES}
"""Of which kind operations are whose failures need a reason, by their names."""
_MISSED_S = 0.01
"""By how much less than its timeout one that timed out may have taken, by the clock of its rows."""
_AS_SLOW = 2
"""One that failed had a reason if it tried for no longer than so many times what the slowest took that completed. Both
times count from an operation's first try."""
_NO_EXCUSES = Excuses()


@dataclass(frozen=True)
class LoadEvidence:
    """What the jobs of a phase did, each in its windows, what became of their operations, and the hosts whose programs
    failures hit, with what was done to them, in words."""

    loads: Sequence[PlayedLoad] = ()
    failed: Sequence[FailedOperations] = ()
    stopped: Mapping[str, Sequence[str]] = field(default_factory=dict)


Row = Mapping[str, Any]
Times = npt.NDArray[np.float64]


def load_evidence(
    played: Sequence[Played], records: Records, excuses: Excuses, stopped: Mapping[str, Sequence[str]]
) -> LoadEvidence:
    """Return the evidence of a phase; ``stopped`` as there."""
    failed = failed_operations(records, [one.job for one in played], excuses)
    return LoadEvidence(played_loads(played, records, excuses), failed, stopped)


def played_loads(played: Iterable[Played], records: Records, excuses: Excuses = _NO_EXCUSES) -> list[PlayedLoad]:
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
            found.append(_load(one, times, excuses.of_job(one.job), is_steady=name in steps))
    return found


def _by_job(rows: Iterable[Row]) -> dict[str, Times]:
    """Return when each row of each job started and ended, shape (n, 2)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["job"], []).append((row["started_s"], row["ended_s"]))
    return {job: np.array(times, np.float64) for job, times in found.items()}


def _load(one: Played, times: Times, excuses: Sequence[Excuse], is_steady: bool) -> PlayedLoad:
    inside = times[(times[:, 1] > one.began) & (times[:, 0] < one.halted)]
    began, ended = inside[np.argsort(inside[:, 0], kind="stable")].T
    if not began.size:
        return PlayedLoad(one.job.name, one.halted - one.began, 0.0, 0.0, 0.0, 0, is_steady)
    since = np.maximum.accumulate(ended)[:-1]
    pauses = [
        float(following - before)
        for before, following in zip(since, began[1:], strict=True)
        if following > before and not any(excuse.covers(before, following) for excuse in excuses)
    ]
    edges = (one.began, max(one.began, float(began[0]))), (min(one.halted, float(ended.max())), one.halted)
    idle_begin_s, idle_end_s = (without(edge, excuses) for edge in edges)
    excused_s = sum(until_s - from_s for from_s, until_s in edges) - idle_begin_s - idle_end_s
    touching = [excuse for excuse in excuses if any(excuse.covers(*edge) for edge in edges if edge[1] > edge[0])]
    return PlayedLoad(
        job=one.job.name,
        seconds=one.halted - one.began,
        idle_begin_s=idle_begin_s,
        idle_end_s=idle_end_s,
        longest_pause_s=max(pauses, default=0.0),
        operations=int(began.size),
        is_steady=is_steady,
        rests_s=one.job.rests_s if isinstance(one.job, RestingJob) else 0.0,
        excused_s=excused_s,
        asked=_words(touching) if excused_s else (),
    )


def _words(excuses: Iterable[Excuse]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for excuse in excuses for word in excuse.words))


def failed_operations(
    records: Records, jobs: Collection[Job] = (), excuses: Excuses = _NO_EXCUSES
) -> list[FailedOperations]:
    """Return what became of each kind of operation of each job.

    One that failed has a reason if others took about as long that completed: then the network is as slow as that, as
    where a lane is full for seconds. A flow that failed before its connect could time out was turned away, which no
    network does. ``jobs``: whose operations ``excuses`` can be asked about.
    """
    by_name = {job.name: job for job in jobs}
    found: dict[tuple[str, str], list[Row]] = {}
    for row in records.rows("operations"):
        if (kind := _KINDS.get(row["operation"])) is not None:
            found.setdefault((row["job"], kind), []).append(row)

    def touching(row: Row) -> list[Excuse]:
        job = by_name.get(row["job"])
        found = [] if job is None else excuses.of_row(job, row)
        return [excuse for excuse in found if excuse.covers(row["started_s"], row["ended_s"])]

    return [_failed_of(job, kind, rows, touching) for (job, kind), rows in found.items()]


def _failed_of(
    job: str, kind: str, rows: Sequence[Row], touching: Callable[[Row], Sequence[Excuse]]
) -> FailedOperations:
    completed = [row for row in rows if row["operation"] == kind]
    failed = [(row, touching(row)) for row in rows if row["operation"] == f"{kind}_failed"]
    excused = [found for _, found in failed if found]
    slowest_s = max((_took_s(row) for row in completed if not touching(row)), default=0.0)
    tried_s = [_took_s(row) for row, found in failed if not found]
    least_s = CONNECT_TIMEOUT_S - _MISSED_S if kind == _OPEN else 0.0
    unexplained = sum(time_s > _AS_SLOW * slowest_s or time_s < least_s for time_s in tried_s)
    begun = sum(row["operation"] != f"{kind}_refused" for row in rows)
    asked = _words(excuse for found in excused for excuse in found)
    return FailedOperations(job, kind, begun, len(failed), unexplained, slowest_s, len(excused), asked)


def _took_s(row: Row) -> float:
    return float(row["ended_s"] - row["started_s"])
