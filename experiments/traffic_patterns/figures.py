"""The figures of traffic patterns: how flows meet on leaves' uplinks, and what each delivers, beside theory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from controllers.planning.policies import POLICIES
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, JOB_COLOURS, framed
from fabric.results import Result

_COLOURS = {policy.name: colour for policy, colour in zip(POLICIES, cycle(JOB_COLOURS))}


def flows_on_uplinks(result: Result) -> Figure | None:
    """Return how many flows leaves' uplinks have, a panel per pattern; None if no leaf has an uplink."""
    rows = result.table("pattern_uplinks")
    if rows.empty:
        return None
    theory = result.summary.get("uplinks_in_theory", {})
    patterns = list(rows["pattern"].astype(str).unique())
    with framed(result, "Flows on an uplink of a leaf", 4.6 * len(patterns) + 0.4, 3.4) as (figure, body):
        for panel, pattern in zip(np.atleast_1d(body.subplots(1, len(patterns))), patterns, strict=True):
            for policy, of_policy in _by_policy(rows, pattern):
                counts = np.sort(of_policy["flows"].to_numpy())
                share = np.arange(1, len(counts) + 1) / len(counts)
                panel.step(counts, share, where="post", color=_COLOURS[policy], label=policy)
                if listed := theory.get(f"{pattern}_{policy}"):
                    _draw_theory(panel, np.array(listed), policy)
            panel.set_title(pattern.replace("_", "-"))
            panel.set_xlabel("flows on the uplink")
            panel.set_xlim(left=-0.2)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.set_ylim(0, 1.02)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0))
            panel.set_ylabel("share of uplinks with so many at most")
            panel.legend(loc="lower right")
    return figure


def _draw_theory(panel: Axes, listed: npt.NDArray[np.float64], policy: str) -> None:
    counts, shares = listed[:, 0], np.cumsum(listed[:, 1])
    likely = shares < 0.9999
    panel.plot(
        counts[likely], shares[likely], "o", markersize=3.5, fillstyle="none", color=_COLOURS[policy],
        label=f"{policy}, in theory",
    )  # fmt: skip


def goodputs(result: Result) -> Figure | None:
    """Return what flows deliver, from the slowest on, a panel per pattern; None if none was played."""
    rows = result.table("pattern_flows")
    if rows.empty:
        return None
    patterns = list(rows["pattern"].astype(str).unique())
    with framed(result, "What flows deliver", 4.6 * len(patterns) + 0.4, 3.4) as (figure, body):
        for panel, pattern in zip(np.atleast_1d(body.subplots(1, len(patterns))), patterns, strict=True):
            for policy, of_policy in _by_policy(rows, pattern):
                share = np.arange(1, len(of_policy) + 1) / len(of_policy)
                panel.step(share, np.sort(of_policy["goodput_bps"]), where="post", color=_COLOURS[policy], label=policy)
                panel.step(share, np.sort(of_policy["fair_bps"]), where="post", color=GREY, linestyle="--", linewidth=1)
            panel.plot([], [], color=GREY, linestyle="--", linewidth=1, label="in theory")
            panel.set_title(pattern.replace("_", "-"))
            panel.set_xlabel("flows, the slowest first")
            panel.xaxis.set_major_formatter(PercentFormatter(1.0))
            panel.set_ylabel("goodput of a flow")
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter(EngFormatter("bit/s"))
            panel.legend(loc="upper left")
    return figure


def _by_policy(rows: pd.DataFrame, pattern: str) -> Iterator[tuple[str, pd.DataFrame]]:
    of_pattern = rows[rows["pattern"] == pattern]
    for policy, of_policy in of_pattern.groupby("policy", sort=False, observed=True):
        yield str(policy), of_policy


FIGURES = (
    FigureSpec(
        "flows_on_uplinks",
        "How many flows of the pattern leaves' uplinks have: lines are what ports of connections and planned routes "
        "came to, circles what theory says of as many flows.",
        flows_on_uplinks,
    ),
    FigureSpec(
        "goodputs",
        "What each flow of the pattern delivers. Dashed: flows that share the links of the same paths max-min fairly.",
        goodputs,
    ),
)
