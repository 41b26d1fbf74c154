"""The figure of ``graysort``: how long the paper's data would take, by phase, beside the published time."""

from __future__ import annotations

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import JOB_COLOURS, framed, known
from fabric.results import Result

_PARTS = (
    ("apart_s", "taking the data apart", JOB_COLOURS[0]),
    ("sort_s", "sorting partitions", JOB_COLOURS[1]),
)


def times(result: Result) -> Figure | None:
    """Return a bar per variant; None if there is nothing to draw."""
    described = result.summary.get("graysort")
    if not described or not described["bars"]:
        return None
    bars = described["bars"]
    with framed(result, "GraySort's shape: time for 110.5 TiB on 50 nodes", 9.0, 3.6) as (figure, body):
        panel = body.subplots()
        places = range(len(bars))
        left = [0.0] * len(bars)
        for key, label, colour in _PARTS:
            widths = [known(bar[key]) for bar in bars]
            panel.barh(places, widths, 0.6, left=left, color=colour, label=label)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        least = [known(bar["least_s"]) for bar in bars]
        panel.plot(least, places, "|", color="black", markersize=22, markeredgewidth=1.8, label="NICs at their rate")
        panel.axvline(described["paper_s"], color="black", linestyle=":", linewidth=1.4, label="published")
        panel.set_yticks(places, [bar["title"].replace(", ", ",\n") for bar in bars])
        panel.invert_yaxis()
        panel.set_xlabel("s")
        panel.grid(visible=False, axis="y")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "sort_times",
        "How long GraySort's 110.5 TiB would take on 50 nodes at the time per byte that was measured, by phase: "
        "without computing, and with the time of the published run. Lines: the fuller NICs at their rate.",
        times,
    ),
)
