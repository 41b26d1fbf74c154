"""The figure of the machine that emulated: whether it kept up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.figures.style import VERDICT_COLOURS, framed
from fabric.results import Phase, Result


@dataclass(frozen=True)
class _Panel:
    column: str
    label: str
    factor: float
    unit: str


_PANELS = (
    _Panel("cpu_busy_fraction", "CPU busy,\nall cores, %", 100, "%"),
    _Panel("switch_cpu_fraction", "switch thread,\none core, %", 100, "%"),
    _Panel("lateness_s", "lateness,\nms", 1e3, "ms"),
)


def machine(result: Result) -> Figure | None:
    """Return CPU use and scheduling lateness over time, with the limits that the verdict applies."""
    table = result.table("machine")
    if table.empty:
        return None
    limits = verdict_limits(result)
    drops = int(table["softnet_drops"].max() - table["softnet_drops"].min())
    title = f"The emulating machine ({drops:,} packets dropped by its network stack)"
    with framed(result, title, 11.0, 5.2) as (figure, body):
        axes = body.subplots(len(_PANELS), 1, sharex=True)
        for row, panel in zip(axes, _PANELS, strict=True):
            _draw(row, panel, table, limits.get(panel.column))
            _shade(row, result.phases)
        _name_phases(axes[0], result.phases)
        axes[-1].set_xlabel("time in the run, s")
    return figure


def verdict_limits(result: Result) -> dict[str, float]:
    """Return the limits of the ``machine`` columns that the verdict applied, if the manifest has them."""
    limits = result.verdict.get("limits") or result.manifest.get("limits") or {}
    return {str(column): float(limit) for column, limit in limits.items() if isinstance(limit, int | float)}


def _draw(row: Axes, panel: _Panel, table: Any, limit: float | None) -> None:
    row.plot(table["at_s"], table[panel.column] * panel.factor, color="#222222", linewidth=1)
    row.set_ylabel(panel.label, fontsize=8)
    top = float(table[panel.column].max()) * panel.factor
    if limit is not None:
        value = limit * panel.factor
        row.axhline(value, color=VERDICT_COLOURS["invalid"], linestyle="--", linewidth=1)
        row.annotate(
            f"limit {value:g} {panel.unit}", (1, value), (-2, 2), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", fontsize=7, color=VERDICT_COLOURS["invalid"],
        )  # fmt: skip
        top = max(top, value)
    row.set_ylim(0, top * 1.2 or 1)


def _shade(row: Axes, phases: list[Phase]) -> None:
    for number, phase in enumerate(phases):
        if number % 2 == 0:
            row.axvspan(phase.started_s, phase.ended_s, color="#0072B2", alpha=0.06, linewidth=0)


def _name_phases(row: Axes, phases: list[Phase]) -> None:
    for phase in phases:
        row.annotate(
            phase.name, ((phase.started_s + phase.ended_s) / 2, 1), (0, 3), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", fontsize=7, color="#0072B2",
        )  # fmt: skip
