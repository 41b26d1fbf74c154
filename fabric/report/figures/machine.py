"""The figure of the machine that emulated: whether it kept up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.records.palette import INK, VERDICTS
from fabric.report.figures.style import framed
from fabric.results import Phase, Result


@dataclass(frozen=True)
class _Panel:
    column: str
    label: str
    factor: float
    unit: str


_PANELS = (
    _Panel("cpu_busy_fraction", "CPU busy, all\ncores (%)", 100, "%"),
    _Panel("switch_cpu_fraction", "switch thread,\none core (%)", 100, "%"),
    _Panel("lateness_s", "lateness of\nswitches (ms)", 1e3, "ms"),
    _Panel("host_lateness_s", "lateness, worst\nof hosts (ms)", 1e3, "ms"),
)
_CHECKS = {
    "cpu_busy_fraction": "cpu_busy_fraction",
    "switch_cpu_fraction": "switch_cpu_fraction",
    "lateness_s": "lateness_p99_s",
    "host_lateness_s": "host_lateness_p99_s",
}
_ROOM_FOR_LIMITS = 4


def machine(result: Result) -> Figure | None:
    """Return CPU use and scheduling lateness over time, with the limits that the verdict applies; without a panel for
    what was always 0 and is not judged, as CPU time is in virtual time."""
    table = result.table("machine")
    if table.empty:
        return None
    limits = verdict_limits(result.verdict)
    drops = int(table["softnet_drops"].max() - table["softnet_drops"].min())
    title = f"The emulating machine ({drops:,} packets dropped by its network stack)"
    panels = [one for one in _PANELS if one.column in limits or (table[one.column] != 0).any()] or [*_PANELS]
    with framed(result, title, 11.0, 1.0 + 1.05 * len(panels)) as (figure, body):
        axes = body.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for row, panel in zip(axes, panels, strict=True):
            row.margins(x=0)
            _draw(row, panel, table)
            _draw_limits(row, panel, limits.get(panel.column, {}))
            _shade(row, result.phases)
        _name_phases(axes[0], result.phases)
        axes[-1].set_xlabel("time in the run (s)")
    return figure


def verdict_limits(verdict: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the two limits of each ``machine`` column that a verdict's checks applied, by what lies beyond them."""
    checks = {check["name"]: check for check in verdict.get("checks", [])}
    return {
        column: {"degraded": float(checks[name]["faithful_up_to"]), "invalid": float(checks[name]["invalid_beyond"])}
        for column, name in _CHECKS.items()
        if name in checks
    }


def _draw(row: Axes, panel: _Panel, table: pd.DataFrame) -> None:
    row.plot(table["at_s"], table[panel.column] * panel.factor, color=INK, linewidth=1)
    row.set_ylabel(panel.label, fontsize=8)
    row.set_ylim(0, float(table[panel.column].max()) * panel.factor * 1.25 or 1)


def _draw_limits(row: Axes, panel: _Panel, limits: Mapping[str, float]) -> None:
    """Draw the limits that are near enough to leave the measured line readable; those of fractions always are."""
    room = 100 if panel.unit == "%" else _ROOM_FOR_LIMITS * row.get_ylim()[1]
    for status, limit in limits.items():
        value = limit * panel.factor
        if value > room:
            continue
        row.set_ylim(0, max(row.get_ylim()[1], value * 1.25))
        row.axhline(value, color=VERDICTS[status], linestyle="--", linewidth=1)
        # One label above its line, the other below: the limits of a fraction lie close together.
        row.annotate(
            f"{status} beyond {value:g} {panel.unit}", (1, value), (-2, 2 if status == "invalid" else -9),
            xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", fontsize=7,
            color=VERDICTS[status],
        )  # fmt: skip


def _shade(row: Axes, phases: list[Phase]) -> None:
    for number, phase in enumerate(phases):
        if number % 2 == 0:
            row.axvspan(phase.started_s, phase.ended_s, color=INK, alpha=0.06, linewidth=0)


def _name_phases(row: Axes, phases: list[Phase]) -> None:
    for phase in phases:
        row.annotate(
            phase.name, ((phase.started_s + phase.ended_s) / 2, 1), (0, 3), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", fontsize=7, color=INK,
        )  # fmt: skip
