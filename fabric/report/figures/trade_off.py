"""The figure of a trade-off: two measures of many variants, a dot each, and the best of each group.

``trade_off`` of a summary has ``title``, ``axes`` (the label of each measure), ``points`` (``name``, ``group``,
``is_many``: one of a grid, ``values`` by measure), ``panels`` (``x`` and ``y``, two measures; ``more_x``: more of ``x``
is better, as it is of ``y``; else it is a time; ``frontiers``: the groups whose best points are joined) and
``alone``, the values of measures in which nothing else played. Of several runs, values are medians, and ``intervals``
of a point has the lower and the upper end of each measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, NullFormatter

from fabric.records.palette import GREY, series
from fabric.report.figures.style import framed
from fabric.results import Result
from fabric.units import format_time

WIDTH, HEIGHT = 11.0, 5.0
"""In inches."""
_MARKERS = "Xd^v*sP"
_PALE = 0.75


def trade_off(result: Result) -> Figure | None:
    """Return the figure; None if the run's summary describes no trade-off."""
    found = result.summary.get("trade_off")
    if not found or not found["points"]:
        return None
    with framed(result, found["title"], WIDTH, HEIGHT) as (figure, body):
        draw_panels(body, found)
    return figure


def draw_panels(body: SubFigure, found: Mapping[str, Any]) -> None:
    """Draw a ``trade_off``."""
    groups = list(dict.fromkeys(point["group"] for point in found["points"]))
    panels = body.subplots(1, len(found["panels"]), squeeze=False)[0]
    for axes, panel in zip(panels, found["panels"], strict=True):
        for place, group in enumerate(groups):
            points = [point for point in found["points"] if point["group"] == group]
            _draw_group(axes, points, panel, place)
            if group in panel["frontiers"]:
                _draw_frontier(axes, points, panel, series(place))
        _draw_alone(axes, panel, found["alone"])
        axes.set_xlabel(found["axes"][panel["x"]])
        axes.set_ylabel(found["axes"][panel["y"]])
        if panel["more_x"]:
            axes.set_xlim(left=0)
        else:
            _scale_to_time(axes)
        axes.set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    body.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)


def _scale_to_time(axes: Axes) -> None:
    """Make the x axis one of times in seconds, logarithmic, with more ticks than powers of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: format_time(value))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_group(axes: Axes, points: Sequence[Mapping[str, Any]], panel: Mapping[str, Any], place: int) -> None:
    """Draw the points of a group; those of a grid are small dots, others large and hollow, for they may coincide."""
    colour = series(place)
    is_many = points[0]["is_many"]
    xs, ys = ([point["values"][panel[axis]] for point in points] for axis in ("x", "y"))
    marker, size = ("o", 20) if is_many else (_MARKERS[place % len(_MARKERS)], 110)
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "linewidth": 1.8, "zorder": 4}
    if is_many:
        look = {"color": colour, "alpha": _PALE, "edgecolor": "white", "linewidth": 0.5, "zorder": 2}
    axes.scatter(xs, ys, s=size, marker=marker, label=points[0]["group"], **look)
    for point, x, y in zip(points, xs, ys, strict=True):
        if "intervals" in point:
            low, high = (dict(zip(point["values"], ends, strict=True)) for ends in point["intervals"])
            spans = [[[value - low[panel[axis]]], [high[panel[axis]] - value]] for axis, value in (("x", x), ("y", y))]
            axes.errorbar(x, y, xerr=spans[0], yerr=spans[1], color=colour, linewidth=0.8, alpha=_PALE, zorder=1)


def _draw_frontier(axes: Axes, points: Sequence[Mapping[str, Any]], panel: Mapping[str, Any], colour: str) -> None:
    """Join the points of which no other of the group has more of both measures, by steps."""
    best = frontier([(point["values"][panel["x"]], point["values"][panel["y"]]) for point in points], panel["more_x"])
    where: Literal["pre", "post"] = "pre" if panel["more_x"] else "post"
    axes.step([x for x, _ in best], [y for _, y in best], where=where, color=colour, linewidth=1.2, zorder=1)


def frontier(places: Sequence[tuple[float, float]], more_x: bool) -> list[tuple[float, float]]:
    """Return those places that no other one beats, by x: more y is better and, if ``more_x``, more x, else less."""
    sign = 1 if more_x else -1
    best: list[tuple[float, float]] = []
    for x, y in sorted(set(places), key=lambda place: (-sign * place[0], -place[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return sorted(best)


def _draw_alone(axes: Axes, panel: Mapping[str, Any], alone: Mapping[str, float]) -> None:
    """Draw what each program gets alone, named on its line."""
    style: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1}
    words: dict[str, Any] = {"color": GREY, "fontsize": 7.5, "textcoords": "offset points"}
    if panel["y"] in alone:
        axes.axhline(alone[panel["y"]], **style)
        axes.annotate("alone", (0, alone[panel["y"]]), (3, -9), xycoords=("axes fraction", "data"), **words)
    if panel["x"] in alone:
        axes.axvline(alone[panel["x"]], **style)
        axes.annotate("alone", (alone[panel["x"]], 0), (-3, 3), xycoords=("data", "axes fraction"), ha="right", **words)
