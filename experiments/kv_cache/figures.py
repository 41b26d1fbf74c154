"""The figures of ``kv_cache``: the peak of one client, times to the first token, reads beside removals and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.kv_cache.summary import GIB, README_BPS
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed
from fabric.results import Result


def _described(result: Result, part: str) -> Sequence[Mapping[str, Any]]:
    described: Mapping[str, Any] = result.summary.get("kv_cache", {})
    found: Sequence[Mapping[str, Any]] = described.get(part, ())
    return found


def peak(result: Result) -> Figure | None:
    """Return what one client reads against the number of storage nodes, a line a depth; None without that study."""
    found = _described(result, "peaks")
    if not found:
        return None
    nic = result.summary["kv_cache"]["nic_Bps"] / GIB
    with framed(result, "One client of a KV cache: what it reads", 7.0, 3.8) as (figure, body):
        panel = body.subplots()
        for number, depth in enumerate(dict.fromkeys(one["depth"] for one in found)):
            points = [(one["servers"], one["read_Bps"] / GIB) for one in found if one["depth"] == depth]
            colour = JOB_COLOURS[number % len(JOB_COLOURS)]
            panel.plot(*zip(*points, strict=True), "o-", color=colour, label=f"depth {depth}")
        panel.axhline(nic, color=GREY, linestyle="--", linewidth=1.0, label="its NIC")
        if nic > README_BPS / GIB:
            panel.axhline(README_BPS / GIB, color="black", linestyle=":", linewidth=1.4, label="3FS's README")
        panel.set_xscale("log", base=2)
        counts = list(dict.fromkeys(one["servers"] for one in found))
        panel.set_xticks(counts, [str(count) for count in counts])
        panel.minorticks_off()
        panel.set_xlabel("storage nodes")
        panel.set_ylabel("GiB/s read")
        panel.set_ylim(0, 1.1 * nic)
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    return figure


def first_token(result: Result) -> Figure | None:
    """Return a point a request: its time to the first token with the cache over that without; None without requests
    that were answered."""
    found = [one for one in _described(result, "first_tokens") if one["with_s"]]
    if not found:
        return None
    with framed(result, "Time to the first token, with a cache and without", 7.0, 4.2) as (figure, body):
        panel = body.subplots()
        for number, one in enumerate(found):
            colour = JOB_COLOURS[number % len(JOB_COLOURS)]
            panel.scatter(one["without_s"], one["with_s"], s=14, color=colour, alpha=0.7, label=one["title"])
        ends = [0.8 * min(time for one in found for time in one["with_s"] if time > 0),
                1.25 * max(time for one in found for time in one["without_s"])]  # fmt: skip
        panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.0, label="nothing saved")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(0.8 * min(time for one in found for time in one["without_s"]), ends[1])
        panel.set_ylim(*ends)
        panel.set_xlabel("computing all of it, s")
        panel.set_ylabel("with the cache, s")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def removal(result: Result) -> Figure | None:
    """Return reads and removals over one axis of time; None without that study."""
    found = _described(result, "removal")
    if not found:
        return None
    one = found[0]
    ms = [1e3 * at_s for at_s in one["at_s"]]
    with framed(result, "Reads at their peak beside removals", 7.5, 4.4) as (figure, body):
        above, below = body.subplots(2, 1, sharex=True)
        above.stairs([rate / GIB for rate in one["in_Bps"]], ms, color=JOB_COLOURS[0], fill=True, alpha=0.6)
        above.axhline(README_BPS / GIB, color="black", linestyle=":", linewidth=1.4, label="3FS's README: 40 GiB/s")
        above.set_ylabel("GiB/s to the client")
        above.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.9)
        below.stairs([rate / 1e6 for rate in one["removals_per_s"]], ms, color=JOB_COLOURS[1], fill=True, alpha=0.6)
        below.set_ylabel("million removals\nof chunks per s")
        below.set_xlabel("ms since the load began")
        below.set_xlim(0, ms[-1])
    return figure


def beside_training(result: Result) -> Figure | None:
    """Return what reads and the allreduce keep of what each has alone; None without that study."""
    found = {one["phase"]: one for one in _described(result, "training")}
    reads, steps = found.get("training_reads_alone"), found.get("training_allreduce_alone")
    if reads is None or steps is None or not reads["read_Bps"] or not steps["algbw_Bps"]:
        return None
    both = [one for phase, one in found.items() if "together" in phase]
    with framed(result, "What reads and an allreduce on the same nodes keep", 7.0, 3.4) as (figure, body):
        panel = body.subplots()
        places = np.arange(len(both))
        for number, (key, alone, label) in enumerate(
            (("read_Bps", reads, "reads of the cache"), ("algbw_Bps", steps, "allreduce"))
        ):
            kept = [one[key] / alone[key] for one in both]
            bars = panel.bar(places + 0.36 * (number - 0.5), kept, 0.34, color=JOB_COLOURS[number], label=label)
            panel.bar_label(bars, [f"{value:.0%}" for value in kept], fontsize=8)
        panel.set_xticks(places, [one["title"].removeprefix("both, ") for one in both])
        panel.set_ylim(0, 1.15)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_ylabel("of what it has alone")
        panel.grid(visible=False, axis="x")
        body.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


FIGURES = (
    FigureSpec(
        "peak",
        "What one client of the cache reads from a number of storage nodes, with so many requests to them open at once "
        "(depth), beside its NIC and the peak in 3FS's README.",
        peak,
    ),
    FigureSpec(
        "first_token",
        "Each request's time to the first token with the cache, over what computing all of its input takes.",
        first_token,
    ),
    FigureSpec(
        "removal",
        "What one client reads and how many chunks are removed, on one axis of time, as 3FS's README has them in two "
        "figures.",
        removal,
    ),
    FigureSpec(
        "beside_training",
        "What the reads of all clients and an allreduce on the same nodes keep of what each has alone, by queueing.",
        beside_training,
    ),
)
