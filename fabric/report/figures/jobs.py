"""Figures of programs: latencies of storage and steps of collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fabric.records.palette import GREY, INK
from fabric.report.figures.data import Floats, Latencies, latencies, present, step_times
from fabric.report.figures.style import (
    LEVEL_ORDER,
    framed,
    level_colour,
    phase_label,
    phase_styles,
    scale_to_log_time,
    times,
)
from fabric.results import Phase, Result
from fabric.units import format_time

_MOST_INCHES = 8.0
"""What all rows of steps may take, unless their boxes would touch."""
_TWO_LINES_INCHES = 0.35
_OPERATIONS = {"read": "Storage reads", "write": "Storage writes"}


def storage_latency(result: Result) -> Figure | None:
    """Return the cumulative distribution of read and write latencies, a line a phase."""
    table = result.table("operations")
    found = {
        operation: {
            phase.name: one for phase in result.phases if len((one := latencies(table, operation, phase)).taken_s)
        }
        for operation in _OPERATIONS
    }
    found = {operation: by_phase for operation, by_phase in found.items() if by_phase}
    if not found:
        return None
    shown = [phase for phase in result.phases if any(phase.name in by_phase for by_phase in found.values())]
    width = 5.5 * max(len(found), 1.4)
    legend_rows = -(-len(shown) // 2)
    with framed(result, "Latency of storage operations", width, 3.4 + 0.2 * legend_rows) as (figure, body):
        axes = body.subplots(1, len(found), squeeze=False, sharey=True, sharex=True)[0]
        styles = phase_styles(result.phases)
        for panel, (operation, by_phase) in zip(axes, found.items(), strict=True):
            _draw_distributions(panel, by_phase, styles)
            counted, never = (sum(values) for values in zip(*map(_counts, by_phase.values()), strict=True))
            failed = f", {never:,} failed" if never else ""
            panel.set_title(f"{_OPERATIONS[operation]} ({counted:,} operations{failed}; dot: 99th percentile)")
        axes[0].set_ylabel("share of operations (fraction)")
        handles = [_line(styles[phase.name], label=phase_label(phase, 70)) for phase in shown]
        body.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _line(style: tuple[Any, str], label: str) -> Line2D:
    colour, dashes = style
    return Line2D([], [], color=colour, linestyle=dashes, label=label)


def _counts(one: Latencies) -> tuple[int, int]:
    return len(one.taken_s) + one.never, one.never


def _draw_distributions(panel: Axes, by_phase: dict[str, Latencies], styles: dict[str, tuple[Any, str]]) -> None:
    """Draw a line a phase; one in which operations failed does not reach the top, nor has a dot if it ends below."""
    for name, one in by_phase.items():
        colour, dashes = styles[name]
        panel.step(one.taken_s, one.fractions, where="post", color=colour, linestyle=dashes)
        if one.p99_s is not None:
            panel.plot(one.p99_s, 0.99, "o", color=colour, markersize=4, zorder=3)
    scale_to_log_time(panel)
    panel.set_ylim(0, 1.02)
    panel.set_xlabel("latency, logarithmic")


def collective_steps(result: Result) -> Figure | None:
    """Return algbw and time of the steps of collectives, a box a phase and service level."""
    table = result.table("steps")
    levels = present(table, "service_level", LEVEL_ORDER)
    if table.empty or not levels:
        return None
    phases = [phase for phase in result.phases if (table["phase"] == phase.name).any()]
    if not phases:
        return None
    ideals = {str(level): float(value) for level, value in result.summary.get("ideal_algbw_Bps", {}).items()}
    row_inches = _row_inches(table, phases)
    with framed(result, "Steps of collectives", 11.0, 1.5 + row_inches * len(phases)) as (figure, body):
        bandwidth, duration = body.subplots(1, 2, sharey=True)
        unit = _unit(table)
        for row, phase in enumerate(phases):
            _draw_phase(bandwidth, duration, table, phase, row, unit)
        _finish_steps(bandwidth, duration, levels, ideals, result.scale, unit)
        _label_rows(bandwidth, phases, row_inches)
        handles = _step_legend(levels, ideals)
        body.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


Unit = tuple[float, str]
"""Of bandwidths: how many bytes a second, and its name."""


def _unit(table: pd.DataFrame) -> Unit:
    fastest = (table["size_bytes"] / (table["ended_s"] - table["started_s"])).max()
    return (1e9, "GB/s") if fastest >= 1e9 else (1e6, "MB/s")


def _levels_of(table: pd.DataFrame, phase: Phase) -> list[str]:
    return present(table[table["phase"] == phase.name], "service_level", LEVEL_ORDER)


def _row_inches(table: pd.DataFrame, phases: list[Phase]) -> float:
    """Return how high a phase's row is: two lines of label and all its boxes; less, down to one line, if many are."""
    boxes = max(len(_levels_of(table, phase)) for phase in phases)
    return min(max(0.5, 0.35 * boxes), max(0.2 * boxes, _MOST_INCHES / len(phases)))


def _draw_phase(bandwidth: Axes, duration: Axes, table: pd.DataFrame, phase: Phase, row: int, unit: Unit) -> None:
    """Draw a phase's boxes, one a service level, within its row."""
    levels = _levels_of(table, phase)
    for number, level in enumerate(levels):
        at, width = row + (number - (len(levels) - 1) / 2) * 0.8 / len(levels), 0.6 / len(levels)
        taken, algbw = step_times(table, level, phase)
        _draw_box(bandwidth, algbw / unit[0], at, width, level, lambda value: f"{value:.3g} {unit[1]}")
        _draw_box(duration, taken, at, width, level, format_time)


def _draw_box(panel: Axes, values: Floats, at: float, width: float, level: str, text: Callable[[float], str]) -> None:
    colour = level_colour(level)
    panel.boxplot(
        [values], positions=[at], widths=width, orientation="horizontal", showfliers=False, manage_ticks=False,
        patch_artist=True, boxprops={"facecolor": colour, "alpha": 0.3, "edgecolor": colour},
        medianprops={"color": colour, "linewidth": 2}, whiskerprops={"color": colour}, capprops={"color": colour},
    )  # fmt: skip
    # Points are spread in a fixed pattern: the same result draws the same figure.
    spread = at + width * 0.35 * np.sin(np.arange(len(values)) * 2.4)
    panel.plot(values, spread, ".", color=colour, markersize=2.5, alpha=0.5)
    panel.annotate(
        text(float(np.median(values))), (float(values.max()), at), (6, 0), textcoords="offset points",
        va="center", fontsize=7, color=INK,
    )  # fmt: skip


def _finish_steps(
    bandwidth: Axes, duration: Axes, levels: list[str], ideals: dict[str, float], scale: float, unit: Unit
) -> None:
    bandwidth.set_xlabel(f"algbw = size / time, at each box its median ({unit[1]})")
    duration.set_xlabel("time per step, at each box its median")
    duration.xaxis.set_major_formatter(lambda value, _: format_time(value))
    for level in levels:
        if level in ideals:
            bandwidth.axvline(ideals[level] / unit[0], color=level_colour(level), linestyle="--", linewidth=1)
    for panel in (bandwidth, duration):
        panel.set_xlim(0, panel.get_xlim()[1] * 1.16)
        panel.grid(visible=False, axis="y")
    if scale != 1:
        top = bandwidth.secondary_xaxis("top", functions=times(scale * unit[0] / 1e9))
        top.set_xlabel(f"at true rates, times {scale:,.3g} (GB/s)")
        bandwidth.spines["top"].set_visible(True)


def _label_rows(panel: Axes, phases: list[Phase], row_inches: float) -> None:
    """Name each row; in low ones on one line and without the queueing, which the footer names."""
    if row_inches >= _TWO_LINES_INCHES:
        labels = [phase_label(phase, 30) for phase in phases]
    else:
        labels = [phase.title for phase in phases]
    panel.set_yticks(range(len(phases)), labels, fontsize=9 if row_inches >= _TWO_LINES_INCHES else 7.5)
    panel.set_ylim(len(phases) - 0.4, -0.6)


def _step_legend(levels: list[str], ideals: dict[str, float]) -> list[Line2D]:
    handles = [Line2D([], [], color=level_colour(level), linewidth=4, label=level) for level in levels]
    if any(level in ideals for level in levels):
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="ideal"))
    return handles
