"""The figures of ``goodput_year``: what a failure costs, where a year's time goes, goodput over intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cluster.simulation.goodput import Cause
from experiments.goodput_year.shared_costs import STORAGE_LOSS, WAITS_S
from fabric.records.palette import FAILURE, GREY, INK, LANES, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result
from fabric.units import format_time

_PARTS = {
    "lost_s": ("steps lost", FAILURE),
    "detection_s": ("detection", series(0)),
    "stop_s": ("stop", series(5)),
    "wait_s": ("wait for nodes", series(4)),
    "start_s": ("start", series(1)),
}
_CAUSES = {
    Cause.LOST: FAILURE,
    Cause.DETECTION: series(0),
    Cause.START: series(1),
    Cause.RESTORE: series(2),
    Cause.SAVE: series(3),
    Cause.CUT: INK,
    Cause.STORAGE: LANES["storage"],
    Cause.CAPACITY: series(4),
    Cause.VALIDATION: series(7),
    Cause.SUSPENDED: series(5),
    Cause.STRAGGLING: GREY,
}
_MOMENTS = {
    "failed_s": ("falls silent", "-"),
    "out_s": ("no chain counts on it", "--"),
    "back_s": ("is back, empty", "-."),
    "whole_s": ("all targets serve", ":"),
}
_SHOWN = 2e-3
"""The least per cent that is drawn: less would be a name in the legend and nothing else."""
_COMPOSED = "composed of measured costs"
_FIVE_MINUTES_S = 300


def failures(result: Result) -> Figure | None:
    """Return a bar of its parts for each failure, in the order of what they cost, and how steps lost spread over the
    interval between checkpoints; None without failures."""
    table = result.table("failure_costs")
    if table.empty:
        return None
    rows = table.sort_values("total_s").reset_index(drop=True)
    interval_s = float(result.summary["goodput_year"]["interval_s"])
    with framed(result, "What a failure costs", 10.5, max(2.6, 0.9 + 0.21 * len(rows))) as (figure, body):
        bars, spread = body.subplots(1, 2, width_ratios=[1.6, 1])
        left = np.zeros(len(rows))
        for column, (label, colour) in _PARTS.items():
            values = rows[column].to_numpy(float)
            bars.barh(range(len(rows)), values, left=left, color=colour, label=label, height=0.78)
            left += values
        bars.set_yticks(
            range(len(rows)), [f"{kind} {node}" for kind, node in zip(rows["kind"], rows["node"], strict=True)]
        )
        bars.tick_params(axis="y", length=0, labelsize=7)
        bars.grid(visible=False, axis="y")
        bars.set_xlabel("time of the job (s)")
        bars.set_xlim(0, 1.03 * max(float(left.max()), _FIVE_MINUTES_S))
        bars.axvline(_FIVE_MINUTES_S, color=GREY, linestyle=":", linewidth=1.2)
        bars.set_title("each failure, in its parts (dotted: five minutes)")
        _draw_spread(spread, np.sort(rows["lost_s"].to_numpy(float)), interval_s)
        body.legend(*bars.get_legend_handles_labels(), loc="outside lower center", ncols=len(_PARTS))
    return figure


def _draw_spread(panel: Axes, lost: Any, interval_s: float) -> None:
    """Draw the part of failures that lost so much at most, beside moments even over the interval."""
    panel.step([0.0, *lost], np.arange(len(lost) + 1) / len(lost), where="post", color=FAILURE, label="measured")
    panel.plot([0, interval_s], [0, 1], color=GREY, linestyle="--", linewidth=1, label="even over the interval")
    panel.axvline(float(lost.mean()), color=FAILURE, linestyle=":", linewidth=1.2, label=f"mean, {lost.mean():.0f} s")
    panel.axvline(
        interval_s / 2, color=GREY, linestyle=":", linewidth=1.2, label=f"half an interval, {interval_s / 2:.0f} s"
    )
    panel.set_xlim(left=0)
    panel.set_ylim(0, 1.02)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panel.set_xlabel("steps lost (s)")
    panel.set_ylabel("share of failures that lost at most this")
    panel.legend(loc="lower right", fontsize=7)


def storage_loss(result: Result) -> Figure | None:
    """Return when each node of a training that reads waited for its batch, around a storage node's loss and return;
    None without."""
    known = (result.summary.get("goodput_year") or {}).get("storage_loss")
    batches = result.table("loader_batches")
    batches = batches[batches["phase"].astype(str) == STORAGE_LOSS]
    if not known or batches.empty:
        return None
    hosts = sorted(map(str, batches["host"].unique()))
    from_s = float(known["failed_s"])
    with framed(result, "A storage node is lost under a training that reads", 9.0, 1.6 + 0.14 * len(hosts)) as (
        figure,
        body,
    ):
        panel = body.subplots()
        for place, host in enumerate(hosts):
            own = batches[batches["host"].astype(str) == host]
            due, started = (own[name].to_numpy(float) for name in ("due_s", "started_s"))
            spans = [(begin - from_s, end - begin) for begin, end in zip(due, started, strict=True)
                     if end - begin >= WAITS_S]  # fmt: skip
            panel.broken_barh(
                spans, (place - 0.4, 0.8), color=FAILURE, label="waits for its batch" if not place else ""
            )
        for name, (words, style) in _MOMENTS.items():
            panel.axvline(float(known[name]) - from_s, color=GREY, linestyle=style, linewidth=1.2, label=words)
        panel.set_xlim(float(batches["due_s"].min()) - from_s, float(batches["ended_s"].max()) - from_s)
        panel.set_ylim(len(hosts) - 0.5, -0.5)
        panel.set_yticks(range(len(hosts)), hosts)
        panel.tick_params(axis="y", length=0, labelsize=6.5)
        panel.grid(visible=False, axis="y")
        panel.set_xlabel("time since it fell silent (s)")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def year(result: Result) -> Figure | None:
    """Return where a job's time went that was not a kept step, a bar for each machine; None if no year was composed."""
    years = (result.summary.get("goodput_year") or {}).get("years", [])
    if not years:
        return None
    with framed(result, f"Where a year goes, {_COMPOSED}", 10.0, 1.3 + 0.75 * len(years)) as (figure, body):
        panel = body.subplots()
        left = np.zeros(len(years))
        for cause, colour in _CAUSES.items():
            values = 100 * np.array([one["held"].get(cause.value, 0.0) for one in years])
            if values.max() >= _SHOWN:
                panel.barh(range(len(years)), values, left=left, color=colour, label=cause.value, height=0.55)
                left += values
        for place, one in enumerate(years):
            words = f"{one['goodput']['median']:.1%} kept\npublished: {one['published'] or 'nothing'}"
            panel.annotate(words, (left[place], place), (6, 0), textcoords="offset points", va="center", fontsize=7.5)
        panel.set_yticks(range(len(years)), [f"{one['machine']}\n{one['nodes']:,} nodes" for one in years])
        panel.invert_yaxis()
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False, axis="y")
        panel.set_xlim(0, float(left.max()) * 1.75)
        panel.set_xlabel("time of the job's nodes that is not a kept step (%)")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def intervals(result: Result) -> Figure | None:
    """Return goodput over the interval between checkpoints, of each machine, asynchronous and synchronous ones, with
    Daly's model and the optima of Young and Daly; None without a sweep."""
    sweeps = result.table("year_sweeps")
    sweeps = sweeps[sweeps["sweep"].astype(str) == "interval"]
    curves = (result.summary.get("goodput_year") or {}).get("curves", [])
    if sweeps.empty or not curves:
        return None
    machines = list(dict.fromkeys(map(str, sweeps["machine"])))
    with framed(result, f"Goodput over the interval between checkpoints, {_COMPOSED}", 3.7 * len(machines), 3.6) as (
        figure,
        body,
    ):
        panels = body.subplots(1, len(machines), squeeze=False)[0]
        for panel, machine in zip(panels, machines, strict=True):
            own = sweeps[sweeps["machine"].astype(str) == machine]
            for number, curve in enumerate(one for one in curves if one["machine"] == machine):
                rows = own[own["way"].astype(str) == curve["way"]].sort_values("value")
                _draw_interval(panel, rows, curve, series(number))
            panel.set_title(machine)
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda value, _: format_time(value))
            panel.xaxis.set_minor_formatter(lambda value, _: "")
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
            panel.set_xlabel("interval between checkpoints")
        panels[0].set_ylabel("goodput")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_interval(panel: Axes, rows: Any, curve: dict[str, Any], colour: str) -> None:
    values, median = rows["value"].to_numpy(float), rows["goodput_fraction"].to_numpy(float)
    low, high = (rows[name].to_numpy(float) for name in ("low_fraction", "high_fraction"))
    errors = np.nan_to_num(np.array([median - low, high - median]))
    panel.errorbar(
        values, median, errors, fmt="o", color=colour, markersize=4, capsize=2, label=f"{curve['way']}, composed"
    )
    panel.plot(curve["intervals_s"], curve["goodput"], color=colour, linewidth=1, label=f"{curve['way']}, Daly's model")
    ends = values.min(), values.max()
    for name, author, style in (("young_s", "Young", ":"), ("daly_s", "Daly", "--")):
        if ends[0] <= curve[name] <= ends[1]:
            words = f"{curve['way']}, best by {author}"
            panel.axvline(curve[name], color=colour, linestyle=style, linewidth=1, label=words)


FIGURES = (
    FigureSpec(
        "failure_costs",
        "Each failure of the job in its parts, by what it cost in all, and how many lost at most a number of seconds "
        "of steps, beside moments even over the interval between checkpoints.",
        failures,
    ),
    FigureSpec(
        "storage_loss",
        "When each node of a training that reads a batch per step waited for one, from a storage node's silence until "
        "it is back and all its data are.",
        storage_loss,
    ),
    FigureSpec(
        "goodput_year",
        "The part of a year of one job on a whole machine that was not kept steps, by cause, median over seeds, "
        "composed of measured costs.",
        year,
    ),
    FigureSpec(
        "checkpoint_intervals",
        "Goodput over the interval between checkpoints: points are composed of measured costs (bars: 95 % interval "
        "over seeds), lines Daly's model; vertical lines the optima of Young (dotted) and Daly (dashed).",
        intervals,
    ),
)
