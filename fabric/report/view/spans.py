"""What a run's time axis carries: phases, jobs, what failed and for how long, blackouts, repairs and moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pandas as pd

from fabric.metrics import unit_of
from fabric.model.identity import ends_of_link
from fabric.records.packed import details_in
from fabric.results import Phase
from fabric.tables import BY_HAND, WHOLE_STATE
from fabric.units import format_time

_REPAIRS = {"installed": "repair", "moved": "move"}
"""Kinds of actions of the controller that change routes, and what they are called here."""
HAPPENED = ("jobs", "failures", "blackouts", "restarts", "controller")
"""The tables that are read."""
_MOST_EVENTS = 5_000
"""Of a kind; more would be no more to see."""


class Tables(Protocol):
    """What is read of a result, or of a run that plays (:mod:`fabric.report.view.live_tables`)."""

    @property
    def phases(self) -> list[Phase]:
        """Its phases."""

    def table(self, name: str) -> pd.DataFrame:
        """Return a table."""


@dataclass(frozen=True)
class Span:
    """Something that lasts. ``kind`` says which row it is in; ``ports``: those that it concerns."""

    kind: str
    label: str
    begin_s: float
    end_s: float
    detail: str = ""
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Instant:
    """Something that happens."""

    kind: str
    at_s: float
    label: str


@dataclass(frozen=True)
class TargetChange:
    """A change of what failed: ``kind`` is ``failure``, with what is wrong from now on as ``detail``; ``whole again``,
    after how long; or ``missed``: it was due, and why it never came."""

    kind: str
    at_s: float
    label: str
    detail: str = ""


@dataclass(frozen=True)
class Happened:
    """All of a run; ``left_out``: how many were too many, by kind."""

    spans: tuple[Span, ...]
    instants: tuple[Instant, ...]
    changes: tuple[TargetChange, ...]
    left_out: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        names = ("spans", "instants", "changes")
        return {name: [asdict(one) for one in getattr(self, name)] for name in names}


def happened_in(result: Tables) -> Happened:
    """Return what happened in a run, by its tables."""
    spans = [*_phases(result), *_jobs(result), *_failures(result), *_blackouts(result), *_restarts(result)]
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    kept: list[Span | Instant | TargetChange] = []
    found: list[Span | Instant | TargetChange] = [*spans, *_repairs(result), *_changes(result)]
    for one in found:
        counts[one.kind] += 1
        if counts[one.kind] > _MOST_EVENTS:
            left_out[one.kind] += 1
        else:
            kept.append(one)
    return Happened(
        tuple(one for one in kept if isinstance(one, Span)),
        tuple(one for one in kept if isinstance(one, Instant)),
        tuple(one for one in kept if isinstance(one, TargetChange)),
        dict(left_out),
    )


def _phases(result: Tables) -> Iterator[Span]:
    for phase in result.phases:
        routing = f", routing {phase.routing}" if phase.routing else ""
        yield Span("phase", phase.title, phase.started_s, phase.ended_s, f"{phase.queueing}{routing}")


def _jobs(result: Tables) -> Iterator[Span]:
    for row in _rows(result.table("jobs")):
        yield Span("job", str(row["job"]), row["started_s"], row["ended_s"], str(row["service_level"]))


def _failures(result: Tables) -> Iterator[Span]:
    """Yield for how long each link, program and disk was not as it should be: from when that was done until its next
    change."""
    last = max((phase.ended_s for phase in result.phases), default=0.0)
    for target, changes in _by_target(result):
        ends = [*(float(row["done_s"]) for row in changes[1:]), last]
        for row, end_s in zip(changes, ends, strict=True):
            if words := _state(row):
                is_link = row["kind"] == "link"
                ports = ends_of_link(target) if is_link else ()
                yield Span("cut" if is_link else "failure", target, float(row["done_s"]), end_s, words, ports)


def _by_target(result: Tables) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield what fails, and the rows of its changes in order."""
    for target, rows in result.table("failures").dropna(subset=["done_s"]).groupby("target", observed=True):
        yield str(target), rows.sort_values("done_s", kind="stable").to_dict("records")  # type: ignore[misc]


def _changes(result: Tables) -> Iterator[TargetChange]:
    """Yield an event per row of failures."""
    for target, changes in _by_target(result):
        began_s = 0.0
        was_whole = True
        for row in changes:
            at_s, words = float(row["done_s"]), _state(row)
            if words:
                began_s = at_s if was_whole else began_s
                yield TargetChange("failure", at_s, target, words)
            elif not was_whole:
                yield TargetChange("whole again", at_s, target, f"after {format_time(at_s - began_s)}")
            was_whole = not words
    failures = result.table("failures")
    for missed in failures[failures["missed"].astype(str) != ""].to_dict("records"):
        words = f"{missed['state']}: {missed['missed']}"
        yield TargetChange("missed", float(missed["due_s"]), str(missed["target"]), words)


def _state(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a target after a change, nothing if nothing is."""
    if row["kind"] != "link":
        parts = [str(row["state"]) if row["state"] != WHOLE_STATE else "", str(row["detail"])]
        words = ": ".join(filter(None, parts))
    else:
        words = _of_link(row)
    return f"{words}, {BY_HAND}" if words and row["asked_by"] == BY_HAND else words


def _of_link(row: Mapping[str, Any]) -> str:
    if not row["up"]:
        return "no carrier"
    parts = [f"at {row['rate_fraction']:.0%} of its rate"] if row["rate_fraction"] != 1 else []
    parts += [f"loses {row['loss_fraction']:.2%} of frames"] if row["loss_fraction"] else []
    parts += ["its NIC pauses"] if row.get("paused") else []
    return ", ".join(parts)


def _blackouts(result: Tables) -> Iterator[Span]:
    for row in _rows(result.table("blackouts")):
        lost = f"{row['lost_packets']} probes lost"
        yield Span("blackout", str(row["flow"]), row["began_s"], row["ended_s"], lost)


def _restarts(result: Tables) -> Iterator[Span]:
    for row in _rows(result.table("restarts")):
        detail = f"step {row['step']} failed: {row['reason']}"
        yield Span("restart", str(row["job"]), row["failed_s"], row["resumed_s"], detail)


def _repairs(result: Tables) -> Iterator[Instant]:
    for row in _rows(result.table("controller")):
        kind = _REPAIRS.get(str(row["kind"]))
        if kind is not None:
            yield Instant(kind, row["at_s"], _words(kind, details_in(row["details"])))


def _words(kind: str, details: Mapping[str, Any]) -> str:
    if kind == "move":
        moves = details.get("moves", [])
        return "; ".join(f"{leaf} sends {ip} by port {port}" for leaf, ip, port in moves[:3]) + (
            f" and {len(moves) - 3} more" if len(moves) > 3 else ""
        )
    down = details.get("links_down") or []
    return f"rules installed in {details.get('rounds', '?')} rounds, links down: {', '.join(map(str, down)) or 'none'}"


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows whose times are all known."""
    times = [name for name in frame.columns if unit_of(name) == "s" and frame[name].dtype.kind == "f"]
    ended = [name for name in times if name in ("ended_s", "resumed_s")]
    yield from frame.dropna(subset=ended).to_dict("records")  # type: ignore[misc]
