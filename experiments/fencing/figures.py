"""The figure of ``fencing``: when each client read stale data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.fencing.summary import PLACES
from fabric.records.palette import FAILURE, GREY, INK, PALE
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result

_STALE, _BLACK = FAILURE, INK
Found = Mapping[str, Any]


def stale_reads(result: Result) -> Figure | None:
    """Return a panel per fence, a line per client, from when the tail was forgotten; None if nobody forgot it."""
    found = result.summary.get("fencing")
    table = result.table("stale_windows")
    if table.empty:
        return None
    rows: list[dict[Any, Any]] = table[table["forgotten_s"].notna()].to_dict("records")
    if not found or not rows:
        return None
    fences = list(dict.fromkeys(row["fence"] for row in rows))
    most = max(sum(row["fence"] == fence for row in rows) for fence in fences)
    with framed(result, "Stale reads from a tail that was forgotten", 9.5, 1.4 + 0.16 * most) as (figure, body):
        panels = body.subplots(1, len(fences), squeeze=False, sharex=True)[0]
        for panel, fence in zip(panels, fences, strict=True):
            _draw(panel, fence, [row for row in rows if row["fence"] == fence], found["polled_every_s"])
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw(panel: Axes, fence: str, rows: Sequence[Found], polled_every_s: float) -> None:
    ordered = sorted(rows, key=lambda row: (list(PLACES).index(row["place"]), row["phase"], row["host"]))
    told: set[str] = set()
    for place, row in enumerate(ordered):
        ends_s = row["halted_s"] - row["forgotten_s"]
        panel.plot([0, ends_s], [place, place], color=PALE, linewidth=3, solid_capstyle="butt")
        if row["stale"]:
            label = "" if "stale" in told else "first to last stale read of a client"
            told.add("stale")
            span = [row[name] - row["forgotten_s"] for name in ("first_s", "last_s")]
            panel.plot(
                span,
                [place, place],
                color=_STALE,
                linewidth=3,
                solid_capstyle="butt",
                label=label,
                marker="|",
                markersize=5,
            )
    label = f"{polled_every_s:g} s later: all who hear the manager have asked it"
    panel.axvline(polled_every_s, color=_BLACK, linewidth=0.9, linestyle=":", label=label)
    groups = [name for name in PLACES if any(row["place"] == name for row in ordered)]
    middles = [
        sum(place for place, row in enumerate(ordered) if row["place"] == name)
        / sum(row["place"] == name for row in ordered)
        for name in groups
    ]
    panel.set_yticks(middles, [textwrap.fill(PLACES[name], 12) for name in groups])
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel("time since the tail was forgotten (s)")
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    counted = sum(row["stale"] for row in ordered), sum(row["reads"] for row in ordered)
    panel.set_title(f"fence: {fence}; {counted[0]} of {counted[1]} reads stale", color=_BLACK if counted[0] else GREY)


FIGURES = (
    FigureSpec(
        "stale_reads",
        "A line per client and repetition, from when the cluster manager had forgotten the tail until the load ended; "
        "on it the time from the client's first stale read to its last one.",
        stale_reads,
    ),
)
