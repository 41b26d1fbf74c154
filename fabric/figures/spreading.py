"""The figure of how far an incast's congestion spreads, and whom it slows, by routing policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fabric.figures.style import GREY, framed
from fabric.results import Result
from fabric.units import format_size

_COLOURS = ("#222222", "#0072B2", "#E69F00", "#56B4E9", "#777777")
_KIND_COLOURS = {"apart": "#009E73", "crossing": "#CC79A7"}
_BAR = 0.36
_PALE = 0.35


def spreading(result: Result) -> Figure | None:
    """Return congested ports by tier and slow-downs of bystanders, a group of bars a policy and queueing.

    It draws the summary's ``spreading``; None if there is none.
    """
    described = result.summary.get("spreading")
    if described is None:
        return None
    variants = described["variants"]
    width = max(10.0, 3.0 + 1.9 * len(variants))
    with framed(result, "How far an incast's congestion spreads, by routing policy", width, 4.2) as (figure, body):
        counts, slowdowns = body.subplots(1, 2)
        _draw_counts(counts, variants)
        limit = f"{format_size(described['backlog_bytes'])} waiting in > {described['share']:.0%} of samples"
        counts.set_title(
            f"Congested ports of switches (> {limit})\nleft, pale: bystanders alone; right: with the incast"
        )
        _draw_slowdowns(slowdowns, variants)
        slowdowns.set_title("Bystanders: times slower than alone\nbar: mean over pairs; dash: the slowest pair")
        for panel in (counts, slowdowns):
            panel.set_xticks(range(len(variants)), [f"{one['policy']}\n[{one['queueing']}]" for one in variants])
            panel.grid(visible=False, axis="x")
            panel.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3, fontsize=8)
    return figure


def _draw_counts(panel: Axes, variants: Sequence[Mapping[str, Any]]) -> None:
    colours = dict(zip(variants[0]["beside"], cycle(_COLOURS)))
    tiers = [tier for tier in colours if any(one["alone"][tier] or one["beside"][tier] for one in variants)]
    for phase, offset, alpha in (("alone", -_BAR / 2, _PALE), ("beside", _BAR / 2, 1.0)):
        bottoms = [0.0] * len(variants)
        places = [place + offset for place in range(len(variants))]
        for tier in tiers:
            heights = [float(one[phase][tier]) for one in variants]
            label = tier if phase == "beside" else None
            panel.bar(places, heights, _BAR, bottoms, color=colours[tier], alpha=alpha, label=label)
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        for place, total in enumerate(bottoms):
            panel.annotate(
                f"{total:.0f}", (place + offset, total), (0, 2), textcoords="offset points", ha="center", fontsize=8
            )
    panel.set_ylabel("ports")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_slowdowns(panel: Axes, variants: Sequence[Mapping[str, Any]]) -> None:
    for number, (kind, colour) in enumerate(_KIND_COLOURS.items()):
        found = [(place, one["slowdowns"][kind]) for place, one in enumerate(variants) if kind in one["slowdowns"]]
        if found:
            places = [place + (number - 0.5) * _BAR for place, _ in found]
            panel.bar(places, [one["slowdown"] for _, one in found], _BAR, color=colour, label=kind)
            worst = [one["worst_slowdown"] for _, one in found]
            panel.plot(places, worst, linestyle="", marker="_", markersize=16, markeredgewidth=2, color="#222222")
            for place, (_, one) in zip(places, found, strict=True):
                label = f"{one['slowdown']:.2f}"
                panel.annotate(
                    label, (place, 0), (0, 3), textcoords="offset points", ha="center", fontsize=8, color="white"
                )
    panel.axhline(1, color=GREY, linestyle="--", linewidth=1, label="as alone")
    panel.set_ylim(bottom=0)
