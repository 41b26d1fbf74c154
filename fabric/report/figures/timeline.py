"""The figure of jobs over time: when each played, what it got through meanwhile, and what failed of it on purpose.

``timeline`` of a summary names the phases in which jobs come and go.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from fabric.records.packed import list_in
from fabric.records.palette import FAILURE, series_of
from fabric.report.figures.data import Rates, job_rates
from fabric.report.figures.style import framed, phase_label
from fabric.results import Phase, Result
from fabric.tables import WHOLE_STATE

_ROW_INCHES = 0.72
_LEAST_ROW_INCHES = 0.42
_MOST_INCHES = 14.0
_FAILED = FAILURE
_BAR_HEIGHT = 0.16
"""Of a job's row."""


def timeline(result: Result) -> Figure | None:
    """Return a row per job of each such phase, a bar over each of its windows and its bandwidth below; None if the
    summary names no phase, or no job played in it."""
    wanted = result.summary.get("timeline", ())
    jobs = result.table("jobs")
    phases = [phase for phase in result.phases if phase.name in wanted and (jobs["phase"] == phase.name).any()]
    if not phases:
        return None
    names = {phase.name: _in_order(jobs[jobs["phase"] == phase.name]) for phase in phases}
    rows = sum(map(len, names.values()))
    row_inches = max(_LEAST_ROW_INCHES, min(_ROW_INCHES, _MOST_INCHES / rows))
    heights = [0.75 + row_inches * len(names[phase.name]) for phase in phases]
    colours = series_of(list(dict.fromkeys(name for found in names.values() for name in found)))
    with framed(result, "Jobs over time", 11.0, sum(heights)) as (figure, body):
        parts = body.subfigures(len(phases), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, phase in zip(parts, phases, strict=True):
            rates = job_rates(result.table("flows"), result.table("operations"), phase)
            played = jobs[jobs["phase"] == phase.name]
            panels = _draw_phase(part, phase, played, rates, {name: colours[name] for name in names[phase.name]})
            _draw_failures(panels, result.table("failures"), phase)
    return figure


def _in_order(rows: pd.DataFrame) -> list[str]:
    """Return the names of jobs by when they first played."""
    first_s = rows.groupby("job", observed=True)["started_s"].min().sort_values(kind="stable")
    return [str(name) for name in first_s.index]


def _draw_phase(
    body: SubFigure, phase: Phase, jobs: pd.DataFrame, rates: Rates, colours: dict[str, str]
) -> dict[str, Axes]:
    """Draw a phase; return the panel of each job."""
    panels = list(body.subplots(len(colours), 1, sharex=True, sharey=True, squeeze=False)[:, 0])
    most = max((float(values.max()) for values in rates.by_name_bps.values()), default=0.0) / 1e6 or 1.0
    unit, scale = ("Gbit/s", 1e3) if most >= 1e3 else ("Mbit/s", 1.0)
    for panel, (name, colour) in zip(panels, colours.items(), strict=True):
        windows = jobs[jobs["job"] == name]
        _draw_job(panel, rates, name, colour, scale)
        _draw_windows(panel, windows, phase, colour)
        words = f"{name}\n({unit})" if rates.by_name_bps else name
        panel.set_ylabel(words, rotation=0, ha="right", va="center", fontweight="bold", labelpad=8)
    panels[0].set_title(phase_label(phase, 200))
    panels[0].set_xlim(0, phase.ended_s - phase.started_s)
    panels[0].set_ylim(0, 1.05 * most / scale / (1 - _BAR_HEIGHT))
    areas = "; areas: delivered" if rates.by_name_bps else ""
    if not rates.by_name_bps:
        panels[0].set_yticks([])  # Nothing was measured that these could count.
    panels[-1].set_xlabel(f"time in the phase (s)      [bars: when the job played{areas}]")
    return dict(zip(colours, panels, strict=True))


def _draw_failures(panels: dict[str, Axes], failures: pd.DataFrame, phase: Phase) -> None:
    """Shade for how long programs or disks of each job failed, and say what and how."""
    of_jobs = failures[(failures["phase"] == phase.name) & (failures["kind"] != "link") & failures["done_s"].notna()]
    for row in of_jobs[of_jobs["state"] != WHOLE_STATE].to_dict("records"):
        begin_s, end_s = (at - phase.started_s for at in (row["done_s"], row["ended_s"]))
        end_s = phase.ended_s - phase.started_s if math.isnan(end_s) else end_s
        for name in set(list_in(row["jobs"])) & panels.keys():
            panel = panels[name]
            panel.axvspan(begin_s, end_s, facecolor="none", edgecolor=_FAILED, hatch="////", linewidth=0.8, alpha=0.6)
            words = f"{row['target']}: {row['state']}"
            panel.annotate(
                words, (begin_s, 0), (4, 4), xycoords=panel.get_xaxis_transform(), textcoords="offset points",
                fontsize=7, color=_FAILED, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip


def _draw_windows(panel: Axes, windows: pd.DataFrame, phase: Phase, colour: str) -> None:
    """Draw a bar over each time that a job played."""
    times = zip(windows["started_s"], windows["ended_s"], strict=True)
    spans = [(began - phase.started_s, ended - began) for began, ended in times]
    panel.broken_barh(
        spans, (1 - _BAR_HEIGHT, _BAR_HEIGHT), transform=panel.get_xaxis_transform(), facecolor=colour, linewidth=0
    )


def _draw_job(panel: Axes, rates: Rates, name: str, colour: str, scale: float) -> None:
    values = rates.by_name_bps.get(name, np.zeros(len(rates.at_s))) / 1e6 / scale
    panel.fill_between(rates.at_s, values, color=colour, alpha=0.35, linewidth=0)
    panel.plot(rates.at_s, values, color=colour, linewidth=0.8)
