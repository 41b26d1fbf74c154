"""The results of ``storage_failure``: what each failure cost, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from experiments.storage_failure.measures import DONE, GAVE_UP, LONGEST
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId, node_of_part
from fabric.records.cells import Row, count_of, measured
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from traffic.storage.client.verification import Verification


class Rows(Protocol):
    """What is needed of a session."""

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table."""


@dataclass(frozen=True)
class PrimaryFailed:
    """When the primary failed, and when another manager was it, NaN if none was, in seconds of the run."""

    what: str
    failed_s: float
    taken_over_s: float

    @property
    def marks(self) -> dict[str, float | None]:
        """What a figure says of it, and when."""
        taken_s = None if math.isnan(self.taken_over_s) else self.taken_over_s
        failed = f"the primary {self.what}"
        return {failed: self.failed_s, "another takes over": taken_s}


@dataclass(frozen=True)
class Failed:
    """A phase in which a storage node failed. Times are seconds of the run; ``back_s``: when it was back, None if it
    died. ``changes``: rows of ``chain_changes``; ``counts``: what the job counted; ``verified``: what was read back;
    ``primary``: when the primary of several cluster managers failed, and when another one was it; None: it did not
    fail. ``played``: from when to when."""

    phase: str
    victim: NodeId
    failed_s: float
    back_s: float | None
    changes: pd.DataFrame
    counts: Mapping[str, int]
    verified: Verification
    primary: PrimaryFailed | None = None
    played: tuple[float, float] = (0.0, 0.0)

    def _of_victim(self) -> pd.DataFrame:
        return self.changes[self.changes["target"].map(node_of_part) == self.victim.name]

    @property
    def noticed_s(self) -> float:
        """From the failure until no chain counted on the node any more; NaN if one always did."""
        out = self._of_victim()
        out = out[out["state"].isin(["offline", "lastsrv"]) & (out["at_s"] >= self.failed_s)]
        chains = set(self._of_victim()["chain"])
        first = out.groupby("chain")["at_s"].min()
        return float(first.max()) - self.failed_s if chains and set(first.index) == chains else math.nan

    @property
    def whole_s(self) -> float:
        """From its return until its targets all served; NaN if they do not, or it did not return."""
        if self.back_s is None:
            return math.nan
        last = self._of_victim().sort_values("at_s").groupby("chain").tail(1)
        is_whole = len(last) > 0 and (last["state"] == "serving").all() and (last["at_s"] > self.back_s).all()
        return float(last["at_s"].max()) - self.back_s if is_whole else math.nan


def numbers_of(failed: Failed, operations: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of a phase by name; what cannot be said is missing. ``operations``: its rows.

    ``longest_...``: of operations that succeeded, from when their caller began to wait.
    """
    found: dict[str, float] = {"noticed_s": failed.noticed_s, "whole_s": failed.whole_s}
    took = operations["ended_s"] - operations["started_s"]
    for kind in ("read", "write"):
        done, gave_up = (operations["operation"] == name for name in (kind, f"{kind}_failed"))
        found[DONE.of(kind)] = float(done.sum())
        found[GAVE_UP.of(kind)] = float(gave_up.sum())
        found[LONGEST.of(kind)] = float(took[done].max()) if done.any() else math.nan
    found |= {name: float(failed.counts.get(name, 0)) for name in ("resyncs", "resync_chunks", "resync_bytes")}
    found["lost"] = float(len(failed.verified.lost))
    if failed.primary is not None:
        found["primary_taken_over_s"] = failed.primary.taken_over_s - failed.primary.failed_s
    return {name: value for name, value in found.items() if not math.isnan(value)}


def summarize(session: Rows, found: Sequence[Failed]) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    operations = session.table("operations")
    numbers = {one.phase: numbers_of(one, operations[operations["phase"] == one.phase]) for one in found}
    metrics: list[Metric] = [
        metric for phase, values in numbers.items() for metric in metrics_of(phase, "storage", values)
    ]
    return {
        "title": "A storage node that fails",
        "answer": " ".join(_sentences(found, numbers)),
        "metrics": metrics,
        "tables": [_table(found, numbers)],
        "acknowledged_writes": {one.phase: one.verified.counts for one in found},
        "failed_nodes": [_described(one) for one in found],
    }


def _described(failed: Failed) -> dict[str, Any]:
    """Return what the figure needs of a phase."""
    began_s, ended_s = failed.played
    return {
        "phase": failed.phase,
        "node": str(failed.victim),
        "began_s": began_s,
        "ended_s": ended_s,
        "failed_s": failed.failed_s,
        "back_s": failed.back_s,
        "primary": failed.primary.marks if failed.primary else {},
    }


def _sentences(found: Sequence[Failed], numbers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for one in found:
        values = numbers[one.phase]
        failed = f"{values['writes_failed']:.0f} writes and {values['reads_failed']:.0f} reads failed"
        noticed = values.get("noticed_s")
        when = "it was never noticed" if noticed is None else f"noticed after {format_time(noticed)}"
        if one.primary is not None:
            taken = values.get("primary_taken_over_s")
            when += ", no manager took over" if taken is None else f", by a manager that took over {format_time(taken)}"
            when += "" if taken is None else " after the primary failed"
        yield f"{one.phase}: {when}; {failed}; {one.verified.sentence}"
        if times := one.counts.get("shared_trust"):
            yield f"Two managers trusted a lease at once, {times} times: their clocks are too far apart."


def _table(found: Sequence[Failed], numbers: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    rows: list[Row] = []
    for one in found:
        values = numbers[one.phase]
        times = [measured(values, name) for name in ("noticed_s", "whole_s", "longest_read_s", "longest_write_s")]
        done = [
            (
                measured(values, GAVE_UP.of(kind), ".0f"),
                " of ",
                count_of(values[DONE.of(kind)] + values[GAVE_UP.of(kind)]),
            )
            for kind in ("read", "write")
        ]
        sent = (measured(values, "resync_chunks", ".0f"), " chunks, ", measured(values, "resync_bytes"))
        rows.append(
            [
                one.phase,
                str(one.victim),
                *times,
                *done,
                sent,
                (measured(values, "lost", ".0f"), " of ", count_of(one.verified.checked)),
            ]
        )
    return SummaryTable(
        title="What a storage node's failure cost",
        columns=[
            "effect", "node", "out of all chains after", "back in all after", "longest read", "longest write",
            "reads failed", "writes failed", "sent to it", "acknowledged copies lost",
        ],
        rows=rows,
        note="longest: of those that succeeded, from their first try; sent to it: to bring it up to date",
    )  # fmt: skip
