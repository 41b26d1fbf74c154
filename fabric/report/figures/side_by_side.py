"""The figure of one experiment in several queueings, side by side: one panel per measure, one bar per queueing.

``side_by_side`` of a summary has ``unit``, ``queueings``, ``panels`` (``title``, ``values`` and, if theory says
something, ``theory``, each in the order of the queueings; ``at_least``, if a value may be but the least that it can be:
whether each is; ``unit``, if it is a panel's own), ``drops_packets``, and where flows may fail ``flows_without_end``,
those that failed or were refused; ``alone``, if values are relative to what a program gets alone, is where that is. Of
several runs, values are medians, and ``intervals`` of a panel has the lower and upper end of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fabric.model.lanes import Queueing
from fabric.records.palette import GREY, INK, QUEUEINGS
from fabric.report.figures.style import framed, panel_grid
from fabric.results import Result

_COLUMNS = 3
_TICKS = 5


def side_by_side(result: Result) -> Figure | None:
    """Return the figure; None if the run's summary compares no queueings."""
    found = result.summary.get("side_by_side")
    if not found or not found["panels"]:
        return None
    with framed(result, "All queueings side by side", WIDTH, height(found)) as (figure, body):
        draw_panels(body, found)
    return figure


WIDTH = 11.0
"""In inches."""


def height(found: Mapping[str, Any]) -> float:
    """Return how high the panels of a ``side_by_side`` are, in inches."""
    rows = -(-(len(found["panels"]) + len(_counts(found))) // _COLUMNS)
    return 0.6 + (0.75 + 0.27 * len(found["queueings"])) * rows


def draw_panels(body: SubFigure, found: Mapping[str, Any]) -> None:
    """Draw a ``side_by_side``."""
    queueings = [Queueing(name) for name in found["queueings"]]
    counts = _counts(found)
    panels = [*found["panels"], *counts]
    for number, (axes, panel) in enumerate(zip(panel_grid(body, len(panels), _COLUMNS), panels, strict=True)):
        _draw(axes, panel, queueings, named=number % _COLUMNS == 0)
        if panel in counts:
            axes.set_xlabel(f"(number of {panel['counted']})", fontsize=8)
        else:
            axes.set_xlabel(f"({panel.get('unit', found['unit'])})", fontsize=8)
            _draw_alone(axes, found.get("alone"))
    if key := list(_key(found, panels)):
        body.legend(handles=key, loc="outside lower center", ncols=len(key))


COUNTS = {"drops_packets": "drops_intervals", "flows_without_end": "flows_without_end_intervals"}
"""The counts of a ``side_by_side``, and where their intervals are."""
_COUNTED = {"drops_packets": "packets", "flows_without_end": "flows"}
_TITLES = {
    "drops_packets": "packets dropped by queues",
    "flows_without_end": "flows that failed or were refused",
}


def _counts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of counts: of drops, and of flows without an end if there are any."""
    panels = []
    for key, intervals in COUNTS.items():
        if key == "drops_packets" or any(found.get(key, ())):
            panels.append({"title": _TITLES[key], "values": found[key], "counted": _COUNTED[key]})
            if intervals in found:
                panels[-1]["intervals"] = found[intervals]
    return panels


def _key(found: Mapping[str, Any], panels: Sequence[Mapping[str, Any]]) -> Iterator[Line2D]:
    """Yield what the marks mean that some panels have."""
    if found.get("alone") is not None:
        yield Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="alone")
    if any("theory" in panel for panel in panels):
        yield Line2D([], [], color=INK, marker="|", linestyle="", markersize=11, label="in theory")


def _draw_alone(axes: Axes, place: float | None) -> None:
    """Mark what a program gets alone."""
    if place is None:
        return
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.1 * place))
    axes.axvline(place, color=GREY, linestyle="--", linewidth=1, zorder=3)


def _signs(panel: Mapping[str, Any]) -> list[str]:
    """Return what stands before each value: that it may be more."""
    return ["> " if is_least else "" for is_least in panel.get("at_least", [False] * len(panel["values"]))]


def _draw(axes: Axes, panel: dict[str, Any], queueings: list[Queueing], named: bool) -> None:
    places = range(len(queueings))
    values = panel["values"]
    axes.barh(places, values, color=[QUEUEINGS[queueing] for queueing in queueings], height=0.7)
    ends = [max(pair) for pair in zip(values, panel.get("theory", values), strict=True)]
    if "intervals" in panel:
        lows, highs = panel["intervals"]
        axes.hlines(places, lows, highs, color=INK, linewidth=1.2)
        ends = [max(pair) for pair in zip(ends, highs, strict=True)]
    for place, value, end, sign in zip(places, values, ends, _signs(panel), strict=True):
        axes.annotate(sign + (f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"), (end, place), (3, 0),
                      textcoords="offset points", va="center", fontsize=7.5, color=GREY, zorder=4,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    if "theory" in panel:
        axes.plot(panel["theory"], places, color=INK, marker="|", linestyle="", markersize=13)
    axes.set_yticks(places, [queueing.words for queueing in queueings] if named else [""] * len(queueings))
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.2 * max(ends) if any(ends) else 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title(panel["title"], pad=10)
