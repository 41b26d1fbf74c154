"""The figure of what programs keep as the load of others grows: one panel per program and load, one curve per queueing.

``protection`` of a summary has ``panels``, each with ``title``, ``axis`` (what its ``loads`` are, percent if
``is_fraction``), ``curves`` (bytes/s at each load, or None, by queueing), ``alone_Bps`` (what the program has alone),
``lane`` and ``promised_share`` (what part of that its lane promises).
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from fabric.model.lanes import Queueing
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, QUEUEING_COLOURS, framed, level_colour, times
from fabric.results import Result

_MARKERS = dict(zip(Queueing, "os^D", strict=True))
_PANEL_INCHES = 4.3
_LEAST_INCHES = 8.6
"""What one line of provenance takes."""


def protection(result: Result) -> Figure | None:
    """Return the figure; None if the run's summary tells of no protection, or a program did nothing alone."""
    found = result.summary.get("protection")
    if not found or not all(panel["alone_Bps"] for panel in found["panels"]):
        return None
    panels = found["panels"]
    queueings = [Queueing(name) for name in panels[0]["curves"]]
    width = max(_LEAST_INCHES, _PANEL_INCHES * len(panels))
    with framed(result, "Bandwidth left as the traffic of others grows", width, 4.2) as (figure, body):
        for axes, panel in zip(body.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, panel, queueings)
        handles = [Line2D([], [], **_style(queueing), label=f"in {queueing.words}") for queueing in queueings]
        handles.append(Line2D([], [], color="#222222", linestyle="--", linewidth=1.2, label="promised by the lane"))
        handles.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.2, label="alone"))
        body.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _style(queueing: Queueing) -> dict[str, Any]:
    colour = QUEUEING_COLOURS[queueing]
    return {"color": colour, "marker": _MARKERS[queueing], "markersize": 6, "linewidth": 2.2}


def _draw(axes: Axes, panel: dict[str, Any], queueings: list[Queueing]) -> None:
    alone, promised = panel["alone_Bps"] / 1e6, panel["alone_Bps"] * panel["promised_share"] / 1e6
    places = panel["loads"] if panel["is_fraction"] else list(range(len(panel["loads"])))
    for queueing in queueings:
        values = [float("nan") if value is None else value / 1e6 for value in panel["curves"][queueing.value]]
        axes.plot(places, values, clip_on=False, zorder=3, **_style(queueing))
    axes.axhline(alone, color=GREY, linestyle=":", linewidth=1.2)
    axes.axhline(promised, color="#222222", linestyle="--", linewidth=1.2)
    axes.annotate(
        f"lane {panel['lane']}: {panel['promised_share']:.0%}", (1, promised), (-2, -3),
        xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", va="top", fontsize=7.5,
        color=level_colour(panel["lane"]),
    )  # fmt: skip
    if panel["is_fraction"]:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_xticks(places, [f"{load:g}" for load in panel["loads"]])
    axes.set_xlabel(panel["axis"], fontsize=8)
    axes.set_ylabel("MB/s")
    axes.set_ylim(0, 1.08 * alone)
    share = axes.secondary_yaxis("right", functions=times(1 / alone))
    share.yaxis.set_major_formatter(PercentFormatter(1.0))
    share.set_ylabel("of its bandwidth alone", fontsize=8)
    axes.set_title(panel["title"])


FIGURES = (
    FigureSpec(
        "protection",
        "Bandwidth of a program, relative to that alone, as the load of others grows; one curve per queueing. Dashed: "
        "the share that its lane promises; above it: bandwidth that others leave idle.",
        protection,
    ),
)
