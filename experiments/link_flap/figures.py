"""Figures of links that were cut: steps around a cut, blackouts of flows, and the parts of a repair; by policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from fabric.records.palette import FAILURE, GREY, INK, PALE, SERIES, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.data import Floats, present
from fabric.report.figures.style import framed, scale_to_log_time
from fabric.results import Result
from fabric.units import format_time

POLICY_COLOURS = SERIES
PLACES = {
    "host_link": "host link",
    "leaf_spine": "leaf-spine link",
    "inter_zone": "inter-zone link",
    "spine": "spine switch",
}
_PARTS = {"port_s": "to port status", "planned_s": "to plan", "installed_s": "to rules in place"}
_PART_COLOURS = (series(4), series(1), series(5))
_THROUGH_COLOUR = PALE
_BEFORE_S = 1.0


def policy_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each policy, in the order in which they were played."""
    return {name: POLICY_COLOURS[number % len(POLICY_COLOURS)] for number, name in enumerate(names)}


def _in_order(table: pd.DataFrame, column: str) -> list[str]:
    return list(dict.fromkeys(str(value) for value in table[column]))


def steps_around_cuts(result: Result) -> Figure | None:
    """Return the time of each step over when it ended, with the cut at 0: a row a place, a column a duration."""
    cuts, steps = result.table("cuts"), result.table("steps")
    if cuts.empty or steps.empty:
        return None
    places, durations = present(cuts, "place", tuple(PLACES)), sorted(cuts["duration_s"].unique())
    colours = policy_colours(_in_order(cuts, "routing"))
    size = max(8.0, 5.0 * len(durations)), 1.0 + 1.7 * len(places)
    with framed(result, "Steps of an allreduce around a cut", *size) as (figure, body):
        grid = body.subplots(len(places), len(durations), squeeze=False, sharex="col", sharey="col")
        calm_s = _undisturbed_s(cuts, steps)
        for row, place in zip(grid, places, strict=True):
            for panel, duration_s in zip(row, durations, strict=True):
                inside = cuts[(cuts["place"] == place) & (cuts["duration_s"] == duration_s)]
                _draw_steps(panel, inside, steps, colours)
                _mark_cut(panel, duration_s, calm_s)
                panel.set_title(f"{PLACES.get(place, place)}, cut for {format_time(duration_s)}")
        for panel in grid[-1]:
            panel.set_xlabel("end of the step, since the cut (s)")
        body.supylabel("time per step, logarithmic (s)", fontsize=9)
        _policy_legend(body, colours, [Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="undisturbed")])
    return figure


def _undisturbed_s(cuts: pd.DataFrame, steps: pd.DataFrame) -> float:
    calm = steps[~steps["phase"].isin(cuts["phase"].unique())]
    return float((calm["ended_s"] - calm["started_s"]).median()) if len(calm) else float("nan")


def _draw_steps(panel: Axes, cuts: pd.DataFrame, steps: pd.DataFrame, colours: dict[str, str]) -> None:
    until = _window_s(cuts)
    for routing, found in cuts.groupby("routing", sort=False, observed=True):
        for phase, asked_s in zip(found["phase"], found["asked_s"], strict=True):
            rows = steps[steps["phase"] == phase]
            after = rows["ended_s"] - asked_s
            near = rows[(after > -_BEFORE_S) & (after <= until)].sort_values("ended_s")
            panel.plot(
                near["ended_s"] - asked_s, near["ended_s"] - near["started_s"], marker="o", markersize=3,
                linewidth=0.9, color=colours[str(routing)], alpha=0.8,
            )  # fmt: skip
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_minor_formatter(lambda value, _: "")


def _window_s(cuts: pd.DataFrame) -> float:
    """Return how long after a cut nothing else was cut, at least."""
    return float((cuts["returned_s"] - cuts["asked_s"]).median()) + 2.0


def _mark_cut(panel: Axes, duration_s: float, calm_s: float) -> None:
    panel.axvspan(0, duration_s, color=FAILURE, alpha=0.13, linewidth=0)
    if np.isfinite(calm_s):
        panel.axhline(calm_s, color=GREY, linestyle="--", linewidth=1)


def _policy_legend(body: SubFigure, colours: dict[str, str], also: Sequence[Line2D] = ()) -> None:
    handles = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in colours.items()]
    body.legend(handles=[*handles, *also], loc="outside lower center", ncols=len(handles) + len(also))


def blackouts(result: Result) -> Figure | None:
    """Return the distribution of blackouts of the flows that cross a cut, a line a policy, a panel a duration."""
    cuts, flows = result.table("cuts"), result.table("cut_flows")
    if cuts.empty or flows.empty:
        return None
    flows = flows[flows["crosses"].astype(bool)].merge(
        cuts[["phase", "cut", "duration_s"]].drop_duplicates(), on=["phase", "cut"]
    )
    durations = sorted(flows["duration_s"].unique())
    colours = policy_colours(_in_order(cuts, "routing"))
    least_s = float(result.summary.get("probe_period_s", 1e-3))
    with framed(result, "Blackouts of flows that cross a cut", max(8.0, 5.0 * len(durations)), 3.9) as (figure, body):
        panels = body.subplots(1, len(durations), squeeze=False, sharey=True)[0]
        for panel, duration_s in zip(panels, durations, strict=True):
            _draw_blackouts(panel, flows[flows["duration_s"] == duration_s], colours, least_s)
            panel.axvline(duration_s, color=FAILURE, linewidth=1, alpha=0.6)
            panel.set_xlim(right=max(panel.get_xlim()[1], 1.5 * duration_s))
            panel.set_title(f"cuts of {format_time(duration_s)} (line: the link is back)")
        panels[0].set_ylabel("share of flows (fraction)")
        kinds = _kinds(flows)
        styles = [Line2D([], [], color=GREY, linestyle=style, label=label) for style, label in kinds]
        _policy_legend(body, colours, styles if len(kinds) > 1 else ())
    return figure


def _kinds(flows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return a line style for cuts that routes lead round, and one for those that none does, if there are both."""
    at_host = flows["place"] == "host_link"
    kinds = [("-", "between switches")] if (~at_host).any() else []
    return [*kinds, (":", "at a host with one link")] if at_host.any() else kinds


def _draw_blackouts(panel: Axes, flows: pd.DataFrame, colours: dict[str, str], least_s: float) -> None:
    for style, label in _kinds(flows):
        at_host = label != "between switches"
        for routing, rows in flows[(flows["place"] == "host_link") == at_host].groupby(
            "routing", sort=False, observed=True
        ):
            taken: Floats = np.sort(rows["blackout_s"].to_numpy(dtype=float)).clip(least_s / 2)
            share = np.arange(1, len(taken) + 1) / len(taken)
            panel.step(
                np.concatenate([taken[:1], taken]), np.concatenate([[0], share]), where="post",
                color=colours[str(routing)], linestyle=style,
            )  # fmt: skip
    scale_to_log_time(panel)
    panel.axvspan(least_s / 4, least_s, color=PALE, alpha=0.5, linewidth=0)
    panel.set_xlim(left=least_s / 4)
    panel.set_ylim(0, 1.02)
    panel.set_xlabel("blackout, logarithmic; grey: less than between two probes")


def repair_parts(result: Result) -> Figure | None:
    """Return the parts of the controller's repairs, stacked, with when all flows were through; medians over cuts."""
    cuts = result.table("cuts")
    repaired = cuts.dropna(subset=list(_PARTS))
    if repaired.empty:
        return None
    bars = list(repaired.groupby(["routing", "place"], sort=False, observed=True))
    with framed(result, "From the cut to rules in place", 9.0, 1.2 + 0.36 * len(bars)) as (figure, body):
        panel = body.subplots()
        for row, (_, rows) in enumerate(bars):
            _draw_parts(panel, row, rows)
        labels = [f"{routing}, {PLACES.get(str(place), place)} ({len(rows)})" for (routing, place), rows in bars]
        panel.set_yticks(range(len(bars)), labels)
        panel.set_ylim(len(bars) - 0.4, -0.6)
        panel.set_xlim(0, 1.22 * panel.get_xlim()[1])
        panel.grid(visible=False, axis="y")
        panel.xaxis.set_major_formatter(lambda value, _: format_time(value))
        panel.set_xlabel("time since the cut, medians; in brackets: number of cuts")
        handles: list[Patch | Line2D] = [
            Patch(color=colour, label=label) for colour, label in zip(_PART_COLOURS, _PARTS.values(), strict=True)
        ]
        handles.append(Patch(color=_THROUGH_COLOUR, label="to first packets"))
        through = Line2D(
            [], [], color=INK, marker="D", linestyle="", markersize=5, label="all flows through"
        )  # fmt: skip
        body.legend(handles=[*handles, through], loc="outside lower center", ncols=5)
    return figure


def _draw_parts(panel: Axes, row: int, cuts: pd.DataFrame) -> None:
    times = cuts[["asked_s", *_PARTS]].to_numpy(dtype=float)
    left = 0.0
    for part, colour in zip(np.median(np.diff(times, axis=1), axis=0), _PART_COLOURS, strict=True):
        panel.barh(row, part, left=left, height=0.6, color=colour)
        left += float(part)
    text, end = f"rules {format_time(left)}", left
    through = (cuts["packet_s"] - cuts["asked_s"]).dropna()
    if len(through):
        middle = float(through.median())
        end = max(left, middle)
        text += f", through {format_time(middle)}"
        panel.barh(row, end - left, left=left, height=0.6, color=_THROUGH_COLOUR)
        panel.plot(middle, row, "D", color=INK, markersize=5, markeredgecolor="white", zorder=3, clip_on=False)
    panel.annotate(text, (end, row), (7, 0), textcoords="offset points", va="center", fontsize=7)


FIGURES = (
    FigureSpec(
        "steps_around_cuts",
        "Steps of an allreduce by the time they ended, cuts at 0, one line per cut; shaded: the link is down. "
        "Dashed: the median step of the phase without cuts.",
        steps_around_cuts,
    ),
    FigureSpec(
        "blackouts",
        "Cumulative distribution of blackouts of probe flows that cross a cut, on a logarithmic axis. Dotted: cuts of "
        "a host's only link, which no route avoids.",
        blackouts,
    ),
    FigureSpec(
        "repair_parts",
        "Time that the controller took to repair a cut, part by part: medians over the cuts that it repaired before "
        "the link came back. Diamond: packets of all flows that cross the cut arrived again; this is before the end "
        "of the bar if switches repair locally, or had rules before they confirmed them.",
        repair_parts,
    ),
)
