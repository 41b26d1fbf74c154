"""The figure of mdtest: operations per second by the number of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result

_STEPS = (("file_create", "made"), ("file_stat", "looked at"), ("file_read", "read"), ("file_remove", "removed"))
_LINES = ("o-", "s--", "^:", "v-.")


def rates(result: Result) -> Figure | None:
    """Return a panel per step: files per second by processes, a line per store; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("mdtest", ())
    steps = [
        (step, words) for step, words in _STEPS if any(f"{step}.operations_per_s" in one["numbers"] for one in found)
    ]
    if not steps:
        return None
    stores = list(dict.fromkeys(one["store"] for one in found))
    with framed(result, "Files per second by number of processes", 2.6 * len(steps), 3.6) as (figure, body):
        panels = body.subplots(1, len(steps), squeeze=False, sharey=True)[0]
        for panel, (step, words) in zip(panels, steps, strict=True):
            _draw(panel, [one for one in found if f"{step}.operations_per_s" in one["numbers"]], step, stores)
            panel.set_title(words, fontsize=9)
        panels[0].set_ylabel("files per second")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(panel: Axes, found: Sequence[Mapping[str, Any]], step: str, stores: Sequence[str]) -> None:
    for place, store in enumerate(stores):
        points = [
            (one["processes"], one["numbers"][f"{step}.operations_per_s"]) for one in found if one["store"] == store
        ]
        if points:
            line = _LINES[place % len(_LINES)]
            panel.plot(*zip(*points, strict=True), line, color=f"C{place}", label=f"store {store}", markersize=4)
    counts = sorted({one["processes"] for one in found})
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.minorticks_off()
    panel.set_xlabel("processes")


FIGURES = (
    FigureSpec(
        "files_per_second",
        "Files made, looked at, read and removed per second, by the number of processes and the store's latencies.",
        rates,
    ),
)
