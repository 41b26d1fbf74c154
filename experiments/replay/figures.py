"""The figure of a replay: how long flows took, beside theory."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from fabric.records.palette import GREY, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result


def completion_times(result: Result) -> Figure | None:
    """Return the distribution of flow completion times, and each flow beside theory; None if nothing was replayed."""
    rows = result.table("replayed")
    if rows.empty:
        return None
    took, theory = rows["took_s"].to_numpy(), rows["theory_s"].to_numpy()
    with framed(result, "Flow completion times", 9.0, 3.4) as (figure, body):
        left, right = body.subplots(1, 2)
        share = np.arange(1, len(rows) + 1) / len(rows)
        left.step(np.sort(took), share, where="post", color=series(0), label="measured")
        left.step(np.sort(theory), share, where="post", color=GREY, linestyle="--", label="theory")
        left.set_ylabel("share of flows (fraction)")
        left.set_ylim(0, 1.02)
        left.legend(loc="upper left")
        right.plot(theory, took, "o", color=series(0), markersize=4, alpha=0.6)
        most = 1.05 * max(took.max(), theory.max())
        right.plot([0, most], [0, most], color=GREY, linestyle="--", linewidth=1)
        right.set_ylabel("measured")
        right.set_ylim(0, most)
        right.yaxis.set_major_formatter(EngFormatter("s"))
        for axes, name in ((left, "flow completion time"), (right, "theory")):
            axes.set_xlabel(name)
            axes.set_xlim(0, most)
            axes.xaxis.set_major_formatter(EngFormatter("s"))
    return figure


FIGURES = (
    FigureSpec(
        "completion_times",
        "How long the flows of the workload file took, from start to last byte. Dashed: fluids that share the links of "
        "the same paths max-min fairly; on the right, a flow on the dashed line took as long as in theory.",
        completion_times,
    ),
)
