"""The figure of ``data_loader``: what an epoch is made of, by how far ahead batches are asked for."""

from __future__ import annotations

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed, known
from fabric.results import Result

_PARTS = (
    ("computing_s", "computing", JOB_COLOURS[2]),
    ("first_wait_s", "waiting for the first batch", JOB_COLOURS[1]),
    ("later_wait_s", "waiting for later ones", JOB_COLOURS[5]),
)


def epochs(result: Result) -> Figure | None:
    """Return stacked bars of an epoch's parts, a panel per group of variants; None if there is nothing to draw."""
    described = result.summary.get("data_loader")
    if not described or not described["groups"]:
        return None
    groups = described["groups"]
    with framed(result, "Epochs: computing and waiting for data", 9.0, 4.2) as (figure, body):
        panels = body.subplots(1, len(groups), squeeze=False)[0]
        for panel, group in zip(panels, groups, strict=True):
            bars = group["bars"]
            places = range(len(bars))
            below = [0.0] * len(bars)
            for key, label, colour in _PARTS:
                heights = [1e3 * max(known(bar[key]), 0.0) for bar in bars]
                panel.bar(places, heights, 0.7, bottom=below, color=colour, label=label)
                below = [low + height for low, height in zip(below, heights, strict=True)]
            ideals = [1e3 * known(bar["ideal_s"]) for bar in bars]
            panel.plot(places, ideals, "_", color=GREY, markersize=26, markeredgewidth=1.6, label="at an even rate")
            panel.set_xticks(places, [str(bar["prefetch"]) for bar in bars])
            panel.set_xlabel("batches asked for ahead")
            panel.set_title(group["title"].replace(", ", ",\n", 1), fontsize=8)
            panel.grid(visible=False, axis="x")
        panels[0].set_ylabel("a reader's epoch, ms")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "epochs",
        "What a reader's epoch is made of, the mean over readers: computing, waiting for the first batch, waiting for "
        "later ones; by how many batches are asked for ahead. Lines: an epoch if batches came at an even rate.",
        epochs,
    ),
)
