"""The figure of an incast: bandwidth, latency and queue over how many may send at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import NullFormatter

from fabric.estimates import Estimate, estimate
from fabric.model.lanes import Queueing
from fabric.report.figures import FigureSpec, RepeatedSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed, headed
from fabric.results import Result
from fabric.units import format_time

_DASHES = {True: "-", False: "--"}
_MEASURES = (
    ("bandwidth_Bps", 1e-9, "reads, GB/s"),
    ("p50_s", 1e6, "median read, us"),
    ("p99_s", 1.0, "p99 of reads"),
    ("queue_bytes", 1 / 1024, "queue, mean, KiB"),
)
_LOGARITHMIC = "p99_s"
_TITLE, _WIDTH = "An incast, by how many may send at once", 12.0


def senders(result: Result) -> Figure | None:
    """Return a row of panels a number of servers and a column a measure; None if the run is no incast."""
    described = result.summary.get("incast")
    if not described or not described["lines"]:
        return None
    with framed(result, _TITLE, _WIDTH, _height(described)) as (figure, body):
        _draw_panels(body, described)
    return figure


def senders_over_runs(summaries: Sequence[Mapping[str, Any]], subtitle: str, footer: Sequence[str]) -> Figure | None:
    """Return the same of several runs: medians, and their intervals; None if they are not the same incasts."""
    described = merged([one["incast"] for one in summaries if one.get("incast")])
    if described is None:
        return None
    with headed(_TITLE, subtitle, footer, _WIDTH, _height(described)) as (figure, body):
        _draw_panels(body, described)
    return figure


def merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what runs say together: for each measure of a line its medians over the runs that have it, and in
    ``intervals`` their bounds, None where only one run has it; None if runs have other lines or limits."""
    if not runs or not runs[0]["lines"] or len({_shape(one) for one in runs}) > 1:
        return None
    lines = []
    for place, line in enumerate(runs[0]["lines"]):
        found = {name: _over_runs([one["lines"][place][name] for one in runs]) for name, _, _ in _MEASURES}
        medians = {name: [one and one.median for one in values] for name, values in found.items()}
        bounds = {name: [_bounds(one) for one in values] for name, values in found.items()}
        lines.append({**line, **medians, "intervals": bounds})
    return {**runs[0], "lines": lines}


def _shape(described: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((one["queueing"], one["control"], one["servers"], *one["limits"]) for one in described["lines"])


def _over_runs(columns: Sequence[Sequence[float | None]]) -> list[Estimate | None]:
    """Return an estimate for each limit; None if no run has a value."""
    known = [[value for value in values if value is not None] for values in zip(*columns, strict=True)]
    return [estimate(values) if values else None for values in known]


def _bounds(found: Estimate | None) -> tuple[float, float] | None:
    if found is None or found.low is None or found.high is None:
        return None
    return found.low, found.high


def _height(described: Mapping[str, Any]) -> float:
    return 2.6 * len({one["servers"] for one in described["lines"]}) + 0.5


def _draw_panels(body: SubFigure, described: Mapping[str, Any]) -> None:
    lines = described["lines"]
    counts = sorted({one["servers"] for one in lines})
    controls = list(dict.fromkeys(one["control"] for one in lines))
    panels = body.subplots(len(counts), len(_MEASURES), squeeze=False, sharex=True)
    for row, count in zip(panels, counts, strict=True):
        for axes, (measure, factor, label) in zip(row, _MEASURES, strict=True):
            _draw(axes, [one for one in lines if one["servers"] == count], controls, measure, factor)
            axes.set_title(f"{count} servers: {label}")
            if measure == "bandwidth_Bps":
                axes.axhline(described["nic_Bps"] / 1e9, color=GREY, linestyle=":", linewidth=1)
    for axes in panels[-1]:
        axes.set_xlabel("may send at once")
    handles, labels = panels[0][0].get_legend_handles_labels()
    body.legend(handles, labels, loc="outside lower center", ncols=len(controls), fontsize=8)


def _draw(axes: Axes, lines: list[dict[str, Any]], controls: list[str], measure: str, factor: float) -> None:
    limits = lines[0]["limits"]
    for one in lines:
        queueing = Queueing(one["queueing"])
        values = [(place, value * factor) for place, value in enumerate(one[measure]) if value is not None]
        colour = JOB_COLOURS[controls.index(one["control"])]
        axes.plot(
            [place for place, _ in values], [value for _, value in values],
            label=f"{one['control']}, {queueing.words}", color=colour, linestyle=_DASHES[queueing.is_lossless],
            marker="o" if queueing.is_lossless else "s", markersize=4, markerfacecolor="white",
        )  # fmt: skip
        for place, bounds in enumerate(one.get("intervals", {}).get(measure, ())):
            if bounds is not None:
                axes.vlines(place, bounds[0] * factor, bounds[1] * factor, color=colour, linewidth=1.2)
    axes.set_xticks(range(len(limits)), limits)
    if measure == _LOGARITHMIC:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: format_time(value))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)


FIGURES = (
    FigureSpec(
        "senders",
        "One client reads from storage nodes: bandwidth, latency and the queue at the leaf's port to it, by how many "
        "reads may send to it at once (request-to-send; off: all). Dotted: the client's NIC.",
        senders,
    ),
)

REPEATED = (RepeatedSpec("senders", senders_over_runs),)
