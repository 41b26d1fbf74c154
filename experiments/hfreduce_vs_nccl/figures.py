"""The figure of how fast a collective is over growing numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.data import step_times
from fabric.report.figures.style import GREY, LINE_STYLES, framed, level_colour
from fabric.results import Phase, Result

_MARKERS = "osD^vPX*"


def scaling(result: Result) -> Figure | None:
    """Return algbw over ranks, a line a variant, as the summary's ``scaling`` says; None if it says nothing.

    ``series`` are lines: a label, a service level and phases; ``bands`` are ranges to compare with and ``caps`` what a
    host allows (both optional), in bytes a second of the system that the fabric stands for.
    """
    described = result.summary.get("scaling")
    lines = [] if described is None else [(one, _points(result, one)) for one in described["series"]]
    lines = [(one, points) for one, points in lines if points]
    if described is None or not lines:
        return None
    with framed(result, f"algbw over nodes: {described['title']}", 11.0, 5.4) as (figure, body):
        panel = body.subplots()
        for band in described.get("bands", []):
            _draw_band(panel, band)
        for cap in described.get("caps", []):
            _draw_cap(panel, cap)
        _draw_lines(panel, lines)
        ticks = sorted({count for _, points in lines for count, _ in points})
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(count) for count in ticks])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("nodes (log)")
        panel.set_ylabel("algbw = size / time, GB/s, median over steps")
        panel.set_ylim(bottom=0)
        body.legend(loc="outside right center", fontsize=8)
    return figure


def _draw_lines(panel: Axes, lines: Sequence[tuple[dict[str, Any], list[tuple[int, float]]]]) -> None:
    """Draw each line; those of one service level share its colour and differ in dash and marker.

    Lines may lie on one another, so later ones are thinner and have smaller markers.
    """
    drawn: dict[str, int] = {}
    for series, points in lines:
        level = series["service_level"]
        place = drawn[level] = drawn.get(level, -1) + 1
        ranks, algbw = zip(*points, strict=True)
        panel.plot(
            ranks, algbw, label=series["label"], color=level_colour(level), marker=_MARKERS[place % len(_MARKERS)],
            linestyle=LINE_STYLES[place % len(LINE_STYLES)], markersize=max(4, 10 - 1.2 * place),
            markerfacecolor="white", linewidth=max(1.0, 2.2 - 0.25 * place),
        )  # fmt: skip


def _points(result: Result, series: dict[str, Any]) -> list[tuple[int, float]]:
    """Return (ranks, median algbw in GB/s at full scale) of each phase of a line in which steps ended."""
    steps = result.table("steps")
    phases: dict[str, Phase] = {phase.name: phase for phase in result.phases}
    points = []
    for name in series["phases"]:
        rows = steps[steps["phase"] == name]
        if name in phases and not rows.empty:
            _, algbw = step_times(steps, series["service_level"], phases[name])
            points.append((int(rows["ranks"].iloc[0]), float(np.median(algbw)) * result.scale / 1e9))
    return points


def _draw_band(panel: Axes, band: dict[str, Any]) -> None:
    low, high = band["from_Bps"] / 1e9, band["to_Bps"] / 1e9
    panel.axhspan(low, high, color=level_colour(band["service_level"]), alpha=0.15, linewidth=0, label=band["label"])


def _draw_cap(panel: Axes, cap: dict[str, Any]) -> None:
    """Draw a dashed line across, named on it: the legend has enough to say."""
    value = cap["algbw_Bps"] / 1e9
    panel.axhline(value, color=GREY, linestyle=(0, (6, 3)), linewidth=1)
    panel.annotate(
        cap["label"], (1.0, value), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right", fontsize=7.5, color=GREY,
    )  # fmt: skip


FIGURES = (
    FigureSpec(
        "scaling",
        "Collectives over growing numbers of nodes: median algbw over the steps of a phase, one line per variant, at "
        "the scale of the system that the fabric stands for. Shaded: measured by others.",
        scaling,
    ),
)
