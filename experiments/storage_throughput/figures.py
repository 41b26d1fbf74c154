"""The figure of ``storage_throughput``: how busy each kind of link was, in the order in which a read's data passes."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.storage_throughput.summary import BESIDE_SHARE, ON_THE_WAY, PAPER_SHARE
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed
from fabric.results import Result

_WIDTH = 0.8


def links(result: Result) -> Figure | None:
    """Return bars of the mean link, with a line up to the busiest; None if the run has no samples of ports."""
    described = result.summary.get("storage_throughput")
    if not described or not all(one["uses"] for one in described["variants"]):
        return None
    variants = described["variants"]
    kinds = [use["kind"] for use in variants[0]["uses"] if use["kind"] in ON_THE_WAY]
    bar = _WIDTH / (len(variants) + 1)
    with framed(result, "Reads of all compute nodes: how busy links are", 9.0, 4.2) as (figure, body):
        panel = body.subplots()
        for number, one in enumerate(variants):
            colour = JOB_COLOURS[number % len(JOB_COLOURS)]
            shift = (number - (len(variants) - 1) / 2) * bar
            places = [place + shift for place in range(len(kinds) + 1)]
            uses = [use for use in one["uses"] if use["kind"] in kinds]
            means = [one["share"], *(use["mean"] for use in uses)]
            panel.bar(places, means, bar * 0.9, color=colour, label=one["title"])
            most = [use["most"] for use in uses]
            panel.vlines(places[1:], means[1:], most, color=GREY, linewidth=1.0)
            panel.plot(places[1:], most, "_", color=GREY, markersize=6)
        panel.hlines(
            PAPER_SHARE, -0.5, 0.5, "black", linestyle=":", linewidth=1.4, label="the paper's reads: 8 of 9 TB/s"
        )
        if described.get("is_beside"):
            panel.hlines(
                BESIDE_SHARE, -0.5, 0.5, GREY, linestyle="--", linewidth=1.4, label="3FS's, beside training: 81 %"
            )
        panel.set_xticks(range(len(kinds) + 1), ["reads, of the\nstorage NICs", *(_wrapped(kind) for kind in kinds)])
        panel.set_ylabel("share of the rate")
        panel.set_ylim(0, 1.05)
        panel.grid(visible=False, axis="x")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _wrapped(kind: str) -> str:
    return kind.replace(" to ", "\nto ")


FIGURES = (
    FigureSpec(
        "links",
        "What all compute nodes read, as a share of what the storage nodes' NICs have, and how busy each kind of link "
        "was: the mean link (bar) and the busiest (line), in the order in which a read's data passes them.",
        links,
    ),
)
