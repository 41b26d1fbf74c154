"""Metrics of lossless lanes: how long they waited for room, and how full input buffers were."""

from __future__ import annotations

import math

import pandas as pd

from fabric.measures import Better, Measure
from fabric.results import Phase
from fabric.stalls.intervals import BLOCKED_SHARE
from runs.case_tables import CaseTable
from runs.session import PhaseOutcome

MEASURES = (
    Measure("stalls", "times that a lossless lane of any port stood still", Better.LESS),
    Measure("stalled_s", "time that lossless lanes stood still, all lanes of all ports together", Better.LESS),
    Measure(
        "most_stalled_fraction", "share of the time in which the load played that the most stalled lane stood still",
        Better.LESS,
    ),
    Measure("most_buffered_bytes", "most bytes that an input buffer held in a sample"),
    Measure("blocked_ports", "ports with a lane that is blocked by its share of stalled time", Better.LESS),
)  # fmt: skip


def stall_metrics(stalls: pd.DataFrame, outcome: PhaseOutcome, played_s: float | None = None) -> dict[str, float]:
    """Return the numbers of lossless lanes in a phase, summed over all ports; nothing of other phases.

    ``stalled_s`` adds up all lanes of all ports; ``most_stalled_fraction`` is of the lane that stood still longest, and
    of the time in which the load played: ``played_s``, by default between the first and the last sample of that time.
    """
    phase = outcome.phase
    rows = stalls[stalls["at_s"].between(phase.started_s, phase.ended_s)]
    if rows.empty:
        return {}
    grown = _grown(rows)
    most_s = float(grown["stalled_ns"].max()) / 1e9
    return {
        "stalls": int(grown["stalls"].sum()),
        "stalled_s": float(grown["stalled_ns"].sum()) / 1e9,
        "most_stalled_fraction": float(stalled_fractions(rows, phase).max()) if played_s is None else most_s / played_s,
        "most_buffered_bytes": int(rows["buffered_bytes"].max()),
    }


def stalled_fractions(stalls: pd.DataFrame, phase: Phase) -> pd.Series[float]:
    """Return for what part of the time in which a phase's load played each lane stood still, by port and lane: between
    the first and the last sample of that time, or of the phase if that time has fewer than two."""
    from_s, until_s = phase.load_s
    rows = stalls[stalls["at_s"].between(from_s, until_s)]
    if rows["at_s"].nunique() < 2:
        rows = stalls[stalls["at_s"].between(phase.started_s, phase.ended_s)]
    seconds = float(rows["at_s"].max() - rows["at_s"].min()) if len(rows) else 0.0
    return _grown(rows)["stalled_ns"] / 1e9 / (seconds or math.inf)


def blocked_ports(stalls: pd.DataFrame, phase: Phase) -> int:
    """Return how many ports had a lane that stood still for more than the part of its time by which it is blocked."""
    fractions = stalled_fractions(stalls, phase)
    return int(fractions[fractions > BLOCKED_SHARE].index.get_level_values("port").nunique())


def _grown(rows: pd.DataFrame) -> pd.DataFrame:
    series = rows.groupby(["port", "lane"], observed=True)[["stalls", "stalled_ns"]]
    return series.max() - series.min()


STALLS = CaseTable(
    "Waiting for room",
    "phase {title}, stalls {stalls|.0f}, stalled, all lanes of all ports {stalled_s|.3g s}, "
    "the most stalled lane {most_stalled_fraction|.0%}, fullest input buffer {most_buffered_bytes|.0f KiB}",
    "stalled: the link was free, a frame waited, and there was no room at the other end",
    having="stalls",
)
"""What waited for room: of a study's outcomes, those of lossless cases."""
