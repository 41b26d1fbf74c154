"""What failures that were asked for could touch of a phase: of which job, which of its flows, and until when.

A failure of programs, disks or GPUs touches the jobs that it met, and of flows with a connection each those of its
host. One of a link touches the flows whose ways may have the link, and a job as a whole by any of its flows; where
links are lossless, what waits for one holds up others, so it may touch all. It does so from when it was asked for until
it was over and all that it stopped has been tried again:

- TCP waits twice as long after each try, so it tries again after as long as the failure lasted, at the latest, and a
  first timeout (a second for a connection that is to be made, RFC 6298);
- a program whose peer was silent waits for as long as its config has it (:class:`RetryingJob`).

What is under way then is touched however late it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from fabric.delivered import Flow
from fabric.failures.kinds.process import ProgramTarget
from fabric.failures.report import Change
from fabric.model.network import Link
from runs.failures import in_words, is_whole
from traffic.job import Job, Records
from traffic.metrics import kind_of

FIRST_TIMEOUT_S = 1.0
"""What TCP waits for before it knows a round trip (RFC 6298)."""
_LONGEST_TIMEOUT_S = 120.0
"""What it waits for at most between two tries (Linux' TCP_RTO_MAX)."""
Stretch = tuple[float, float]
"""From when to when, ``time.monotonic()``."""
WaysOf = Callable[[Flow, float, float], Collection[Link]]
"""The links that a flow may cross between two times (``time.monotonic()``)."""


@runtime_checkable
class RetryingJob(Protocol):
    """A job whose programs wait for as long as ``retry_s`` for an answer before they try again."""

    @property
    def retry_s(self) -> float:
        """How long, in seconds."""


@runtime_checkable
class ServedJob(Protocol):
    """A job that needs the programs of other jobs."""

    @property
    def served_by(self) -> Collection[str]:
        """The names of these jobs."""


@dataclass(frozen=True)
class Trouble:
    """What a target had from when it was first asked to fail until it was whole again (``math.inf``: it never was):
    ``words`` of each of its failures, the ``jobs`` that it met."""

    target: object
    from_s: float
    until_s: float
    words: tuple[str, ...]
    jobs: frozenset[str]

    def touches_until(self, retry_s: float) -> float:
        """Return until when it may touch a job whose programs try again after ``retry_s``."""
        again_s = min(self.until_s - self.from_s, _LONGEST_TIMEOUT_S) + FIRST_TIMEOUT_S
        return self.until_s + max(again_s, retry_s)


def troubles(changes: Iterable[Change]) -> list[Trouble]:
    """Return what targets had, from what was done to them: changes of each target in the order of time. Of programs on
    a host, those of each job are brought into their states by themselves."""
    open_ones: dict[tuple[object, tuple[str, ...]], list[Change]] = {}
    found: list[Trouble] = []
    for change in changes:
        under_way = open_ones.setdefault((change.target, change.jobs), [])
        if not is_whole(change):
            under_way.append(change)
        elif under_way:
            found.append(_trouble(under_way, change.done_s))
            under_way.clear()
    found += [_trouble(under_way, math.inf) for under_way in open_ones.values() if under_way]
    return sorted(found, key=lambda trouble: trouble.from_s)


def _trouble(changes: Sequence[Change], until_s: float) -> Trouble:
    words = tuple(dict.fromkeys(map(in_words, changes)))
    jobs = frozenset(job for change in changes for job in change.jobs)
    return Trouble(changes[0].target, changes[0].asked_s, until_s, words, jobs)


@dataclass(frozen=True)
class Excuse:
    """That a trouble may touch something, from when to when."""

    from_s: float
    until_s: float
    words: tuple[str, ...]

    def covers(self, began_s: float, ended_s: float) -> bool:
        """Return whether something was under way meanwhile."""
        return began_s < self.until_s and ended_s > self.from_s


@dataclass(frozen=True)
class Excuses:
    """What the troubles of a phase could touch of its jobs, whose rows are ``records``. ``ways``: the links of a flow;
    ``spreads``: what waits for a link holds up others."""

    troubles: Sequence[Trouble] = ()
    records: Records = field(default_factory=Records)
    ways: WaysOf = lambda flow, from_s, until_s: ()
    spreads: bool = False

    def of_job(self, job: Job) -> list[Excuse]:
        """Return what could touch a job as a whole."""
        return self._excuses(job, lambda trouble: self._meets(trouble, job, self._flows.get(job.name, ())))

    def of_row(self, job: Job, row: Any) -> list[Excuse]:
        """Return what could touch an operation, a row of ``operations``: a flow by its own ends, and what is asked of
        storage by all that storage does for its host."""
        if not self.troubles:
            return []
        flow, is_flow = _flow_of(row), kind_of(row["operation"]) == "flow"
        place = (job.name, flow) if is_flow else (job.name, flow.host)
        if place not in self._of_place:
            self._of_place[place] = self._of_flow(job, flow) if is_flow else self._of_host(job, flow.host)
        return self._of_place[place]

    @cached_property
    def _of_place(self) -> dict[tuple[str, Flow | str], list[Excuse]]:
        return {}

    def _of_flow(self, job: Job, flow: Flow) -> list[Excuse]:
        def could_touch(trouble: Trouble) -> bool:
            is_elsewhere = isinstance(trouble.target, ProgramTarget) and trouble.target.host not in (
                flow.host,
                flow.peer,
            )
            return not is_elsewhere and self._meets(trouble, job, [flow])

        return self._excuses(job, could_touch)

    def _of_host(self, job: Job, host: str) -> list[Excuse]:
        flows = list(self._behind(job.name, host))
        return self._excuses(job, lambda trouble: self._meets(trouble, job, flows))

    def _excuses(self, job: Job, could_touch: Callable[[Trouble], bool]) -> list[Excuse]:
        retry_s = job.retry_s if isinstance(job, RetryingJob) else 0.0
        return [
            Excuse(trouble.from_s, trouble.touches_until(retry_s), trouble.words)
            for trouble in self.troubles
            if could_touch(trouble)
        ]

    def _meets(self, trouble: Trouble, job: Job, flows: Iterable[Flow]) -> bool:
        if not isinstance(trouble.target, Link):
            served_by = job.served_by if isinstance(job, ServedJob) else ()
            return not trouble.jobs.isdisjoint({job.name, *served_by})
        return self.spreads or any(trouble.target in self.ways(flow, trouble.from_s, trouble.until_s) for flow in flows)

    @cached_property
    def _flows(self) -> dict[str, dict[Flow, None]]:
        """The flows of each job: its connections that were sampled, and whom its operations asked."""
        found: dict[str, dict[Flow, None]] = {}
        for table in ("flows", "operations"):
            for row in self.records.rows(table):
                if row["host"] and row["peer"]:
                    found.setdefault(row["job"], {})[_flow_of(row)] = None
        return found

    def _behind(self, job: str, host: str) -> Iterator[Flow]:
        """Yield the flows of a job that an operation of a host may wait for: its own, and those between servers."""
        flows = self._flows.get(job, {})
        asked = [row for row in self.records.rows("operations") if row["job"] == job]
        asking, serving = {row["host"] for row in asked}, {row["peer"] for row in asked}
        for flow in flows:
            ends = {flow.host, flow.peer}
            if host in ends or all(end in serving or end not in asking for end in ends):
                yield flow


def _flow_of(row: Any) -> Flow:
    return Flow(str(row["service_level"]), str(row["host"]), str(row["peer"]))


def without(stretch: Stretch, excuses: Iterable[Excuse]) -> float:
    """Return how much of a stretch no excuse covers, in seconds."""
    from_s, until_s = stretch
    left_s = until_s - from_s
    for excuse in sorted(excuses, key=lambda one: one.from_s):
        began_s, ended_s = max(from_s, excuse.from_s), min(until_s, excuse.until_s)
        left_s -= max(0.0, ended_s - began_s)
        from_s = max(from_s, ended_s)
    return max(0.0, left_s)
