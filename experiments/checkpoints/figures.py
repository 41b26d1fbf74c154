"""The figure of ``checkpoints`` that is of rows: steps of training over time, and the checkpoints that they meet."""

from __future__ import annotations

from matplotlib.figure import Figure

from cluster.checkpoints.job import WRITE
from cluster.checkpoints.losses import spans
from experiments.checkpoints.beside import STEP_S, Beside
from fabric.model.lanes import Queueing
from fabric.records.palette import INK, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed, known
from fabric.results import Result


def steps(result: Result) -> Figure | None:
    """Return how long each step took, a panel per queueing, with checkpoints shaded; None without any."""
    phases = [one for one in result.phases if one.name == Beside(Queueing(one.queueing)).name]
    rows, writes = result.table("work_steps"), result.table("checkpoints")
    if not phases:
        return None
    writes = writes[writes["operation"].astype(str) == WRITE]
    with framed(result, "Steps of training beside checkpoints", 9.0, 1.4 + 1.9 * len(phases)) as (figure, body):
        panels = body.subplots(len(phases), 1, squeeze=False, sharey=True)[:, 0]
        for panel, phase in zip(panels, phases, strict=True):
            played, written = (spans(table[table["phase"] == phase.name]) for table in (rows, writes))
            first = min((start for start, _ in played), default=0.0)
            for number, (since, until) in enumerate(written):
                panel.axvspan(1e3 * (since - first), 1e3 * (until - first), color=series(4), alpha=0.35, lw=0,
                              label="" if number else "a checkpoint, until its index is there")  # fmt: skip
            places = [1e3 * (start - first) for start, _ in played]
            widths = [1e3 * (end - start) for start, end in played]
            panel.bar(places, widths, widths, align="edge", color=series(1), edgecolor="white", linewidth=0.6,
                      label="a step")  # fmt: skip
            alone_s = known(result.summary["metrics"].get(f"{phase.name}.{STEP_S}"))
            panel.axhline(1e3 * alone_s, color=INK, linestyle=":", linewidth=1.2, label="alone")
            panel.set_title(Queueing(phase.queueing).words)
            panel.set_ylabel("time of a step (ms)")
            panel.grid(visible=False, axis="x")
        panels[-1].set_xlabel("time since the first step (ms)")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "checkpoint_steps",
        "How long steps of training take while the same nodes write checkpoints (shaded), by queueing; dotted: the "
        "median step alone.",
        steps,
    ),
)
