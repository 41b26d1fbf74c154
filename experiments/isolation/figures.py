"""The experiment's figure: what each program keeps of its bandwidth alone, and who gets one port's link.

``isolation`` of a summary has ``port`` and ``rate_bps`` of its link; ``promised``, what part of a link the lane of each
service level has; ``phases`` (``name``, ``queueing``, ``other_load``: what other traffic offers, of each NIC);
``kept``, for each program its ``title``, what its lane ``promised`` and its ``values`` by phase (None: unknown), and
``got``: by phase, what part of the link each service level got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from fabric.model.lanes import Queueing
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, LEVEL_ORDER, QUEUEING_COLOURS, framed, level_colour
from fabric.results import Result
from fabric.units import format_rate

_WIDTH = 11.0
_LEAST_LABELLED = 0.045
"""What part of a link a service level must have for its number to fit into its bar."""
_BLACK = "#222222"
_TITLE = "What one shared queue costs, and what lanes keep"
Found = Mapping[str, Any]


def isolation(result: Result) -> Figure | None:
    """Return the figure; None if the run's summary does not tell of it."""
    found = result.summary.get("isolation")
    if not found:
        return None
    height = 1.7 + 0.34 * len(found["phases"])
    with framed(result, _TITLE, _WIDTH, height) as (figure, body):
        left, right = body.subfigures(1, 2, width_ratios=(0.47, 0.53), wspace=0.03)
        _draw_kept(left.subplots(), found)
        _draw_got(right.subplots(), found)
        queueings = list(dict.fromkeys(Queueing(phase["queueing"]) for phase in found["phases"]))
        left.legend(handles=_queueing_key(queueings), loc="outside lower center", ncols=min(3, len(queueings) + 1))
        right.legend(handles=_level_key(found), loc="outside lower center", ncols=len(found["promised"]))
    return figure


def _queueing_key(queueings: Sequence[Queueing]) -> list[Any]:
    bars = [Patch(color=QUEUEING_COLOURS[queueing], label=queueing.words) for queueing in queueings]
    return [*bars, Line2D([], [], color=_BLACK, linestyle="", marker="|", markersize=11, label="promised by its lane")]


def _level_key(found: Found) -> list[Patch]:
    return [Patch(color=level_colour(name), label=name) for name in LEVEL_ORDER if name in found["promised"]]


def _load(phase: Found) -> str:
    return f"others offer {phase['other_load']:.0%}"


def _draw_kept(axes: Axes, found: Found) -> None:
    """Draw a group of bars per load and program, a bar per queueing."""
    loads = list(dict.fromkeys(phase["other_load"] for phase in found["phases"]))
    ticks: list[tuple[float, str]] = []
    place = 0.0
    for load in reversed(loads):  # What shows most comes first.
        axes.text(0.012, place - 0.62, f"others offer {load:.0%} of each NIC", fontsize=8, color=GREY, va="center")
        for program in found["kept"]:
            numbers = [n for n, phase in enumerate(found["phases"]) if phase["other_load"] == load]
            ends = [_draw_bar(axes, place + 0.36 * n, found, program, number) for n, number in enumerate(numbers)]
            middle = (ends[0] + ends[-1]) / 2
            axes.plot([program["promised"]] * 2, [ends[0] - 0.25, ends[-1] + 0.25], color=_BLACK, linewidth=1.6)
            ticks.append((middle, program["title"]))
            place += 0.36 * len(numbers) + 0.3
        place += 0.85
    axes.set_yticks([at for at, _ in ticks], [title for _, title in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - 1.0, -1.0)
    axes.set_xlim(0, 1.12)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=False, axis="y")
    axes.set_title("Bandwidth kept, of that alone")


def _draw_bar(axes: Axes, place: float, found: Found, program: Found, number: int) -> float:
    value = program["values"][number]
    colour = QUEUEING_COLOURS[Queueing(found["phases"][number]["queueing"])]
    axes.barh(place, value or 0.0, color=colour, height=0.34)
    told = "unknown" if value is None else f"{value:.0%}"
    axes.annotate(told, (value or 0.0, place), (3, 0), textcoords="offset points", va="center", fontsize=7.5,
                  color=_BLACK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4}, zorder=4)  # fmt: skip
    return place


def _draw_got(axes: Axes, found: Found) -> None:
    """Draw a bar per phase, stacked by service level, above one of what lanes promise."""
    names = [name for name in LEVEL_ORDER if name in found["promised"]]
    phases = sorted(found["phases"], key=lambda phase: -phase["other_load"])
    rows = [(f"{Queueing(phase['queueing']).words},\n{_load(phase)}", found["got"][phase["name"]]) for phase in phases]
    rows.append(("promised\nin lanes", found["promised"]))
    for place, (_, parts) in enumerate(rows):
        left, is_promise = 0.0, place == len(rows) - 1
        for name in names:
            part = parts.get(name, 0.0)
            axes.barh(place, part, left=left, height=0.66, color=level_colour(name), edgecolor="white",
                      alpha=0.45 if is_promise else 1.0, linewidth=0.8)  # fmt: skip
            if part >= _LEAST_LABELLED:
                axes.text(left + part / 2, place, f"{part:.0%}", ha="center", va="center", fontsize=7.5,
                          color=_BLACK if is_promise else "white")  # fmt: skip
            left += part
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(visible=False)
    axes.set_title(f"Who gets the link of {found['port']} ({format_rate(found['rate_bps'])})")


FIGURES = (
    FigureSpec(
        "isolation",
        "Left: the bandwidth of each program with all others, over that alone; black: what its lane promises. Right: "
        "what each Service Level got of one port's link, by DSCP, while all of the load played.",
        isolation,
    ),
)
