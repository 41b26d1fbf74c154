"""Figures of ``time_sharing``: who had which node under two policies, waits by policy, use by load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from cluster.sharing.composed import nodes_words
from fabric.estimates import estimate
from fabric.records.packed import names_in
from fabric.records.palette import GREY, INK, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result

_PRIORITIES = ("EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "UNDER_NORMAL", "AUTO")
_COLOURS = {"HIGH": series(2), "NORMAL": series(0), "UNDER_NORMAL": series(4)}
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKS = "os^vD"
_SHOWN = 2
_APART = 0.016
"""How far aside a policy's points are, of the range of loads."""


def nodes_by_policy(result: Result) -> Figure | None:
    """Return two panels, of the first policy and of the one that waits least: a row per node, a bar per life."""
    lives = result.table("sharing_lives").astype(
        {"part": str, "policy": str, "priority": str, "nodes": str, "end": str}
    )
    lives = lives[lives["part"] == "packets"]
    if lives.empty:
        return None
    shown = _shown(lives)
    names = sorted({node for text in lives["nodes"] for node in names_in(text)})
    with framed(result, "Nodes under two policies", 9.5, 1.2 + 0.17 * len(names) * len(shown)) as (figure, body):
        panels = body.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for panel, policy in zip(panels, shown, strict=True):
            own = lives[lives["policy"] == policy]
            _draw_lives(panel, own, names)
            panel.set_title(f"{policy}: last job ends after {own['had_until'].max() / 60:.0f} min", fontsize=9)
        panels[-1].set_xlabel("time of the list (minutes)")
        there = [name for name in _PRIORITIES if name in set(lives["priority"])]
        handles = [Patch(color=_COLOURS.get(name, GREY), label=name) for name in there]
        handles += panels[0].plot([], [], "|", color=INK, markersize=8, markeredgewidth=2, label="suspended")
        handles += panels[0].plot([], [], "x", color=INK, markersize=5, markeredgewidth=1.5, label="killed")
        body.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure


def _shown(lives: pd.DataFrame) -> list[str]:
    """Return the first policy, and of the others that with the shortest waits."""
    waits = (lives["had_from"] - lives["queued_at"]).groupby(lives["policy"]).sum()
    first, *others = dict.fromkeys(lives["policy"])
    return [first, *sorted(others, key=lambda name: float(waits[name]))[: _SHOWN - 1]]


def _draw_lives(panel: Axes, lives: pd.DataFrame, names: Sequence[str]) -> None:
    for row in lives.itertuples():
        places = sorted(names.index(node) for node in names_in(row.nodes))
        begun, ended = float(row.had_from) / 60, float(row.had_until) / 60  # type: ignore[arg-type]
        colour = _COLOURS.get(str(row.priority), GREY)
        for place in places:
            panel.barh(place, ended - begun, left=begun, height=0.86, color=colour, edgecolor="white", linewidth=0.4)
        if row.end in ("suspended", "killed"):
            mark = "|" if row.end == "suspended" else "x"
            panel.plot([ended] * len(places), places, mark, color=INK, markersize=6 if mark == "|" else 4,
                       markeredgewidth=1.6)  # fmt: skip
    panel.set_yticks(range(len(names)), names, fontsize=6)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlim(left=0)
    panel.grid(visible=False, axis="y")


def waits(result: Result) -> Figure | None:
    """Return which part of the jobs waited for how long at most, a line per policy."""
    found: Mapping[str, Sequence[float]] = result.summary.get("time_sharing", {}).get("waits_s", {})
    if not found:
        return None
    with framed(result, "How long jobs waited, with packets", 7.5, 3.8) as (figure, body):
        panel = body.subplots()
        for number, (policy, values) in enumerate(found.items()):
            parts = np.arange(1, len(values) + 1) / len(values)
            panel.step([1, *(max(1.0, value) for value in values)], [0, *parts], where="post", color=series(number),
                       linestyle=_LINES[number % len(_LINES)], label=policy)  # fmt: skip
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.set_xlabel("waited, all lives together; 1 s and less: no longer than a turn of the scheduler (s)")
        panel.set_ylabel("jobs")
        panel.set_ylim(0, 1.02)
        panel.yaxis.set_major_formatter(PercentFormatter(1))
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=len(found), fontsize=8)
    return figure


def use_by_load(result: Result) -> Figure | None:
    """Return two panels over the load, a line per policy: use while a job waits, and mean waits; composed."""
    said = result.summary.get("time_sharing", {})
    points: Sequence[Mapping[str, Any]] = said.get("points", ())
    if not points or len({one["load"] for one in points}) < 2:
        return None
    played = said["composed_nodes"]
    title = f"Composed lists on {nodes_words(played, said.get('composed_nodes_asked', played))}, by load"
    with framed(result, title, 9.5, 3.6) as (figure, body):
        used, waited = body.subplots(1, 2)
        policies = list(dict.fromkeys(one["policy"] for one in points))
        loads = [float(one["load"]) for one in points]
        apart = _APART * (max(loads) - min(loads))  # Else intervals would hide each other.
        for number, policy in enumerate(policies):
            aside = apart * (number - (len(policies) - 1) / 2)
            own = [one for one in points if one["policy"] == policy]
            for panel, name in ((used, "used_waiting_fraction"), (waited, "wait_mean_s")):
                _draw_over_loads(panel, [{**one, "load": one["load"] + aside} for one in own], name, number, policy)
        used.axhline(0.95, color=GREY, linestyle=":", linewidth=1.2)
        used.annotate("published: more than 95 %", (0.02, 0.955), xycoords=("axes fraction", "data"), fontsize=7,
                      color=GREY, va="bottom")  # fmt: skip
        used.set_ylim(0, 1.04)
        used.yaxis.set_major_formatter(PercentFormatter(1))
        used.set_ylabel("nodes used while a job waits")
        waited.set_yscale("log")
        waited.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        waited.set_ylabel("mean wait (s)")
        for panel in (used, waited):
            panel.set_xlabel("load: work that comes, of what nodes can do (fraction)")
            panel.set_xticks(sorted(set(loads)))
        handles, labels = used.get_legend_handles_labels()
        body.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _draw_over_loads(panel: Axes, points: Sequence[Mapping[str, Any]], name: str, number: int, policy: str) -> None:
    loads = sorted({one["load"] for one in points})
    found = [(load, [one[name] for one in points if one["load"] == load and name in one]) for load in loads]
    known = [(load, estimate(values)) for load, values in found if values]
    if not known:
        return
    medians = [one.median for _, one in known]
    ends = [[one.median - (one.low if one.low is not None else one.median) for _, one in known],
            [(one.high if one.high is not None else one.median) - one.median for _, one in known]]  # fmt: skip
    panel.errorbar([load for load, _ in known], medians, yerr=ends, color=series(number), marker=_MARKS[number % 5],
                   linestyle=_LINES[number % len(_LINES)], markersize=4, capsize=2, label=policy)  # fmt: skip


FIGURES = (
    FigureSpec(
        "nodes_by_policy",
        "Which nodes jobs had when, with packets, under the first policy and that of the others with the least waits. "
        "Colours: priorities. Bars at the end of a life: suspended for another job; crosses: killed for it.",
        nodes_by_policy,
    ),
    FigureSpec(
        "waits_by_policy",
        "Which part of the list's jobs waited for how long at most, under each policy, with packets.",
        waits,
    ),
    FigureSpec(
        "use_by_load",
        "Composed of measured costs, not played with packets: nodes used while a job waits, and mean waits, by the "
        "load of the list; medians over seeds with 95 % intervals.",
        use_by_load,
    ),
)
