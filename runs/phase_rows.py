"""What happened in a phase, as rows of tables; times are ``time.monotonic()``."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

from controllers.client import ControllerEvent
from fabric.failures.report import Change, FaultReport, LinkChange
from fabric.failures.schedule import WHOLE, FailureEvent, FailureSchedule
from fabric.measure.verdict import Check
from fabric.records.packed import causes_in, details_cell, list_cell
from fabric.tables import BY_RUN, WHOLE_STATE
from runs.decided_jobs import Played
from runs.failures import kind_of
from runs.ways import Moved

LATE_S, SHORT = 0.1, 0.1
"""How late a change of a failure may be, and what part of the time asked for a failure may lack. Orders reach programs
within milliseconds; two sampling periods, and a tenth, are what the tables beside them cannot hide."""
_SHORT_S = 0.001
"""What is short by less is so by how long it takes to read that it is done."""
_MOST_WORDS = 4


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


def failure_rows(phase: str, report: FaultReport) -> list[dict[str, Any]]:
    """Return rows of ``failures``: what was done to each target, and when its next change ended that; then what was due
    and never done."""
    following: dict[tuple[Hashable, tuple[str, ...]], float] = {}
    rows = []
    for change in reversed(report.changes):
        target = change.target, change.jobs
        rows.append(failure_row(phase, change) | {"ended_s": following.get(target, math.nan)})
        following[target] = change.done_s
    return [*rows[::-1], *(failure_row(phase, change) | {"ended_s": math.nan} for change in report.missed)]


def failure_row(phase: str, change: Change, asked_by: str = BY_RUN) -> dict[str, Any]:
    """Return a row of ``failures`` without ``ended_s``, which follows from the target's next one."""
    is_link = isinstance(change, LinkChange)
    return {
        "phase": phase,
        "kind": kind_of(change.target),
        "target": str(change.target),
        "state": str(change.state),
        "link": str(change.target) if is_link else "",
        **vars(change.state if isinstance(change, LinkChange) else WHOLE),
        "due_s": change.due_s,
        "due_end_s": change.due_end_s,
        "asked_s": change.asked_s,
        "done_s": change.done_s,
        "waiting_packets": change.waiting_packets if isinstance(change, LinkChange) else 0,
        "jobs": list_cell(change.jobs),
        "detail": change.detail,
        "missed": change.missed,
        "causes": list_cell(change.causes),
        "asked_by": asked_by,
    }


def carried_out_checks(
    asked: FailureSchedule | None, failures: pd.DataFrame, longest_s: float = math.inf, key: str = "failures"
) -> list[Check]:
    """Return whether each line of a config's ``failures`` happened in some phase, by rows of the table, and if not why;
    nothing if nothing was asked for. ``longest_s``: for how long the load of the longest phase played;
    ``key``: of the config, whose list they are."""
    if asked is None or not asked.events:
        return []
    lines = {cause: event for event in asked.events[::-1] for cause in event.causes}
    done = _by_line(failures[failures["missed"].astype(str) == ""], "state")
    why = _by_line(failures[failures["missed"].astype(str) != ""], "missed")
    found_so = {cause for event in asked.found_so if event.at_s < longest_s for cause in event.causes}
    missing = sorted(lines.keys() - done.keys() - found_so)
    reasons = [why.get(line) or _why_not(lines[line], longest_s) for line in missing]
    words = [
        f"{key}.{line} ({lines[line].target}, due at {lines[line].at_s:g} s): {reason}"
        for line, reason in zip(missing, reasons, strict=True)
    ]
    text = f"never carried out: {_some(words)}" if missing else "all failures asked for were carried out"
    return [Check("failures_missed", len(missing), 0, math.inf, text)]


def _by_line(failures: pd.DataFrame, column: str) -> dict[int, str]:
    """Return what is in a column of the last row of each line."""
    rows = zip(failures["causes"].astype(str), failures[column].astype(str), strict=True)
    return {cause: value for causes, value in rows for cause in causes_in(causes)}


def _why_not(event: FailureEvent, longest_s: float) -> str:
    if event.at_s >= longest_s:
        return f"no phase is so long; the longest has {longest_s:.3g} s"
    return "no job that plays then has it"


def _some(words: Sequence[str]) -> str:
    return "; ".join(words[:_MOST_WORDS]) + (f"; and {len(words) - _MOST_WORDS} more" if words[_MOST_WORDS:] else "")


def timely_checks(failures: pd.DataFrame) -> list[Check]:
    """Return how late failures began and ended at their targets, and how much shorter they were than asked for, by rows
    of the table; nothing if there are none of which that is known."""
    known = failures[failures["due_end_s"].notna() & failures["done_s"].notna()]
    if known.empty:
        return []
    fails = known["state"].astype(str) != WHOLE_STATE
    # A program that is started again is there once it has started: it is late by when that was asked for.
    starts = ~fails & (known["kind"].astype(str) == "process")
    late_s = known["done_s"].mask(starts, known["asked_s"]) - known["due_s"]
    asked_s = (known["due_end_s"] - known["due_s"]).where(fails)
    lasted_s = known["ended_s"].fillna(known["due_end_s"]).clip(lower=known["done_s"]) - known["done_s"]
    short_s = (asked_s - lasted_s).where(fails, 0.0)
    short = (short_s / asked_s).where(short_s > _SHORT_S, 0.0)
    late, brief = float(late_s.max()), float(max(0.0, short.max()))
    on_time, long = f"no change of a failure was more than {LATE_S:g} s late", "no failure lacked more of its time"
    late_words = _worst(late_s, LATE_S, known, f"{late:.3g} s late") or on_time
    brief_words = _worst(short, SHORT, known, f"without {brief:.0%} of its time") or f"{long} than {SHORT:.0%}"
    return [
        Check("failures_late_s", max(0.0, late), LATE_S, math.inf, late_words),
        Check("failures_short_fraction", brief, SHORT, math.inf, brief_words),
    ]


def _worst(values: pd.Series[float], limit: float, rows: pd.DataFrame, what: str) -> str:
    """Return of which row the largest value is, and when it was due and done; nothing if it is within the limit."""
    place = values.astype(float).idxmax()
    if not values[place] > limit:
        return ""
    row = rows.loc[place]
    due = f"due at {row['due_s']:.3f} s of the run, for {row['due_end_s'] - row['due_s']:.3g} s"
    until = "to the end of the phase" if math.isnan(row["ended_s"]) else f"until {row['ended_s']:.3f} s"
    return (
        f"{row['target']} ({row['state']}) in phase {row['phase']} was {what}: {due}; it was so from "
        f"{row['done_s']:.3f} s {until}; {(values > limit).sum()} of {len(values)} changes are beyond the limit"
    )


def ended_checks(jobs: pd.DataFrame) -> list[Check]:
    """Return the word that failures which were asked for have ended jobs, which is not a fault; nothing if they have
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
            "details": details_cell({"moves": [[move.leaf.name, move.ip, move.port]]}),
        }
        for move in moves
    ]


def controller_rows(phase: str, events: Iterable[ControllerEvent]) -> list[dict[str, Any]]:
    """Return rows of ``controller``: what it did."""
    return [
        {"phase": phase, "at_s": event.at_s, "kind": event.kind, "details": details_cell(event.details)}
        for event in events
    ]
