"""The figure of ``checkpoint_restore``: what a node restores per second, by what it reads and the limit."""

from __future__ import annotations

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import JOB_COLOURS, framed
from fabric.results import Result

_WIDTH = 0.8


def rates(result: Result) -> Figure | None:
    """Return bars of the median node's rate, with a mark for the slowest; a panel per queueing. None without any."""
    described = result.summary.get("checkpoint_restore")
    if not described or not described["groups"]:
        return None
    groups = described["groups"]
    with framed(result, "Restores by all nodes at once", 9.0, 4.2) as (figure, body):
        panels = body.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for panel, group in zip(panels, groups, strict=True):
            bars = group["bars"]
            parts = list(dict.fromkeys(bar["parts"] for bar in bars))
            limits = list(dict.fromkeys(bar["limit"] for bar in bars))
            width = _WIDTH / len(limits)
            for number, limit in enumerate(limits):
                mine = [bar for bar in bars if bar["limit"] == limit]
                places = [parts.index(bar["parts"]) + (number - (len(limits) - 1) / 2) * width for bar in mine]
                colour = JOB_COLOURS[number % len(JOB_COLOURS)]
                panel.bar(places, [bar["node_gibps"] for bar in mine], width * 0.9, color=colour, label=limit)
                slowest = [bar["slowest_gibps"] for bar in mine]
                panel.plot(
                    places, slowest, "_", color="black", markersize=12, label="" if number else "the slowest node"
                )
            panel.axhline(described["even_gibps"], color="black", linestyle=":", linewidth=1.4, label="NICs, evenly")
            panel.set_xticks(range(len(parts)), [part.replace(", ", ",\n") for part in parts])
            panel.set_title(group["title"])
            panel.grid(visible=False, axis="x")
        panels[0].set_ylabel("GiB/s a node")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "restores",
        "What a node restores per second while all do: the median node (bar) and the slowest (line), by what they read "
        "and how many reads may send to a client at once. Dotted: the storage nodes' NICs, divided evenly.",
        rates,
    ),
)
