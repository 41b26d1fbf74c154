"""Figures of ``checkpoints``: what nodes write per second beside closed forms, and steps that meet checkpoints."""

from __future__ import annotations

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed, known
from fabric.results import Result

_WANTED_GIBPS = 10


def rates(result: Result) -> Figure | None:
    """Return a bar per setup with its closed form; None without any."""
    found = (result.summary.get("checkpoints") or {}).get("alone")
    if not found:
        return None
    with framed(result, "Checkpoints alone: what a node writes", 9.0, 4.0) as (figure, body):
        panel = body.subplots()
        places = range(len(found))
        panel.bar(places, [one["node_gibps"] for one in found], 0.6, color=JOB_COLOURS[0], label="the median node")
        panel.plot(places, [one["slowest_gibps"] for one in found], "_", color="black", markersize=22,
                   label="the slowest")  # fmt: skip
        panel.plot(places, [one["bound_gibps"] for one in found], "D", color=JOB_COLOURS[5], markersize=6,
                   label="by closed form")  # fmt: skip
        scaled = "" if result.scale == 1 else f" over the scale of {result.scale:,.6g}"
        panel.axhline(_WANTED_GIBPS / result.scale, color=GREY, linestyle="--", linewidth=1.2,
                      label=f"10 GiB/s, the paper's least{scaled}")  # fmt: skip
        names = [
            f"{one['writers']} nodes\n{one['replicas']} replica{'' if one['replicas'] == 1 else 's'}" for one in found
        ]
        panel.set_xticks(places, names)
        panel.set_ylabel("GiB/s a node")
        panel.set_ylim(bottom=0)
        panel.grid(visible=False, axis="x")
        body.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def steps(result: Result) -> Figure | None:
    """Return how long each step took, a panel per queueing, with checkpoints shaded; None without any."""
    found = (result.summary.get("checkpoints") or {}).get("beside")
    if not found:
        return None
    with framed(result, "Steps of training beside checkpoints", 9.0, 1.4 + 1.9 * len(found)) as (figure, body):
        panels = body.subplots(len(found), 1, squeeze=False, sharey=True)[:, 0]
        for panel, one in zip(panels, found, strict=True):
            first = min((begin for begin, _ in one["steps"]), default=0.0)
            for number, (since, until) in enumerate(one["written"]):
                panel.axvspan(1e3 * (since - first), 1e3 * (until - first), color=JOB_COLOURS[4], alpha=0.35, lw=0,
                              label="" if number else "a checkpoint, until its index is there")  # fmt: skip
            places = [1e3 * (begin - first) for begin, _ in one["steps"]]
            widths = [1e3 * (end - begin) for begin, end in one["steps"]]
            panel.bar(places, widths, widths, align="edge", color=JOB_COLOURS[1], edgecolor="white", linewidth=0.6,
                      label="a step")  # fmt: skip
            panel.axhline(1e3 * known(one["step_s"]), color="black", linestyle=":", linewidth=1.2, label="alone")
            panel.set_title(one["title"])
            panel.set_ylabel("a step takes, ms")
            panel.grid(visible=False, axis="x")
        panels[-1].set_xlabel("ms since the first step")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "checkpoint_rates",
        "What a node writes per second while all do, until all replicas have it: the median node and the slowest, by "
        "how many nodes write and to how many replicas; diamonds: what NICs allow by closed form.",
        rates,
    ),
    FigureSpec(
        "checkpoint_steps",
        "How long steps of training take while the same nodes write checkpoints (shaded), by queueing; dotted: the "
        "median step alone.",
        steps,
    ),
)
