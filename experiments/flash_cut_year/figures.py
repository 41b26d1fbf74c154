"""The figure of a replayed year: its days as a calendar, coloured by the cuts and by what they cost."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.data import Floats
from fabric.report.figures.style import framed, heat_map
from fabric.results import Result
from fabric.units import format_time

_WEEK = 7


def calendar(result: Result) -> Figure | None:
    """Return a calendar of the cuts a day, and for each policy and duration one of the training that each day lacks."""
    days = result.table("days")
    if days.empty:
        return None
    played = list(days.groupby(["duration_s", "routing"], sort=False, observed=True))
    played.sort(key=lambda one: float(one[1]["duration_s"].iloc[0]))
    with framed(result, "A year of link flash cuts, day by day", 11.0, 1.28 * (1 + len(played))) as (figure, body):
        panels = body.subplots(1 + len(played), 1, sharex=True)
        first = played[0][1]
        cuts = _draw(panels[0], first["cuts"].to_numpy(dtype=float), max(1.0, float(first["cuts"].max())))
        panels[0].set_title(
            f"cuts ({int(first['cuts'].sum())} on {int((first['cuts'] > 0).sum())} of {len(first)} days)"
        )
        body.colorbar(cuts, ax=panels[0], pad=0.01, aspect=8, label="number of cuts")
        lost = None
        for panel, ((duration_s, routing), rows) in zip(panels[1:], played, strict=True):
            lost = _draw(panel, 100 * rows["goodput_lost"].to_numpy(dtype=float).clip(0), 100.0)
            panel.set_title(_title(str(routing), float(str(duration_s)), rows))
        assert lost is not None, "there are days"
        body.colorbar(lost, ax=list(panels[1:]), pad=0.01, aspect=35, label="training lost, of an undisturbed day (%)")
        panels[-1].set_xlabel("time of the replayed year (weeks)")
    return figure


def _title(routing: str, duration_s: float, rows: pd.DataFrame) -> str:
    lost = float(rows["goodput_lost"].mean())
    return f"{routing}, cuts of {format_time(duration_s)}: {lost:.1%} of training lost, day by day"


def _draw(panel: Axes, values: Floats, most: float) -> QuadMesh:
    """Draw a value a day: weeks from left to right, the days of a week from top to bottom."""
    weeks = -(-len(values) // _WEEK)
    cells = np.full(weeks * _WEEK, np.nan)
    cells[: len(values)] = values
    colours = heat_map()
    colours.set_bad("white")
    mesh = panel.pcolormesh(
        np.arange(weeks + 1), np.arange(_WEEK + 1), cells.reshape(weeks, _WEEK).T, cmap=colours, vmin=0, vmax=most,
        edgecolors="white", linewidth=1,
    )  # fmt: skip
    panel.set_ylim(_WEEK, 0)
    panel.set_yticks([])
    panel.grid(visible=False)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)
    return mesh


FIGURES = (
    FigureSpec(
        "calendar",
        "Every day of the replayed year, one column per week: its cuts, and the training lost as a fraction of an "
        "undisturbed day's, by policy and duration of cuts. Days are compressed, cuts are not.",
        calendar,
    ),
)
