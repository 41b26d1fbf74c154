"""Which of its users' jobs held which node of a platform, and when nodes were out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.report.figures.style import framed, job_colours
from fabric.results import Result

Event = dict[str, Any]
_OUT_COLOUR = "#dddddd"
_NODES_SHOWN, _JOBS_NAMED = 64, 16


@dataclass(frozen=True)
class Held:
    """A node had a life of a job, or was out (no ``job``), in seconds of the phase. ``end``: how that ended, as the
    table of events has it; empty: the phase did not show it."""

    node: str
    job: str
    from_s: float
    until_s: float
    end: str


def spans(events: Sequence[Event], until_s: float) -> list[Held]:
    """Return who held each node when, by the events of a platform; what goes on ends at ``until_s``."""
    names = {row["number"]: row["why"] for row in events if row["event"] == "submitted"}
    found, begun = [], dict[tuple[str, int], tuple[str, float]]()
    told: dict[int, str] = {}
    for row in events:
        kind, life, at_s = row["event"], row["life"], row["at_s"]
        if kind in ("started", "node_out"):
            for node in row["nodes"].split():
                if not life and (node, life) in begun:
                    continue  # It is out already: a repair did not help, or it is a lemon.
                begun[node, life] = (names.get(row["number"], "") if life else "", at_s)
        elif kind in ("left", "finished", "node_back"):
            ended = [key for key in begun if key[1] == life and (life or key[0] == row["nodes"])]
            how = str(told.get(life, kind) if kind == "left" else kind)
            found += [Held(key[0], *begun.pop(key), at_s, how) for key in ended]
        elif kind in ("suspend", "restart", "cancel", "fail"):
            told[life] = kind
    found += [Held(node, job, from_s, until_s, "") for (node, _), (job, from_s) in begun.items()]
    return sorted(found, key=lambda one: (one.node, one.from_s))


def nodes_of_users_jobs(result: Result) -> Figure | None:
    """Return a row per node, with the jobs that had it; None without a platform."""
    events = result.table("platform_events")
    events = events[events["phase"] == "together"]
    jobs = result.table("jobs")
    jobs = jobs[(jobs["phase"] == "together") & jobs["job"].isin(events["job"].unique())]
    if events.empty or jobs.empty:
        return None
    held: list[Held] = []
    for name, own in events.astype({"event": str, "nodes": str, "why": str}).groupby("job", observed=True):
        began_s = float(jobs[jobs["job"] == name]["started_s"].min())
        rows: Any = own.assign(at_s=own["at_s"] - began_s).to_dict("records")
        held += spans(rows, float(jobs["ended_s"].max()) - began_s)
    if not held:
        return None
    nodes = sorted({one.node for one in held})
    shown = nodes[:_NODES_SHOWN]
    with framed(result, "Nodes of users' jobs", 9.0, 1.6 + 0.3 * len(shown)) as (figure, body):
        panel = body.subplots()
        colours = job_colours(list(dict.fromkeys(one.job for one in held if one.job)))
        # By the time of their first start, so that the legend is in that order; nodes that are out come last.
        for one in sorted(held, key=lambda one: (not one.job, one.from_s)):
            if one.node in shown:
                _draw(panel, shown.index(one.node), one, colours)
        panel.set_yticks(range(len(shown)), shown)
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(len(shown) - 0.4, -0.6)
        panel.set_xlim(left=0)
        panel.grid(visible=False, axis="y")
        left_out = f"      ({len(nodes) - len(shown)} more nodes not shown)" if len(nodes) > len(shown) else ""
        panel.set_xlabel(f"seconds since the platform's begin{left_out}")
        handles, labels = panel.get_legend_handles_labels()
        by_label = dict(list(dict(zip(labels, handles, strict=True)).items())[:_JOBS_NAMED])
        body.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=min(8, len(by_label)))
    return figure


def _draw(panel: Axes, row: int, one: Held, colours: dict[str, str]) -> None:
    colour, label = (colours[one.job], one.job) if one.job else (_OUT_COLOUR, "node is out")
    height = 0.7 if one.job else 0.9
    panel.barh(row, one.until_s - one.from_s, left=one.from_s, height=height, color=colour, label=label,
               edgecolor="white", linewidth=0.6, zorder=3 if one.job else 2)  # fmt: skip
    if one.job and one.end not in ("finished", ""):
        mark = {"suspend": "|", "restart": "x"}.get(one.end, "o")
        panel.plot(one.until_s, row, mark, color="black", markersize=16 if mark == "|" else 6,
                   markeredgewidth=2, zorder=4)  # fmt: skip
