"""The results of a soak of a lossless fabric: checks, metrics and tables, from its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controllers.routing import Repair
from fabric.delivered import COMPLETED
from fabric.failures.schedule import FailureSchedule
from fabric.measure.verdict import Check
from fabric.metrics import metrics_of
from fabric.queueing import vl
from fabric.records.cells import Row, count_of, joined, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.stalls.audit import AuditReport
from fabric.stalls.causes import Stall, StallCause
from fabric.stalls.credits import Held
from fabric.units import format_time
from runs.session import PhaseOutcome, Session

_CUT = vl.DropCause.LINK_DOWN.name.lower()
_SHOWN = 20


@dataclass(frozen=True)
class SoakRound:
    """A round: its repair, what it measured, what was not given back at rest after it, and why lanes stood still."""

    repair: Repair
    outcome: PhaseOutcome
    held: tuple[Held, ...]
    audit: AuditReport

    @property
    def flaps(self) -> int:
        """How many links were cut."""
        return sum(not change.state.up for change in self.outcome.faults.link_changes)

    @property
    def always_has_a_way(self) -> bool:
        """Whether no cut left a frame without a way: where traffic is led another way, cuts leave one."""
        return self.repair is not Repair.WAIT or not self.flaps

    @property
    def dropped_by_cause(self) -> dict[str, int]:
        """Frames that were dropped, but for what cuts themselves take; by rules, too, where there always was a way."""
        counted = self.outcome.conservation
        excused = not self.always_has_a_way or not counted.dropped_by_rules
        rules = {} if excused else {"rules": counted.dropped_by_rules}
        return {cause: count for cause, count in counted.dropped_by_cause.items() if cause != _CUT} | rules

    @property
    def lost_in_cuts(self) -> int:
        """Frames that waited in ports that were cut, were on their wires, or were sent into them."""
        counted = self.outcome.conservation
        return counted.dropped_by_cause.get(_CUT, 0) + counted.lost_in_cuts_packets

    @property
    def without_a_way(self) -> int:
        """Frames that rules dropped since a cut left them no way."""
        return 0 if self.always_has_a_way else self.outcome.conservation.dropped_by_rules

    @property
    def leaked_bytes(self) -> int:
        """What was not given back."""
        return sum(max(one.used_bytes, one.buffered_bytes) for one in self.held)

    @property
    def unexplained(self) -> list[Stall]:
        """The stalls that nothing explains."""
        return [stall for stall in self.audit.stalls if stall.cause is StallCause.NOTHING]


@dataclass(frozen=True)
class BrokenOff:
    """A round that a deadlock broke off while routes changed: what was to be cut in it, and the circle in words."""

    repair: Repair
    number: int
    flaps: FailureSchedule
    circle: str

    @property
    def row(self) -> Row:
        """The round as a row of a table."""
        cuts = [event for event in self.flaps.link_events if not event.state.up]
        told = joined((f"{event.link} at ", quantity(event.at_s, "time")) for event in cuts)
        return [self.repair.value, count_of(self.number), told, self.circle]


def soak_checks(rounds: Sequence[SoakRound]) -> list[Check]:
    """Return what the verdict demands: no drop, no credit lost, no stall without a reason."""
    drops: Counter[str] = Counter()
    for one in rounds:
        drops.update(one.dropped_by_cause)
    held = [str(lane) for one in rounds for lane in one.held]
    circles = [words for one in rounds for words in one.audit.deadlocks]
    unexplained = [_in_words(one, stall) for one in rounds for stall in one.unexplained]
    leaked = sum(one.leaked_bytes for one in rounds)
    by_cause = ", ".join(f"{count} by {cause}" for cause, count in drops.items())
    return [
        Check("lossless_drops", drops.total(), 0, 0, f"ports dropped {drops.total()} frames of their own: {by_cause}"),
        Check("leaked_bytes", leaked, 0, 0, f"{leaked} B of credits were never returned: {_first(held)}"),
        Check(
            "unexplained_stalls",
            len(unexplained),
            0,
            0,
            f"{len(unexplained)} lanes stalled without waiting for a busy link: {_first(unexplained)}",
        ),
        Check("deadlocks", len(circles), 0, 0, _first(circles)),
    ]


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _in_words(one: SoakRound, stall: Stall) -> str:
    return f"{stall.lane} for {format_time(stall.lasted_ns / 1e9)} in {one.outcome.phase.name}"


def summarize(
    session: Session, rounds: Sequence[SoakRound], broken_off: Sequence[BrokenOff], stall_limit_s: float
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    metrics = soak_metrics(rounds, stall_limit_s) | {"rounds_broken_off": len(broken_off)}
    minutes = metrics["seconds"] / 60
    return {
        "title": f"A lossless fabric under random flows and {metrics['flaps']} cuts for {minutes:.1f} minutes",
        "answer": _answer(metrics, minutes) + _broken_off_words(broken_off),
        "metrics": metrics_of("", "", metrics),
        "tables": [
            _promises_table(metrics, stall_limit_s),
            _load_table(metrics),
            *_stalls_tables(session, rounds),
            *_broken_off_tables(broken_off),
        ],
    }


def _broken_off_words(broken_off: Sequence[BrokenOff]) -> str:
    """Return a sentence on deadlocks; nothing if there were none."""
    if not broken_off:
        return ""
    rounds = ", ".join(f"{one.repair.value} in round {one.number}" for one in broken_off)
    return f" Changing routes led to a deadlock: {rounds}."


def _broken_off_tables(broken_off: Sequence[BrokenOff]) -> list[SummaryTable]:
    """Return a table of the rounds that a deadlock broke off; none if there are none."""
    columns = ["repair", "round", "cuts", "ports and lanes that waited for each other"]
    note = "packets of routes before and after a change met; the repair's later rounds were not played"
    rows = [one.row for one in broken_off]
    return [SummaryTable(title="Deadlocks while routes changed", columns=columns, rows=rows, note=note)] if rows else []


def soak_metrics(rounds: Sequence[SoakRound], stall_limit_s: float) -> dict[str, float]:
    """Return all numbers of a run by name; a stall counts from the limit on, an unexplained one in any case."""
    counted = [one.outcome.conservation for one in rounds]
    operations = [row for one in rounds for row in one.outcome.records.rows("operations")]
    stalls = [stall for one in rounds for stall in one.audit.stalls]
    long = [stall for stall in stalls if stall.lasted_ns >= stall_limit_s * 1e9]
    return {
        "seconds": sum(one.outcome.phase.ended_s - one.outcome.phase.started_s for one in rounds),
        "flaps": sum(one.flaps for one in rounds),
        "flows": len(operations),
        "flows_completed": sum(row["operation"] == COMPLETED for row in operations),
        "bytes": sum(one.sent_bytes for one in counted),
        "packets": sum(one.sent_packets for one in counted),
        "drops": sum(sum(one.dropped_by_cause.values()) for one in rounds),
        "leaked_bytes": sum(one.leaked_bytes for one in rounds),
        "unexplained_stalls": sum(len(one.unexplained) for one in rounds),
        "deadlocks": sum(len(one.audit.deadlocks) for one in rounds),
        "lost_in_cuts": sum(one.lost_in_cuts for one in rounds),
        "without_a_way": sum(one.without_a_way for one in rounds),
        "unaccounted_packets": sum(one.unaccounted_packets for one in counted),
        "retransmissions": sum(one.retransmissions for one in counted),
        "looks": sum(one.audit.looks for one in rounds),
        "long_stalls": len(long),
        "longest_stall_s": max((stall.lasted_ns / 1e9 for stall in stalls), default=0.0),
    }


def _answer(metrics: dict[str, float], minutes: float) -> str:
    return (
        f"In {minutes:.1f} minutes with {metrics['flows']:,} flows and {metrics['flaps']} cuts: {metrics['drops']} "
        f"drops, {metrics['leaked_bytes']} bytes of credits lost, "
        f"{metrics['unexplained_stalls']} stalls without a reason."
    )


def _promises_table(metrics: dict[str, float], stall_limit_s: float) -> SummaryTable:
    rows: list[Row] = [
        ["frames dropped, other than by cuts", measured(metrics, "drops", ".0f"), "0"],
        ["credits not returned, bytes", measured(metrics, "leaked_bytes", ".0f"), "0"],
        ["stalls that nothing explains", measured(metrics, "unexplained_stalls", ".0f"), "0"],
        ["deadlocks", measured(metrics, "deadlocks", ".0f"), "0"],
        ["packets in no counter", measured(metrics, "unaccounted_packets", ".0f"), "0"],
        [("stalls of ", quantity(stall_limit_s, "time"), " and more"), measured(metrics, "long_stalls", ".0f"), ""],
        ["longest stall", measured(metrics, "longest_stall_s"), ""],
        ["looks at all ports", measured(metrics, "looks"), ""],
    ]
    note = "a stall is explained if it leads, through other stalled lanes, to a port that is sending"
    return SummaryTable(
        title="What a lossless fabric promises",
        columns=["", "measured", "promised"],
        rows=rows,
        note=note,
    )


def _load_table(metrics: dict[str, float]) -> SummaryTable:
    rows: list[Row] = [
        ["flows started", measured(metrics, "flows")],
        ["flows completed", measured(metrics, "flows_completed")],
        ["packets sent by hosts", measured(metrics, "packets")],
        ["bytes sent by hosts", measured(metrics, "bytes")],
        ["links cut", measured(metrics, "flaps", ".0f")],
        ["frames lost in cuts", measured(metrics, "lost_in_cuts")],
        ["frames dropped by rules for lack of a path", measured(metrics, "without_a_way")],
        ["TCP segments retransmitted", measured(metrics, "retransmissions")],
    ]
    return SummaryTable(title="Load and cuts", columns=["", "in all rounds"], rows=rows)


def _stalls_tables(session: Session, rounds: Sequence[SoakRound]) -> list[SummaryTable]:
    """Return a table of the first stalls that nothing explains; none if there are none."""
    found = [stall for one in rounds for stall in one.unexplained]
    rows: list[Row] = [
        [
            quantity(stall.since_ns / 1e9 - session.origin, ".3f s"),
            quantity(stall.lasted_ns / 1e9, "time"),
            str(stall.lane),
        ]
        for stall in found[:_SHOWN]
    ]
    title = f"Unexplained stalls: {len(found)}"
    note = "start in seconds of the run, duration when last seen, and the port's lane"
    return [SummaryTable(title=title, columns=["began", "lasted", "lane"], rows=rows, note=note)] if rows else []
