"""The figures of ``kv_cache`` that are of rows: times to the first token, and reads beside removals over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.kv_cache.peak import GIB, README_BPS
from fabric.records.palette import GREY, INK, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result


def _described(result: Result, part: str) -> Sequence[Mapping[str, Any]]:
    described: Mapping[str, Any] = result.summary.get("kv_cache", {})
    found: Sequence[Mapping[str, Any]] = described.get(part, ())
    return found


def first_token(result: Result) -> Figure | None:
    """Return a point a request: its time to the first token with the cache over that without; None without requests
    that were answered."""
    found = [one for one in _described(result, "first_tokens") if one["with_s"]]
    if not found:
        return None
    with framed(result, "Time to the first token, with a cache and without", 7.0, 4.2) as (figure, body):
        panel = body.subplots()
        for number, one in enumerate(found):
            colour = series(number)
            panel.scatter(one["without_s"], one["with_s"], s=14, color=colour, alpha=0.7, label=one["title"])
        ends = [0.8 * min(time for one in found for time in one["with_s"] if time > 0),
                1.25 * max(time for one in found for time in one["without_s"])]  # fmt: skip
        panel.plot(ends, ends, color=GREY, linestyle="--", linewidth=1.0, label="nothing saved")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(0.8 * min(time for one in found for time in one["without_s"]), ends[1])
        panel.set_ylim(*ends)
        panel.set_xlabel("time to the first token, computing all of it (s)")
        panel.set_ylabel("time to the first token, with the cache (s)")
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
        above.stairs([rate / GIB for rate in one["in_Bps"]], ms, color=series(0), fill=True, alpha=0.6)
        above.axhline(README_BPS / GIB, color=INK, linestyle=":", linewidth=1.4, label="3FS's README: 40 GiB/s")
        above.set_ylabel("to the client (GiB/s)")
        above.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.9)
        below.stairs([rate / 1e6 for rate in one["removals_per_s"]], ms, color=series(1), fill=True, alpha=0.6)
        below.set_ylabel("chunks removed\n(millions per s)")
        below.set_xlabel("time since the load began (ms)")
        below.set_xlim(0, ms[-1])
    return figure


FIGURES = (
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
)
