"""The figure of how costs grow: wall time and memory over hosts, rules, ranks and packets."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from fabric.records.palette import series_of
from fabric.report.figures.style import headed

_ROWS = (
    ("setup_s", "time until the first phase", "s"),
    ("phases_s", "time of the phases", "s"),
    ("memory_bytes", "memory", "B"),
)
_COLUMNS = (
    ("hosts", "number of hosts"),
    ("rules", "number of rules"),
    ("ranks", "number of ranks of a collective"),
    ("switched_packets", "number of packets switched"),
)
_MARKERS = "osD^v"


def growth(runs: pd.DataFrame) -> Figure:
    """Return a panel for each cost over each size; a line for each engine and experiment. Both axes are logarithmic;
    ``runs`` is a table as :func:`fabric.report.cost.costs` returns it."""
    kinds = list(runs.groupby(["engine", "experiment"], sort=False))
    names = [f"{experiment}, {engine}" for (engine, experiment), _ in kinds]
    colours = series_of(names)
    verdicts = ", ".join(f"{count} {name}" for name, count in runs["verdict"].value_counts().items())
    footer = [f"wall time; memory with what others took meanwhile. {len(runs)} runs: {verdicts}"]
    with headed("What runs cost", "wall time and memory over what was run", footer, 13.0, 7.6) as (figure, body):
        panels = body.subplots(len(_ROWS), len(_COLUMNS), sharex="col", sharey="row")
        for row, (cost, words, unit) in enumerate(_ROWS):
            for column, (size, of) in enumerate(_COLUMNS):
                panel = panels[row, column]
                for place, (name, (_, group)) in enumerate(zip(names, kinds, strict=True)):
                    look: dict[str, Any] = {
                        "label": name,
                        "color": colours[name],
                        "marker": _MARKERS[place % len(_MARKERS)],
                    }
                    _line(panel, group, size, cost, look)
                _scale(panel, unit)
                if row == len(_ROWS) - 1:
                    panel.set_xlabel(of)
            panels[row, 0].set_ylabel(words)
        body.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _line(panel: Axes, group: pd.DataFrame, size: str, cost: str, look: dict[str, Any]) -> None:
    rows = group[(group[size] > 0) & (group[cost] > 0)].sort_values([size, cost])
    panel.plot(rows[size], rows[cost], markersize=5, linewidth=1.3, **look)


def _scale(panel: Axes, unit: str) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # A panel may span less than two powers of ten.
    panel.yaxis.set_major_formatter(EngFormatter(unit=unit))
