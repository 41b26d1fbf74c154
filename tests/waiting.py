"""Waiting for what a test in real time needs, instead of sleeping for as long as that usually takes.

A fixed sleep is too short on a busy machine, and too long on any other. Limits are generous: they only end a test that
would fail anyway, with what it waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from traffic.job import Job, Records
    from traffic.programs.job import ProgramJob

T = TypeVar("T")
LIMIT_S = 60.0
_LOOK_S = 0.01
_LONGEST_PAUSE_S = 0.5
_PAUSES_PER_LOOK = 4
"""A look may go through all processes of the machine: the time it takes is taken from what is waited for."""


def until(look: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
    """Look again and again until something is so, and return what was seen; fail after ``limit_s``, saying what was
    waited for."""
    deadline_s = time.monotonic() + limit_s
    looking_s = time.thread_time()
    while not (seen := look()):
        assert time.monotonic() < deadline_s, f"waited {limit_s:g} s for {what}; seen last: {seen!r}"
        looked_s = time.thread_time() - looking_s
        time.sleep(min(max(_LOOK_S, _PAUSES_PER_LOOK * looked_s), _LONGEST_PAUSE_S))
        looking_s = time.thread_time()
    return seen


def played_until(
    job: Job, phase: str, is_enough: Callable[[Records], object], what: str, *, window_s: float = 0.3
) -> Records:
    """Play a phase until its rows are enough, and return them. A job tells only at its halt what it did, so if they are
    not, the phase is played again, twice as long; fails after a minute of this, saying what was waited for."""
    began_s = time.monotonic()
    while True:
        job.play(phase)
        time.sleep(window_s)
        records = job.halt()
        if is_enough(records):
            return records
        assert time.monotonic() - began_s < LIMIT_S, f"played for {LIMIT_S:g} s and waited for {what}"
        window_s *= 2


def is_alive(process: int) -> bool:
    """Whether a process is there, and not only its exit code."""
    return _state_of(Path(f"/proc/{process}")) not in (None, "Z")


def have_ended(job: ProgramJob, host: str | None = None) -> bool:
    """Whether the programs of users that a job has started on all hosts, or on one, have ended."""
    starters = {one.process.pid for one in job._programs.handles.values() if host in (None, one.host)}
    return not any(_parent_of(process) in starters for process in Path("/proc").glob("[0-9]*"))


def stand_still(job: ProgramJob, host: str) -> bool:
    """Whether the programs of users that a job has started on a host, and all that these have started, are stopped; or
    wait for a child that was stopped before its exec, as a shell that calls vfork does (state D)."""
    starters = {str(one.process.pid) for one in job._programs.handles.values() if one.host == host}
    found = {process.name: words for process in Path("/proc").glob("[0-9]*") if (words := _words_of(process))}
    groups = {group for _, parent, group, *_ in found.values() if parent in starters}
    members = {number: words for number, words in found.items() if words[2] in groups}
    parents_of_stopped = {parent for state, parent, *_ in members.values() if state == "T"}
    return bool(groups) and all(
        state in ("T", "Z") or (state == "D" and number in parents_of_stopped)
        for number, (state, *_) in members.items()
    )


def _state_of(process: Path) -> str | None:
    words = _words_of(process)
    return words[0] if words else None


def _parent_of(process: Path) -> int | None:
    words = _words_of(process)
    return int(words[1]) if words else None


def _words_of(process: Path) -> list[str]:
    """Return what ``/proc/PID/stat`` says from the state on (proc(5)); nothing if the process has gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
