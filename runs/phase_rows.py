"""What happened in a phase, as rows of tables; times are ``time.monotonic()``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from controllers.client import ControllerEvent
from fabric.failures.report import LinkChange
from runs.decided_jobs import Played
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
    }


def failure_row(phase: str, change: LinkChange) -> dict[str, Any]:
    """Return a row of ``failures``: what was done to a link."""
    return {
        "phase": phase,
        "link": str(change.link),
        **vars(change.state),
        "due_s": change.due_s,
        "asked_s": change.asked_s,
        "done_s": change.done_s,
        "waiting_packets": change.waiting_packets,
        "causes": ", ".join(map(str, change.causes)),
    }


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
