"""Metrics of lossless lanes: how long they waited for room, and how full input buffers were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.run.session import PhaseOutcome


def stall_metrics(stalls: pd.DataFrame, outcome: PhaseOutcome, played_s: float | None = None) -> dict[str, float]:
    """Return what lossless lanes of a phase tell, summed over all ports; nothing of other phases.

    ``stalled_s`` adds up all lanes of all ports; ``most_stalled_fraction`` is of the lane that stood still longest, and
    of the time for which something played: ``played_s``, by default the phase.
    """
    phase = outcome.phase
    rows = stalls[stalls["at_s"].between(phase.started_s, phase.ended_s)]
    if rows.empty:
        return {}
    series = rows.groupby(["port", "lane"], observed=True)
    grown = series[["stalls", "stalled_ns"]].max() - series[["stalls", "stalled_ns"]].min()
    return {
        "stalls": int(grown["stalls"].sum()),
        "stalled_s": float(grown["stalled_ns"].sum()) / 1e9,
        "most_stalled_fraction": float(grown["stalled_ns"].max()) / 1e9 / (played_s or phase.ended_s - phase.started_s),
        "most_buffered_bytes": int(rows["buffered_bytes"].max()),
    }


def stalls_tables(titles: Mapping[str, str], figures: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the table of what waited for room, a row a phase; none if no phase of the run was lossless."""
    rows = [[titles[phase], *_cells(found)] for phase, found in figures.items() if "stalls" in found]
    columns = ["phase", "stalls", "stalled, all lanes of all ports", "the most stalled lane", "fullest input buffer"]
    note = "stalled: the link was free, a frame waited, and there was no room at the other end"
    return [{"title": "Waiting for room", "columns": columns, "rows": rows, "note": note}] if rows else []


def _cells(found: Mapping[str, float]) -> list[str]:
    stalled = f"{found['stalled_s']:.3g} s"
    fullest = f"{found['most_buffered_bytes'] / 1024:.0f} KiB"
    return [f"{found['stalls']:.0f}", stalled, f"{found['most_stalled_fraction']:.0%}", fullest]
