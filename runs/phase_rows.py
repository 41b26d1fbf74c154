"""What happened in a phase, as rows of tables; times are ``time.monotonic()``."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

from controllers.client import ControllerEvent
from fabric.failures.report import Change, LinkChange
from fabric.failures.schedule import WHOLE, FailureSchedule
from fabric.measure.verdict import Check
from runs.decided_jobs import Played
from runs.failures import kind_of
from runs.ways import Moved


def job_row(phase: str, played: Played) -> dict[str, Any]:
    """Return a row of ``jobs``: when a job played."""
    return {
        "phase": phase,
        "job": played.job.name,
        "service_level": played.job.level.label,
        "started_s": played.began,
        "halted_s": played.halted,
        "ended_s": played.ended,
        "failed": played.failed,
    }


def failure_rows(phase: str, changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Return rows of ``failures``: what was done to each target, and when its next change ended that."""
    following: dict[Hashable, float] = {}
    rows = []
    for change in reversed(changes):
        rows.append(_failure_row(phase, change) | {"ended_s": following.get(change.target, math.nan)})
        following[change.target] = change.done_s
    return rows[::-1]


def _failure_row(phase: str, change: Change) -> dict[str, Any]:
    is_link = isinstance(change, LinkChange)
    return {
        "phase": phase,
        "kind": kind_of(change.target),
        "target": str(change.target),
        "state": str(change.state),
        "link": str(change.target) if is_link else "",
        **vars(change.state if isinstance(change, LinkChange) else WHOLE),
        "due_s": change.due_s,
        "asked_s": change.asked_s,
        "done_s": change.done_s,
        "waiting_packets": change.waiting_packets if isinstance(change, LinkChange) else 0,
        "jobs": ", ".join(change.jobs),
        "detail": change.detail,
        "causes": ", ".join(map(str, change.causes)),
    }


def carried_out_checks(asked: FailureSchedule | None, failures: pd.DataFrame) -> list[Check]:
    """Return whether each line of a config's ``failures`` happened in some phase, by rows of the table; nothing if
    nothing was asked for."""
    lines = {} if asked is None else {cause: event for event in asked.events[::-1] for cause in event.causes}
    done = {int(cause) for causes in failures["causes"].astype(str) for cause in causes.split(", ") if cause}
    missing = sorted(lines.keys() - done)
    if not lines:
        return []
    words = ", ".join(f"failures.{line} ({lines[line].target}, {lines[line].at_s:g} s)" for line in missing)
    text = f"never carried out: {words}; no phase is so long, or no job that plays then has it" if missing else ""
    return [Check("failures_missed", len(missing), 0, math.inf, text or "all failures asked for were carried out")]


def ended_checks(jobs: pd.DataFrame) -> list[Check]:
    """Return the word that failures which were asked for have ended jobs, which is no fault; nothing if they have
    not."""
    rows = jobs[jobs["failed"].astype(str) != ""].to_dict("records")
    words = [f"{row['job']} in phase {row['phase']}: {row['failed']}" for row in rows]
    return [Check("jobs_ended", 0, 0, math.inf, f"jobs ended as was asked for: {'; '.join(words)}")] if words else []


def move_rows(phase: str, moves: Iterable[Moved]) -> list[dict[str, Any]]:
    """Return rows of ``controller``: the moves of adaptive routing."""
    return [
        {
            "phase": phase,
            "at_s": move.at_s,
            "kind": "moved",
            "details": json.dumps({"moves": [[move.leaf.name, move.ip, move.port]]}),
        }
        for move in moves
    ]


def controller_rows(phase: str, events: Iterable[ControllerEvent]) -> list[dict[str, Any]]:
    """Return rows of ``controller``: what it did."""
    return [
        {"phase": phase, "at_s": event.at_s, "kind": event.kind, "details": json.dumps(dict(event.details))}
        for event in events
    ]
