"""The figure of how busy the limits of nodes were in each phase."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed, heat_map
from fabric.results import Result
from runs.node_use import LIMITS, busiest

_DARK = 0.45
"""A share above which a cell of the heat map is so dark that its number is white."""


def limits_in_use(result: Result) -> Figure | None:
    """Return how busy each limit of the busiest node was, phase by phase; None if nodes are points."""
    rows = result.table("node_limits")
    if rows.empty:
        return None
    busy = busiest(rows)
    phases = [phase for phase in result.phases if any(name == phase.name for name, _ in busy)]
    names = [limit for limit in LIMITS if any(limit == found for _, found in busy)]
    values = np.array([[busy.get((phase.name, name), np.nan) for name in names] for phase in phases])
    height = 1.8 + 0.27 * len(phases)
    with framed(result, "How busy the limits of nodes were: the busiest node and GPU", 11.0, height) as (figure, body):
        panel = body.subplots()
        panel.imshow(values, cmap=heat_map(), vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        panel.set_yticks(range(len(phases)), [phase.title for phase in phases])
        panel.xaxis.tick_top()
        panel.grid(visible=False)
        panel.tick_params(length=0)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                shade = "white" if value > _DARK else "black"
                panel.text(column, row, f"{value:.0%}", ha="center", va="center", color=shade, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "limits_in_use",
        "What each limit of a node served in each phase, of what it could have: the busiest node and GPU. A limit that "
        "is near 100 % binds.",
        limits_in_use,
    ),
)
