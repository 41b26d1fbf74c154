"""The figure of how far an incast's congestion spreads, and which flows it slows, by routing policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fabric.model.lanes import Queueing
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, framed
from fabric.results import Result
from fabric.units import format_size

_COLOURS = ("#222222", "#0072B2", "#E69F00", "#56B4E9", "#777777")
_KIND_COLOURS = {"apart": "#009E73", "crossing": "#CC79A7"}
_BAR = 0.36
_GAP = 0.6
_PALE = 0.35
_MOST_IN_HALF = 4
_COUNTED = "left, pale: bystanders alone; right: with the incast"
_SLOWED = "bar: mean over pairs; dash: the slowest pair"


@dataclass(frozen=True)
class _Layout:
    """Where each variant stands: policies side by side, and a gap wherever the queueing changes."""

    variants: Sequence[Mapping[str, Any]]
    places: Sequence[float]

    @classmethod
    def of(cls, variants: Sequence[Mapping[str, Any]]) -> _Layout:
        """Return the layout of variants that are sorted by queueing."""
        names = [one["queueing"] for one in variants]
        gaps = accumulate(float(name != before) for before, name in zip([names[0], *names], names, strict=False))
        return cls(variants, [number + _GAP * gap for number, gap in enumerate(gaps)])

    def label(self, panel: Axes) -> None:
        """Name the policy of each variant, and below them each queueing."""
        panel.set_xticks(self.places, [one["policy"] for one in self.variants])
        panel.tick_params(axis="x", length=0)
        panel.set_xlim(self.places[0] - _GAP, self.places[-1] + _GAP)
        for queueing in dict.fromkeys(one["queueing"] for one in self.variants):
            own = [place for place, one in zip(self.places, self.variants, strict=True) if one["queueing"] == queueing]
            panel.annotate(
                Queueing(queueing).words,
                (sum(own) / len(own), 0),
                (0, -19),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="top",
                fontweight="bold",
                fontsize=8.5,
            )


def spreading(result: Result) -> Figure | None:
    """Return congested ports by tier and slow-downs of bystanders, a group of bars a policy and queueing.

    It draws the summary's ``spreading``; None if there is none. With many variants the panels stand below each other.
    """
    described = result.summary.get("spreading")
    if described is None:
        return None
    layout = _Layout.of(described["variants"])
    is_long = len(layout.variants) > _MOST_IN_HALF
    between = ", " if is_long else "\n"
    width, height, shape = (11.0, 6.6, (2, 1)) if is_long else (10.0, 4.2, (1, 2))
    with framed(result, "How far an incast's congestion spreads, by routing policy", width, height) as (figure, body):
        counts, slowdowns = body.subplots(*shape)
        _draw_counts(counts, layout)
        limit = f"{format_size(described['backlog_bytes'])} waiting in > {described['share']:.0%} of samples"
        counts.set_title(f"Congested ports of switches (> {limit}){between}{_COUNTED}")
        _draw_slowdowns(slowdowns, layout)
        slowdowns.set_title(f"Bystanders: times slower than alone{between}{_SLOWED}")
        for panel in (counts, slowdowns):
            layout.label(panel)
            panel.grid(visible=False, axis="x")
            beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
            below = {"loc": "upper left", "bbox_to_anchor": (0, -0.16), "ncols": 3}
            panel.legend(fontsize=8, **(beside if is_long else below))
    return figure


def _draw_counts(panel: Axes, layout: _Layout) -> None:
    variants = layout.variants
    colours = dict(zip(variants[0]["beside"], cycle(_COLOURS)))
    tiers = [tier for tier in colours if any(one["alone"][tier] or one["beside"][tier] for one in variants)]
    for phase, offset, alpha in (("alone", -_BAR / 2, _PALE), ("beside", _BAR / 2, 1.0)):
        bottoms = [0.0] * len(variants)
        places = [place + offset for place in layout.places]
        for tier in tiers:
            heights = [float(one[phase][tier]) for one in variants]
            label = tier if phase == "beside" else None
            panel.bar(places, heights, _BAR, bottoms, color=colours[tier], alpha=alpha, label=label)
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        for place, total in zip(places, bottoms, strict=True):
            panel.annotate(f"{total:.0f}", (place, total), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    panel.set_ylabel("ports")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_slowdowns(panel: Axes, layout: _Layout) -> None:
    for number, (kind, colour) in enumerate(_KIND_COLOURS.items()):
        pairs = zip(layout.places, layout.variants, strict=True)
        found = [(place, one["slowdowns"][kind]) for place, one in pairs if kind in one["slowdowns"]]
        if found:
            places = [place + (number - 0.5) * _BAR for place, _ in found]
            panel.bar(places, [one["slowdown"] for _, one in found], _BAR, color=colour, label=kind)
            worst = [one["worst_slowdown"] for _, one in found]
            panel.plot(places, worst, linestyle="", marker="_", markersize=16, markeredgewidth=2, color="#222222")
            for place, (_, one) in zip(places, found, strict=True):
                label = f"{one['slowdown']:.2f}"
                panel.annotate(
                    label, (place, 0), (0, 3), textcoords="offset points", ha="center", fontsize=7, color="white"
                )
    panel.axhline(1, color=GREY, linestyle="--", linewidth=1, label="as alone")
    panel.set_ylim(bottom=0)


FIGURES = (
    FigureSpec(
        "spreading",
        "Ports of switches with deep queues, and slowdown of bystanders by an incast, by routing policy and queueing. "
        "Bystanders apart share no port with the incast by static routes; those crossing share an uplink of a leaf.",
        spreading,
    ),
)
