"""Rows of the table of a platform's events: how they are made, and what a cell of them means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.platform.reasons import Why, blamed_by, kind_of
from fabric.records.packed import NONE, names_cell, number_in

EVENTS = "platform_events"
Row = Mapping[Any, Any]


def event_row(at_s: float, event: str, why: Why) -> dict[str, object]:
    """Return the row of an event of no job, node and step; add those that it has."""
    row: dict[str, object] = {"at_s": at_s, "event": event, "number": 0, "life": 0, "nodes": "", "why": str(why)}
    return row | {"reason": kind_of(why), "blamed": names_cell(blamed_by(why)), "earlier_s": 0.0, "step": NONE}


def step_of(row: Row) -> int | None:
    """Return the step that an event of a checkpoint names; None if it names none."""
    return number_in(row["step"])


def happened_s(row: Row) -> float:
    """Return the time of what an event tells late: the last heartbeat of a silent node, a checkpoint whose agent was
    away."""
    return float(row["at_s"]) - float(row["earlier_s"])
