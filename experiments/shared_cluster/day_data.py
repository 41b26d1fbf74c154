"""What the figure of a cluster's day shows beside its users' jobs: failures by lines of the config, and storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.failures.listing import LINES
from fabric.records.packed import causes_in, details_in
from fabric.tables import WHOLE_STATE

Floats = npt.NDArray[np.float64]
_MOST_BINS = 600


@dataclass(frozen=True)
class Fault:
    """A line of ``failures:`` as it was carried out, once."""

    label: str
    kind: str
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Repair:
    """Rules that the controller installed since links had changed. ``down``: how many were down then."""

    at_s: float
    down: int


@dataclass(frozen=True)
class Steps:
    """A value over time that changes in steps: ``values[i]`` holds from ``at_s[i]`` on."""

    at_s: Floats
    values: Floats

    @property
    def most(self) -> float:
        """The largest value; 0 of none."""
        return float(self.values.max(initial=0.0))


def faults_of(lines: Sequence[Mapping[str, Any]], rows: pd.DataFrame, until_s: float) -> Iterator[Fault]:
    """Yield when each line of a config's failures was in force, by rows of the table ``failures`` of a phase.

    A line changes several targets, such as the links and programs of a host: it is in force from the first change that
    it causes to the next one by which the same target is otherwise.
    """
    found = rows.dropna(subset=["done_s"]).assign(causes=rows["causes"].astype(str), state=rows["state"].astype(str))
    for number, line in enumerate(lines):
        own = found[[number in causes_in(causes) for causes in found["causes"]]]
        begun = own[own["state"] != WHOLE_STATE].sort_values("done_s")
        last_s = -np.inf
        for row in begun.to_dict("records"):
            end_s = until_s if pd.isna(row["ended_s"]) else float(row["ended_s"])
            if row["done_s"] >= last_s:  # Else it is another target of the same time.
                yield Fault(*_words(line), float(row["done_s"]), end_s)
            last_s = max(last_s, end_s)


def _words(line: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a line does, in words, and its target's key."""
    key = next(key for kind in LINES for key in kind.targets if line.get(key) is not None)
    effect = line.get("effect") or "cut"
    if line.get("rate") is not None:
        effect = f"at {float(line['rate']):.0%} of its rate"
    elif line.get("xid") is not None:
        effect = f"Xid {line['xid']}"
    elif line.get("loss") is not None:
        effect = f"loses {float(line['loss']):.2%}"
    return f"{key} {line[key]}" if key == "silent" else f"{key} {line[key]}: {effect}", key


def repairs_of(rows: pd.DataFrame) -> Iterator[Repair]:
    """Yield when rules were installed, by rows of the table ``controller`` of a phase."""
    for row in rows[rows["kind"].astype(str) == "installed"].to_dict("records"):
        yield Repair(float(row["at_s"]), len(details_in(row["details"]).get("links_down") or []))


def degraded_chains(rows: pd.DataFrame) -> Steps:
    """Return how many chains lack a target that serves, over time, by rows of ``storage_chains`` of a phase."""
    lacking: dict[tuple[str, int], bool] = {}
    found: dict[float, int] = {}
    for row in rows.sort_values("at_s", kind="stable").to_dict("records"):
        lacking[str(row["job"]), int(row["chain"])] = row["serving"] < row["targets"]
        found[float(row["at_s"])] = sum(lacking.values())
    return Steps(np.array([*found]), np.array([*found.values()], dtype=float))


def resync_rate(rows: pd.DataFrame, until_s: float) -> Steps:
    """Return how many bytes per second were sent to targets that came back, by rows of ``storage_resyncs`` of a phase:
    the mean of each second, or of longer stretches of a long phase; those of an attempt evenly over its time."""
    sent = rows[rows["size_bytes"] > 0]
    if sent.empty:
        return Steps(np.array([]), np.array([]))
    edges: Floats = np.linspace(0.0, until_s, max(1, min(_MOST_BINS, round(until_s))) + 1, dtype=np.float64)
    values = np.zeros(len(edges))
    for row in sent.to_dict("records"):
        begun = np.clip((edges - row["started_s"]) / max(row["ended_s"] - row["started_s"], 1e-9), 0.0, 1.0)
        values[:-1] += row["size_bytes"] * np.diff(begun) / np.diff(edges)
    return Steps(edges, values)
