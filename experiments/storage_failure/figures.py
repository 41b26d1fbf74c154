"""The figure of a storage node that fails: the states of chains' targets over time, and what happened when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fabric.model.identity import node_of_part
from fabric.records.palette import FAILURE, GREY, LANES, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result

STATE_COLOURS = {
    "serving": LANES["storage"],
    "lastsrv": series(5),
    "syncing": series(3),
    "waiting": series(4),
    "offline": FAILURE,
}
_MOST_ROWS = 24
_FAILED_COLOUR = FAILURE
_FAILURES = ("it fails", "the primary dies", "the primary stops")


def chain_states(result: Result) -> Figure | None:
    """Return the states of targets over time, a panel a phase, a row a target of a chain, the failing node's first;
    None if nothing was looked at."""
    described = result.summary.get("failed_nodes")
    changes = result.table("chain_changes")
    if not described or changes.empty:
        return None
    phases: list[Mapping[str, Any]] = described
    rows = {one["phase"]: _rows(changes[changes["phase"] == one["phase"]], one["node"]) for one in phases}
    height = sum(0.9 + 0.14 * len(found) for found in rows.values()) + 0.4
    with framed(result, "Targets of chains around the failure of a storage node", 9.5, height) as (figure, body):
        ratios = [len(found) + 4 for found in rows.values()]
        panels = body.subplots(len(phases), 1, squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        for panel, one in zip(panels, phases, strict=True):
            _draw(panel, changes[changes["phase"] == one["phase"]], rows[one["phase"]], one)
        panels[-1].set_xlabel("time since the storage node failed (s)")
        handles = [Patch(color=colour, label=state) for state, colour in STATE_COLOURS.items()]
        body.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure


def _rows(changes: pd.DataFrame, node: str) -> list[tuple[int, str]]:
    """Return the targets to draw, by chain: those of the node first; only these if all are too many."""
    found = sorted(
        {(int(chain), str(target)) for chain, target in zip(changes["chain"], changes["target"], strict=True)}
    )
    own = [one for one in found if node_of_part(one[1]) == node]
    others = [one for one in found if one not in own]
    return (own + others if len(found) <= _MOST_ROWS else own)[:_MOST_ROWS]


def _draw(panel: Axes, changes: pd.DataFrame, rows: Sequence[tuple[int, str]], described: Mapping[str, Any]) -> None:
    failed_s, until_s = described["failed_s"], described["ended_s"]
    for place, (chain, target) in enumerate(rows):
        own = changes[(changes["chain"] == chain) & (changes["target"].astype(str) == target)].sort_values("version")
        times = [max(float(at), described["began_s"]) - failed_s for at in own["at_s"]]
        ends = [*times[1:], until_s - failed_s]
        for begin, end, state in zip(times, ends, own["state"].astype(str), strict=True):
            panel.barh(place, end - begin, left=begin, height=0.72, color=STATE_COLOURS[state], linewidth=0)
    panel.set_yticks(range(len(rows)), [f"chain {chain}, {target}" for chain, target in rows], fontsize=6)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")
    panel.set_title(f"{described['phase']} of {described['node']}", pad=22)
    marks = {"it fails": failed_s, "it is back": described["back_s"], **described["primary"]}
    there = sorted((at_s, name) for name, at_s in marks.items() if at_s is not None)
    for turn, (at_s, name) in enumerate(there):
        panel.axvline(at_s - failed_s, color=_FAILED_COLOUR if name in _FAILURES else GREY, linewidth=1)
        panel.annotate(
            name, (at_s - failed_s, 1), (2, 2 + 9 * (turn % 2)), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=7, color=GREY,
        )  # fmt: skip


FIGURES = (
    FigureSpec(
        "chain_states",
        "States of the targets of each chain, as the cluster manager has them, from when it changed them; lines: when "
        "the storage node failed and came back, and what happened to the primary of several managers.",
        chain_states,
    ),
)
