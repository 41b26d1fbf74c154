"""Figures of jobs that share a fabric: what each is slowed by, and who takes how much of the ports that several use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.shared_cluster.day_figure import platform_day
from fabric.records.palette import GREY, PALE, series_of
from fabric.report.figures import FigureSpec
from fabric.report.figures.data import directions
from fabric.report.figures.style import framed
from fabric.results import Result
from fabric.units import format_bandwidth

_PORTS_SHOWN = 16
_REST_COLOUR = PALE


def slowdowns(result: Result) -> Figure | None:
    """Return a bar per job: how many times as fast it was alone as in company; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("slowdowns", ())
    if not found:
        return None
    colours = series_of([one["job"] for one in found])
    with framed(result, "Slowdown of each job by the others", 9.0, 1.1 + 0.42 * len(found)) as (figure, body):
        panel = body.subplots()
        for row, one in enumerate(found):
            _draw_slowdown(panel, row, one, colours[one["job"]])
        panel.axvline(1, color=GREY, linestyle="--", linewidth=1)
        panel.annotate("as alone", (1, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                       ha="center", va="bottom", fontsize=7.5, color=GREY)  # fmt: skip
        panel.set_yticks(range(len(found)), [one["job"] for one in found])
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(len(found) - 0.4, -0.6)
        panel.set_xlim(0, 1.6 * max([1.0, *(one["slowdown"] or 0.0 for one in found)]))
        panel.grid(visible=False, axis="y")
        panel.set_xlabel("speed alone over speed with the other jobs, both while the job played (times)")
    return figure


def _draw_slowdown(panel: Axes, row: int, one: Mapping[str, Any], colour: str) -> None:
    value = one["slowdown"]
    if value is None:
        text = "did nothing in one of the phases that it did in the other"
    else:
        panel.barh(row, value, height=0.6, color=colour)
        text = f"{value:.2f}   {one['measure']}: {_speed(one, 'alone')} → {_speed(one, 'together')}"
    panel.annotate(text, (max(value or 0.0, 1.0), row), (5, 0), textcoords="offset points", va="center", fontsize=8)


_IN_EARLIER = {"alone": "alone_Bps", "together": "together_Bps"}


def _speed(one: Mapping[str, Any], when: str) -> str:
    """Return a speed in words; results of earlier versions have it in bytes per second."""
    return str(one[when]) if when in one else format_bandwidth(one[_IN_EARLIER[when]])


def port_shares(result: Result) -> Figure | None:
    """Return what each job takes of the ports that several use, the busiest first; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("port_shares", ())
    if not found:
        return None
    shown, links = found[:_PORTS_SHOWN], directions(result.fabric)
    jobs = [name for name in result.summary["jobs"] if any(name in one["jobs"] for one in shown)]
    colours = series_of(result.summary["jobs"])
    with framed(result, "Shares of ports that several jobs use", 9.0, 1.5 + 0.27 * len(shown)) as (figure, body):
        panel = body.subplots()
        left = [0.0] * len(shown)
        for name in jobs:
            widths = [float(one["jobs"].get(name, 0.0)) for one in shown]
            panel.barh(range(len(shown)), widths, left=left, height=0.7, color=colours[name], label=name)
            left = [place + width for place, width in zip(left, widths, strict=True)]
        rest = [max(0.0, one["sent"] - place) for one, place in zip(shown, left, strict=True)]
        panel.barh(range(len(shown)), rest, left=left, height=0.7, color=_REST_COLOUR, label="headers and the like")
        panel.set_yticks(range(len(shown)), [links[one["port"]].label for one in shown])
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(len(shown) - 0.4, -0.6)
        panel.set_xlim(0, 1)
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.grid(visible=False, axis="y")
        left_out = f"      ({len(found) - len(shown)} less busy ports not shown)" if len(found) > len(shown) else ""
        panel.set_xlabel(f"part of the port's rate, over the whole phase{left_out}")
        body.legend(loc="outside lower center", ncols=len(jobs) + 1)
    return figure


FIGURES = (
    FigureSpec(
        "platform_day",
        "Users' jobs of a platform on one time axis: who has which node, who runs and waits (bold: the step saved), "
        "what fails and when rules are installed, how many chains of storage lack a replica, and what those are sent.",
        platform_day,
    ),
    FigureSpec(
        "slowdowns",
        "How many times as fast each job is alone as with the others: algbw (median step) of collectives, bandwidth of "
        "reads, writes or flows of other jobs.",
        slowdowns,
    ),
    FigureSpec(
        "port_shares",
        "Ports of switches that flows of several jobs cross by the routes in use, and what each job's flows delivered "
        "through them, as a part of the port's rate. Grey: what else the port sent.",
        port_shares,
    ),
)
