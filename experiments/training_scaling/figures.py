"""The figure of training jobs that scale: efficiency by numbers of GPUs, published and here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, framed
from fabric.results import Result

_SERIES = (
    ("step_s", "schedule", "o-", "C0"),
    ("played_s", "in packets", "s", "C1"),
    ("nccl_s", "with NCCL", "^:", "C2"),
)


def scaling(result: Result) -> Figure | None:
    """Return a panel per case: efficiency by GPUs; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("scaling", ())
    if not found:
        return None
    with framed(result, "Efficiency by number of GPUs", 3.2 * len(found), 3.8) as (figure, body):
        panels = body.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for panel, case in zip(panels, found, strict=True):
            _draw(panel, case)
        panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panels[0].set_ylabel("of ideal, beside the smallest by the schedule")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(panel: Axes, case: Mapping[str, Any]) -> None:
    points = case["points"]
    for key, words, marker, colour in _SERIES:
        if shown := [*_efficiencies(case, key)]:
            panel.plot(*zip(*shown, strict=True), marker, color=colour, label=words, markersize=5, linewidth=1.2)
    known = [(point["gpus"], point["published_efficiency"]) for point in points if point["published_efficiency"]]
    if known:
        panel.plot(*zip(*known, strict=True), "x", color=GREY, label="published", markersize=8)
    gpus = [point["gpus"] for point in points]
    panel.set_xscale("log", base=2)
    panel.set_xticks(gpus, [str(count) for count in gpus])
    panel.minorticks_off()
    panel.set_title(case["case"], fontsize=9)
    panel.set_xlabel("GPUs")


def _efficiencies(case: Mapping[str, Any], key: str) -> Iterator[tuple[int, float]]:
    """Yield (GPUs, efficiency) of the points that have a time."""
    first = case["points"][0]
    for point in case["points"]:
        if point[key]:
            grown = point["gpus"] / first["gpus"] if case["is_strong"] else 1.0
            yield point["gpus"], first["step_s"] / point[key] / grown


FIGURES = (
    FigureSpec(
        "scaling",
        "Efficiency by number of GPUs: by the schedule, in packets, with NCCL in place of HFReduce, and published.",
        scaling,
    ),
)
