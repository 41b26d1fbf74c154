"""The figure of training jobs that scale: steps by numbers of GPUs, published and here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, framed
from fabric.results import Result


def scaling(result: Result) -> Figure | None:
    """Return a panel per case: time of a step by GPUs; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("scaling", ())
    if not found:
        return None
    with framed(result, "Time of a step by number of GPUs", 3.2 * len(found), 3.6) as (figure, body):
        for panel, case in zip(body.subplots(1, len(found), squeeze=False)[0], found, strict=True):
            gpus = [point["gpus"] for point in case["points"]]
            for key, words, marker in (
                ("step_s", "schedule", "o-"),
                ("played_s", "in packets", "s"),
                ("nccl_s", "with NCCL", "^:"),
            ):
                shown = [(count, point[key]) for count, point in zip(gpus, case["points"], strict=True) if point[key]]
                if shown:
                    panel.plot(*zip(*shown, strict=True), marker, label=words, markersize=5, linewidth=1.2)
            known = [
                (count, p["published_s"]) for count, p in zip(gpus, case["points"], strict=True) if p["published_s"]
            ]
            if known:
                panel.plot(*zip(*known, strict=True), "x", color=GREY, label="published", markersize=8)
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(gpus, [str(count) for count in gpus])
            panel.minorticks_off()
            panel.set_title(case["case"], fontsize=9)
            panel.set_xlabel("GPUs")
        body.axes[0].set_ylabel("step, s")
        body.axes[0].legend(fontsize=7.5)
    return figure


FIGURES = (FigureSpec("scaling", "Time of a step by number of GPUs: published, and put together here.", scaling),)
