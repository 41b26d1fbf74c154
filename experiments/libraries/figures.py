"""The figure of ``libraries``: rates, and times over theory, over sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from fabric.records.palette import GREY, INK, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import LINE_STYLES, framed
from fabric.results import Result
from fabric.units import format_size

_MARKERS = "osD^vPX*<>h"
_TITLES = {"allreduce": "allreduce", "transfer": "transfer, one way or read"}


def sizes(result: Result) -> Figure | None:
    """Return rates, and times over theory, by library over sizes, a row per operation."""
    found = result.summary.get("libraries", [])
    operations = list(dict.fromkeys(one["operation"] for one in found))
    if not operations:
        return None
    libraries = list(dict.fromkeys(one["library"] for one in found))
    with framed(result, "Libraries over sizes, beside theory", 9.6, 3.1 * len(operations) + 1.3) as (figure, body):
        panels = body.subplots(len(operations), 2, squeeze=False)
        for (rates, ratios), operation in zip(panels, operations, strict=True):
            rows = [one for one in found if one["operation"] == operation]
            _rates(rates, operation, rows, libraries)
            _ratios(ratios, operation, rows, libraries)
        handles: dict[str, Any] = {}
        for panel in panels.ravel():
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        body.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=7.5)
    return figure


def _style(place: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if rows[0]["is_own"]:
        return {"color": INK, "marker": ".", "linewidth": 2.0, "zorder": 4}
    return {
        "color": series(place),
        "marker": _MARKERS[place % len(_MARKERS)],
        "linestyle": LINE_STYLES[place % len(LINE_STYLES)],
        "markersize": 5,
        "markerfacecolor": "white",
        "linewidth": 1.2,
    }


def _each(rows: Sequence[Mapping[str, Any]], libraries: Sequence[str]) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Return the rows of each library that has some, by size, and how they are drawn."""
    found = []
    for place, name in enumerate(libraries):
        own = sorted((one for one in rows if one["library"] == name), key=lambda one: one["size_bytes"])
        if own:
            found.append((name, own, _style(place, own)))
    return found


def _rates(panel: Axes, operation: str, rows: Sequence[Mapping[str, Any]], libraries: Sequence[str]) -> None:
    for name, own, style in _each(rows, libraries):
        rates = [one["sent_bytes"] * 8 / one["time_s"] / 1e9 for one in own]
        panel.plot([one["size_bytes"] for one in own], rates, label=name, **style)
    ideal = sorted({(one["size_bytes"], one["sent_bytes"] * 8 / one["ideal_s"] / 1e9) for one in rows})
    highest = dict(ideal)
    panel.plot(list(highest), list(highest.values()), color=GREY, linestyle=(0, (6, 3)), linewidth=1, label="theory")
    panel.set_title(f"{_TITLES.get(operation, operation)}: rate")
    panel.set_ylabel("busbw (Gbit/s)")
    panel.set_ylim(bottom=0)
    _name_sizes(panel, rows)


def _ratios(panel: Axes, operation: str, rows: Sequence[Mapping[str, Any]], libraries: Sequence[str]) -> None:
    for name, own, style in _each(rows, libraries):
        ratios = [one["time_s"] / one["ideal_s"] for one in own]
        panel.plot([one["size_bytes"] for one in own], ratios, label=name, **style)
    panel.axhline(1, color=GREY, linestyle=(0, (6, 3)), linewidth=1)
    panel.set_yscale("log")
    panel.set_title(f"{_TITLES.get(operation, operation)}: time over theory")
    panel.set_ylabel("time over theory (times)")
    most = max(one["time_s"] / one["ideal_s"] for one in rows)
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= 1.3 * most]
    panel.set_yticks(ticks)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(0.9, 1.3 * max(most, 1.5))
    _name_sizes(panel, rows)


def _name_sizes(panel: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    panel.set_xscale("log", base=2)
    shown = sorted({one["size_bytes"] for one in rows})
    panel.set_xticks(shown, [format_size(size) for size in shown], fontsize=7)
    panel.set_xticks([], minor=True)


FIGURES = (
    FigureSpec(
        "sizes",
        "busbw, and time over theory, of an allreduce and of a transfer by each library over sizes. Dashed: theory, "
        "full TCP segments on an idle path.",
        sizes,
    ),
)
