"""The figure of how fast a collective is over growing numbers of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.hfreduce_vs_nccl.use import LIMITS, busiest
from fabric.report.figures import FigureSpec
from fabric.report.figures.data import step_times
from fabric.report.figures.style import GREY, LINE_STYLES, framed, heat_map, level_colour
from fabric.results import Phase, Result

_MARKERS = "osD^vPX*"
_DARK = 0.45
"""A share above which a cell of the heat map is so dark that its number is white."""


def scaling(result: Result) -> Figure | None:
    """Return algbw over ranks, a line a variant, as the summary's ``scaling`` says; None if it says nothing.

    ``series`` are lines: a label, a service level and phases; ``x`` says where each phase is (without it, at its number
    of ranks). ``bands`` are ranges to compare with and ``caps`` what one limit allows (both optional), in bytes a
    second of the system that the fabric stands for.
    """
    return _over(result, "scaling", "algbw over {of}: {title}")


def scaling_nvlink(result: Result) -> Figure | None:
    """Return the same of HFReduce with NVLink, as the summary's ``scaling_nvlink`` says."""
    return _over(result, "scaling_nvlink", "algbw over {of}: {title}")


def sizes(result: Result) -> Figure | None:
    """Return algbw over sizes, as the summary's ``sizes`` says."""
    return _over(result, "sizes", "algbw {title}")


def _over(result: Result, key: str, title: str) -> Figure | None:
    described = result.summary.get(key)
    if described is None:
        return None
    lines = [(one, _points(result, one, described.get("x"))) for one in described["series"]]
    lines = [(one, points) for one, points in lines if points]
    if not lines:
        return None
    of = described.get("x_label", "nodes")
    with framed(result, title.format(of=of, title=described["title"]), 11.0, 5.4) as (figure, body):
        panel = body.subplots()
        for band in described.get("bands", []):
            _draw_band(panel, band)
        for cap in described.get("caps", []):
            _draw_cap(panel, cap)
        _draw_lines(panel, lines)
        ticks = sorted({x for _, points in lines for x, _ in points})
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [f"{x:g}" for x in ticks])
        panel.set_xticks([], minor=True)
        panel.set_xlabel(f"{of} (log)")
        panel.set_ylabel("algbw = size / time, GB/s, median over steps")
        panel.set_ylim(bottom=0)
        body.legend(loc="outside right center", fontsize=8)
    return figure


def _draw_lines(panel: Axes, lines: Sequence[tuple[dict[str, Any], list[tuple[float, float]]]]) -> None:
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


def _points(result: Result, series: dict[str, Any], x: Mapping[str, float] | None) -> list[tuple[float, float]]:
    """Return (x, median algbw in GB/s at full scale) of each phase of a line in which steps ended."""
    steps = result.table("steps")
    phases: dict[str, Phase] = {phase.name: phase for phase in result.phases}
    points = []
    for name in series["phases"]:
        rows = steps[steps["phase"] == name]
        if name in phases and not rows.empty:
            _, algbw = step_times(steps, series["service_level"], phases[name])
            place = float(rows["ranks"].iloc[0]) if x is None else x[name]
            points.append((place, float(np.median(algbw)) * result.scale / 1e9))
    return points


def limits_in_use(result: Result) -> Figure | None:
    """Return how busy each limit of the busiest node was, phase by phase; None if nodes are points."""
    rows = result.table("node_limits")
    if rows.empty:
        return None
    busy = busiest(rows)
    phases = [phase for phase in result.phases if any(name == phase.name for name, _ in busy)]
    names = [limit for limit in LIMITS if any(limit == found for _, found in busy)]
    values = np.array([[busy.get((phase.name, name), np.nan) for name in names] for phase in phases])
    height = 1.8 + 0.27 * len(phases)
    with framed(result, "How busy the limits of nodes were: the busiest node and GPU", 11.0, height) as (figure, body):
        panel = body.subplots()
        panel.imshow(values, cmap=heat_map(), vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        panel.set_yticks(range(len(phases)), [phase.title for phase in phases])
        panel.xaxis.tick_top()
        panel.grid(visible=False)
        panel.tick_params(length=0)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                shade = "white" if value > _DARK else "black"
                panel.text(column, row, f"{value:.0%}", ha="center", va="center", color=shade, fontsize=8)
    return figure


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
        "the scale of the system that the fabric stands for. Shaded: measured by others. Dashed: one limit alone.",
        scaling,
    ),
    FigureSpec(
        "scaling_nvlink",
        "HFReduce with NVLink within a zone and across zones, beside HFReduce without it: as scaling.",
        scaling_nvlink,
    ),
    FigureSpec("sizes", "algbw over the size of an allreduce: where it no longer grows is steady state.", sizes),
    FigureSpec(
        "limits_in_use",
        "What each limit of a node served in each phase, of what it could have: the busiest node and GPU. A limit that "
        "is near 100 % binds.",
        limits_in_use,
    ),
)
