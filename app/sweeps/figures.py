"""Figures over many runs: lines with intervals over an axis, a heat map over two, and the runs of one setting."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from app.sweeps.config import FigureConfig
from app.sweeps.labels import AxisPlaces, key_words, metric_words, places_of
from app.sweeps.planning import SweepPlan
from app.sweeps.tables import LEFT_OUT, at_point, believed, metric_columns, with_least
from fabric.errors import ResultError
from fabric.estimates import LEAST_FOR_CONFIDENCE, estimate, is_median_known
from fabric.metrics import least_name, split_path, unit_of
from fabric.records.notes import few_seeds
from fabric.records.palette import GREY, INK, series, series_of
from fabric.report.figures import RepeatedSpec, side_by_side
from fabric.report.figures.style import headed, heat_map, panel_grid, save

_PANELS_PER_FIGURE = 24
_COLUMNS = 4


def draw_figures(plan: SweepPlan, runs: pd.DataFrame, directory: Path) -> list[Path]:
    """Draw the figures that a sweep's config asks for; return the files. Raises ResultError for a metric that no run
    has."""
    if believed(runs).empty:
        return []
    paths: list[Path] = []
    for number, config in enumerate(plan.figures, 1):
        figure = draw(plan, runs, config)
        paths += save(figure, directory, config.name or f"figure_{number}")
    return paths


def draw(plan: SweepPlan, runs: pd.DataFrame, config: FigureConfig) -> Figure:
    """Return one figure, with a panel for each combination of the axes that it does not name. Lines join numbers, not
    categories, on a logarithmic axis where each is twice as large as the one before it or more."""
    counted = believed(runs)
    found = [_value(config.y, row) for _, row in counted.iterrows()]
    values = pd.Series([value for value, _ in found], counted.index, dtype=float)
    least = sum(is_least for _, is_least in found)
    if values.isna().all():
        raise ResultError(f"figures: {config.y}: no run has this metric; there are {_some(metric_columns(plan, runs))}")
    told = f" Of {least} of the values it is only known that they are at least as large." if least else ""
    if lacking := int(values.isna().sum()):
        told += f" {lacking} of {len(counted)} runs that count are without a value."
    counted = counted.assign(**{"": values}).dropna(subset=[""])
    others = [axis for axis in plan.axes if axis not in config.axes]
    groups = list(counted.groupby(others, sort=False)) if others else [((), counted)]
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    unit = unit_of(config.y)
    label = config.title or (config.y if unit == "1" else f"{config.y} ({unit})")
    footer = [line + told for line in _footer(plan, runs)]
    with headed(label, _subtitle(plan), footer, 4.2 * columns + 2.2, 3.1 * rows) as (figure, body):
        panels = panel_grid(body, len(groups), columns)
        for axes, (point, group) in zip(panels, groups, strict=True):
            if config.down is None:
                _lines(axes, group, config)
                axes.yaxis.set_major_formatter(_numbers(unit))
                axes.set_ylabel(textwrap.fill(metric_words(config.y), 34))
            else:
                _heat(axes, group, config, _numbers(unit))
            if others:
                axes.set_title(", ".join(f"{key_words(axis)} {one}" for axis, one in zip(others, point, strict=True)))
        if config.lines is not None:
            handles, labels = panels[0].get_legend_handles_labels()
            body.legend(handles, labels, title=key_words(config.lines), loc="outside right upper")
    return figure


def _numbers(unit: str) -> EngFormatter:
    """Return how numbers of a unit are written: ``984 Mbit/s``."""
    if unit == "1":
        return EngFormatter(sep="", places=None)
    return EngFormatter(unit, places=None)


def _value(path: str, row: Any) -> tuple[float, bool]:
    """Return what a run has at a path in which ``{axis}`` stands for its own value of the axis, and whether it is but
    the least that it can be: without those the runs with the largest values would be left out."""
    name = at_point(path, row)
    value, least = (float(row.get(one, math.nan)) for one in (name, least_name(name)))
    return (value, False) if math.isnan(least) else (least, True)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more (runs.csv)" if len(names) > 20 else "")


def _lines(axes: Axes, group: pd.DataFrame, config: FigureConfig) -> None:
    places = places_of([str(value) for value in group[config.x]])
    group = group.assign(place=[places.of[str(value)] for value in group[config.x]])
    names = list(dict.fromkeys(group[config.lines])) if config.lines else [""]
    colours = series_of([str(name) for name in names])
    for name in names:
        rows = group[group[config.lines] == name] if config.lines else group
        _line(axes, rows, str(name), {"color": colours[str(name)], "linestyle": "-" if places.are_numbers else ""})
    _finish_x(axes, config, places)
    if "y" in config.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


def _finish_x(axes: Axes, config: FigureConfig, places: AxisPlaces) -> None:
    axes.set_xlabel(key_words(config.x) + ("" if places.form or not places.are_numbers else " (number)"))
    if places.double or "x" in config.log:
        axes.set_xscale("log", base=2 if places.double else 10)
    if (form := places.form) is not None and not places.double:
        axes.xaxis.set_major_formatter(lambda value, _: form(value))
    elif places.double or not places.are_numbers:
        axes.set_xticks(list(places.of.values()), list(places.of))
        axes.minorticks_off()


def _line(axes: Axes, rows: pd.DataFrame, name: str, look: Mapping[str, Any]) -> None:
    """Draw a line through medians, with an interval at each, and a dot for each run."""
    colour = look["color"]
    places = sorted(set(rows["place"]))
    found = [estimate(list(rows.loc[rows["place"] == place, ""])) for place in places]
    axes.plot(places, [one.median for one in found], marker="o", markersize=5, label=name, **look)
    axes.plot(rows["place"], rows[""], ".", color=colour, alpha=0.35, markersize=4)
    for place, one in zip(places, found, strict=True):
        if one.low is not None and one.high is not None:
            axes.errorbar(place, one.median, [[one.median - one.low], [one.high - one.median]], color=colour, capsize=3)


def _heat(axes: Axes, group: pd.DataFrame, config: FigureConfig, numbers: EngFormatter) -> None:
    across, down = (list(dict.fromkeys(group[axis])) for axis in (config.x, config.down))
    table = np.full((len(down), len(across)), np.nan)
    for (x, y), found in group.groupby([config.x, config.down], sort=False):
        table[down.index(y), across.index(x)] = estimate(list(found[""])).median
    least = min(0.0, float(np.nanmin(table)))
    most = max(float(np.nanmax(table)), least + 1e-12)
    axes.imshow(table, cmap=heat_map(), aspect="auto", vmin=least, vmax=most)
    middle = (least + most) / 2
    for (row, column), value in np.ndenumerate(table):
        text = "no run" if np.isnan(value) else numbers(float(f"{value:.3g}"))
        colour = GREY if np.isnan(value) else "white" if value > middle else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(across)), [str(value) for value in across])
    axes.set_yticks(range(len(down)), [str(value) for value in down])
    axes.set_xlabel(key_words(config.x))
    axes.set_ylabel(key_words(str(config.down)))
    axes.grid(visible=False)


def _subtitle(plan: SweepPlan) -> str:
    settings = f", {len(plan.points)} settings" if len(plan.points) > 1 else ""
    return f"{plan.name}: {plan.experiment}{settings}, engine {plan.engine}"


def _footer(plan: SweepPlan, runs: pd.DataFrame) -> list[str]:
    seeds = len({run.seed for run in plan.runs})
    return [f"{_span_text(plan, runs, seeds)}. {left_out_text(runs)}", *(note.words for note in few_seeds(seeds))]


def _span_text(plan: SweepPlan, runs: pd.DataFrame, seeds: int) -> str:
    """Return what is drawn beside medians: intervals only of as many runs as one takes that is sure."""
    if seeds == 1:
        return "one seed"
    counted = believed(runs)
    least = min(counted.groupby(list(plan.axes), sort=False).size(), default=0) if plan.axes else len(counted)
    if least >= LEAST_FOR_CONFIDENCE:
        spans = "with 95 % bootstrap intervals"
    elif seeds >= LEAST_FOR_CONFIDENCE:
        spans = f"with 95 % bootstrap intervals, of settings with fewer than {LEAST_FOR_CONFIDENCE} runs their range"
    else:
        spans = "with the range of the runs, too few for an interval"
    return f"medians over {seeds} seeds {spans}; dots: single runs"


def left_out_text(runs: pd.DataFrame) -> str:
    """Return how many runs are left out of averages, and why."""
    counts = runs["verdict"].value_counts()
    out = {str(name): int(count) for name, count in counts.items() if name in LEFT_OUT}
    if not out:
        return f"All {len(runs)} runs count."
    told = ", ".join(f"{count} {name}" for name, count in sorted(out.items()))
    return f"{sum(out.values())} of {len(runs)} runs are left out: {told}."


def draw_repeats(
    plan: SweepPlan,
    runs: pd.DataFrame,
    summaries: Sequence[Mapping[str, Any]],
    directory: Path,
    own: Sequence[RepeatedSpec] = (),
) -> list[Path]:
    """Draw what repeats of one run say: the queueings side by side if it has them, the experiment's
    ``own`` figures, and every metric by phase."""
    together = _side_by_side(plan, runs, summaries)
    paths = save(together, directory, "side_by_side") if together is not None else []
    for spec in own:
        figure = spec.draw(summaries, _subtitle(plan), _footer(plan, runs))
        paths += save(figure, directory, spec.name) if figure is not None else []
    told = with_least(believed(runs)[metric_columns(plan, runs)].astype(float))
    groups = _by_measure([str(name) for name in told.columns], told)
    for number in range(0, len(groups), _PANELS_PER_FIGURE):
        part = groups[number : number + _PANELS_PER_FIGURE]
        name = f"repeats_{number // _PANELS_PER_FIGURE + 1}" if number else "repeats"
        paths += save(_dots(plan, runs, part, told), directory, name)
    return paths


def _side_by_side(plan: SweepPlan, runs: pd.DataFrame, summaries: Sequence[Mapping[str, Any]]) -> Figure | None:
    found = [one["side_by_side"] for one in summaries if one.get("side_by_side")]
    shapes = {tuple(panel["title"] for panel in one["panels"]) for one in found}
    if not found or len(shapes) > 1 or not found[0]["panels"]:
        return None
    merged = dict(found[0])
    merged["panels"] = [_merged_panel([one["panels"][number] for one in found]) for number in range(len(shapes.pop()))]
    for key, of_intervals in side_by_side.COUNTS.items():
        counts = _merged([one[key] for one in found if key in one])
        merged |= {key: counts["values"]} | ({of_intervals: counts["intervals"]} if "intervals" in counts else {})
    title, height = "All queueings side by side", side_by_side.height(merged)
    with headed(title, _subtitle(plan), _footer(plan, runs), side_by_side.WIDTH, height) as (figure, body):
        side_by_side.draw_panels(body, merged)
    return figure


def _merged_panel(panels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a panel over runs; a median is the least that it can be if so many of its runs know no more."""
    values = [panel["values"] for panel in panels]
    known = [[not one for one in panel.get("at_least", [False] * len(panel["values"]))] for panel in panels]
    merged = {name: value for name, value in panels[0].items() if name != "at_least"} | _merged(values)
    columns = zip(zip(*values, strict=True), zip(*known, strict=True), strict=True)
    at_least = [not is_median_known(found, are_known) for found, are_known in columns]
    return merged | ({"at_least": at_least} if any(at_least) else {})


def _merged(values: Sequence[Sequence[float]]) -> dict[str, Any]:
    found = [estimate(column) for column in zip(*values, strict=True)]
    medians = [one.median for one in found]
    if any(one.low is None for one in found):
        return {"values": medians}
    return {"values": medians, "intervals": [[one.low for one in found], [one.high for one in found]]}


_Measure = tuple[str, list[tuple[str, str]]]
"""What is measured, and in which phases: each with its column."""


def _by_measure(columns: Sequence[str], counted: pd.DataFrame) -> list[_Measure]:
    """Return metrics by what they measure. Those that are the same in all runs are in the tables; they are left out."""
    found: dict[str, list[tuple[str, str]]] = {}
    for column in columns:
        if counted[column].nunique() > 1:
            phase, name = split_path(column)
            found.setdefault(name, []).append((phase, column))
    return sorted(found.items())


def _dots(plan: SweepPlan, runs: pd.DataFrame, measures: Sequence[_Measure], counted: pd.DataFrame) -> Figure:
    columns = min(_COLUMNS, len(measures))
    rows = -(-len(measures) // columns)
    most = max(len(phases) for _, phases in measures)
    height = rows * (0.75 + 0.17 * most)
    with headed("Repeats", _subtitle(plan), _footer(plan, runs), max(6.0, 3.1 * columns), height) as (figure, body):
        for axes, (measure, phases) in zip(panel_grid(body, len(measures), columns), measures, strict=True):
            _dots_of(axes, measure, phases, counted)
    return figure


def _dots_of(axes: Axes, measure: str, phases: Sequence[tuple[str, str]], counted: pd.DataFrame) -> None:
    for place, (_, column) in enumerate(phases):
        values = counted[column].dropna()
        found = estimate(list(values))
        axes.plot(values, [place] * len(values), ".", color=series(0), alpha=0.5, markersize=5)
        axes.plot(found.median, place, "|", color=INK, markersize=9)
        if found.low is not None and found.high is not None:
            axes.hlines(place, found.low, found.high, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(phases)), [phase for phase, _ in phases], fontsize=7)
    axes.set_ylim(len(phases) - 0.4, -0.6)
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), axes.get_xlim()[1] * 1.05)
    axes.tick_params(axis="x", labelsize=7)
    axes.xaxis.set_major_formatter(EngFormatter(sep="", places=None))
    axes.set_xlabel(textwrap.fill(metric_words(measure), 44), fontsize=8)
