"""The figures of ``collectives``: busbw over sizes beside closed forms, and the ways to add up gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, LINE_STYLES, framed
from fabric.results import Result
from fabric.units import format_size

_COLUMNS = 3
_MARKERS = "osD^vPX*"


def busbw(result: Result) -> Figure | None:
    """Return busbw over sizes, a panel per collective, a line per algorithm and number of ranks."""
    plays = [one for one in result.summary.get("collectives", []) if one["ideal_busbw_Bps"] is not None]
    names = list(dict.fromkeys(one["collective"] for one in plays))
    if not names:
        return None
    rows = -(-len(names) // _COLUMNS)
    columns = min(_COLUMNS, len(names))
    with framed(result, "busbw over sizes, beside closed forms", 4.4 * columns + 0.4, 2.9 * rows + 0.6) as (
        figure,
        body,
    ):
        panels = body.subplots(rows, columns, squeeze=False).ravel()
        for panel, name in zip(panels, names, strict=False):
            _panel(panel, name, [one for one in plays if one["collective"] == name], result.scale)
        for panel in panels[len(names) :]:
            panel.set_axis_off()
    return figure


def _panel(panel: Axes, name: str, plays: Sequence[Mapping[str, Any]], scale: float) -> None:
    counts = {one["ranks"] for one in plays}
    for place, one in enumerate(plays):
        colour = JOB_COLOURS[place % len(JOB_COLOURS)]
        label = one["label"] + (f", {one['ranks']} ranks" if len(counts) > 1 else "")
        # Lines may lie on one another, so later ones are thinner and have smaller markers.
        panel.plot(
            one["sizes"], [value * scale / 1e9 for value in one["busbw_Bps"]], color=colour, label=label,
            marker=_MARKERS[place % len(_MARKERS)], markersize=max(3, 8 - place), markerfacecolor="white",
            linestyle=LINE_STYLES[place % len(LINE_STYLES)], linewidth=max(0.9, 2.2 - 0.25 * place),
        )  # fmt: skip
    for ideal in sorted({round(one["ideal_busbw_Bps"] * scale / 1e9, 3) for one in plays}):
        panel.axhline(ideal, color=GREY, linestyle=(0, (6, 3)), linewidth=1)
        panel.annotate(
            f"{ideal:.4g}", (0.0, ideal), (2, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=7, color=GREY,
        )  # fmt: skip
    panel.set_title(name.replace("_", " "))
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
    panel.tick_params(axis="x", labelsize=7)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("busbw, GB/s")
    panel.legend(fontsize=7, loc="lower right")


def sums(result: Result) -> Figure | None:
    """Return the time of the largest size by each way to add up gradients, beside its closed form."""
    plays = [
        one for one in result.summary.get("collectives", []) if one["is_sum"] and one["ideal_algbw_Bps"] is not None
    ]
    if len(plays) < 2:
        return None
    plays.sort(key=lambda one: (one["ranks"], one["ideal_algbw_Bps"]))
    size = plays[0]["sizes"][-1]
    title = f"Adding up {format_size(size)} of gradients"
    with framed(result, title, 9.4, 1.6 + 0.3 * len(plays)) as (figure, body):
        panel = body.subplots()
        places = range(len(plays))
        ideal_ms = [one["sizes"][-1] / one["ideal_algbw_Bps"] * 1e3 for one in plays]
        panel.barh(places, [one["times_s"][-1] * 1e3 for one in plays], color=JOB_COLOURS[0], height=0.62, label="here")
        panel.plot(ideal_ms, places, "|", color=JOB_COLOURS[5], markersize=15, markeredgewidth=2.2, label="closed form")
        for place, one, ideal in zip(places, plays, ideal_ms, strict=True):
            taken = one["times_s"][-1] * 1e3
            panel.annotate(
                f"{taken:.3g} ms, closed form {ideal / taken:.1%} of it", (max(taken, ideal), place), (6, 0),
                textcoords="offset points", va="center", fontsize=7.5, color=GREY,
            )  # fmt: skip
        panel.set_yticks(places, [f"{one['name']}, {one['ranks']} ranks" for one in plays])
        panel.set_xlim(0, 1.35 * max([*ideal_ms, *(one["times_s"][-1] * 1e3 for one in plays)]))
        panel.set_xlabel("time of a step, ms")
        panel.grid(visible=False, axis="y")
        panel.legend(loc="upper right")
    return figure


FIGURES = (
    FigureSpec(
        "busbw",
        "busbw over sizes, a panel per collective and a line per algorithm, at the scale of the system that the fabric "
        "stands for. Dashed: closed forms, in which the busiest host's NIC is full, less headers.",
        busbw,
    ),
    FigureSpec(
        "sums",
        "How long the largest size takes to be added up, by each algorithm of an allreduce and by parameter servers, "
        "beside closed forms.",
        sums,
    ),
)
