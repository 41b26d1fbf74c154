"""The figure of a NIC's failure: the bandwidth of each step over time."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.nic_failover.run import CUT, WHOLE
from fabric.records.palette import FAILURE, GREY, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result
from traffic.collectives.bandwidth import with_bandwidths

_LOOKS = {WHOLE: (series(0), "all links"), CUT: (FAILURE, "a NIC's link is cut")}


def steps_over_time(result: Result) -> Figure | None:
    """Return a line per step of both phases, at its busbw; None if no step ended."""
    steps = with_bandwidths(result.table("steps"))
    if not len(steps):
        return None
    began_s = float(steps["started_s"].min())
    with framed(result, "Bandwidth of the allreduce, step by step", 9.0, 3.2) as (figure, body):
        panel = body.subplots()
        for phase, rows in steps.groupby("phase", sort=False, observed=True):
            colour, label = _LOOKS[str(phase)]
            times = (rows["started_s"] - began_s, rows["ended_s"] - began_s)
            panel.hlines(rows["busbw"] / 1e6, *times, color=colour, linewidth=2.5, label=label)
        cut_s = result.summary.get("cut_s")
        if cut_s is not None and cut_s == cut_s:
            panel.axvline(cut_s - began_s, color=GREY, linestyle="--", linewidth=1)
            panel.annotate("cut", (cut_s - began_s, 1), (3, -2), xycoords=("data", "axes fraction"),
                           textcoords="offset points", va="top", fontsize=8, color=GREY)  # fmt: skip
        panel.set_ylim(0, 1.1 * float(steps["busbw"].max()) / 1e6)
        panel.set_xlabel("time (s)")
        panel.set_ylabel("busbw (MB/s)")
        panel.legend(loc="lower right")
    return figure


FIGURES = [
    FigureSpec(
        "bandwidth_steps",
        "A line per step, at its busbw; a gap is a step that stalled, and the time until the job had begun again.",
        steps_over_time,
    )
]
