"""A cluster's day on one time axis: who has which node, who runs and waits, what fails and is mended, and storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cluster.tasks import Priority
from experiments.shared_cluster.day_data import (
    Fault,
    Repair,
    Steps,
    degraded_chains,
    faults_of,
    repairs_of,
    resync_rate,
)
from fabric.metrics import unit_of
from fabric.records.palette import FAILURE, GREY, INK, LANES, PALE, series, series_of
from fabric.report.figures.style import HALO, framed
from fabric.report.users_jobs import Held, Life, UsersJob, UsersJobs, users_jobs_of
from fabric.results import Phase, Result

_ROW_INCHES, _STORAGE_INCHES, _AXIS_INCHES = 0.27, 1.1, 0.5
_NODES_SHOWN, _JOBS_SHOWN, _FAULTS_SHOWN = 40, 30, 20
_FAULT_COLOURS = {"nic": series(3), "silent": INK, "process": series(5), "disk": series(5)}
_CUT_COLOUR, _REPAIR_COLOUR = FAILURE, series(1)
_CHAINS_COLOUR, _RESYNC_COLOUR = FAILURE, LANES["storage"]
_NOTICE_COLOUR = INK
_CHARACTER = 0.0068
"""How wide a character of a bar's label is, of the width of the panel."""


@dataclass(frozen=True)
class _Day:
    """All that is drawn. Times are seconds since all jobs of the phase play."""

    phase: Phase
    platforms: list[UsersJobs]
    faults: list[Fault]
    repairs: list[Repair]
    chains: Steps
    resync: Steps

    @property
    def jobs(self) -> list[UsersJob]:
        """Users' jobs, those of high priority first, each priority by when they were submitted."""
        found = [job for platform in self.platforms for job in platform.jobs]
        return sorted(found, key=lambda job: (-_rank(job.priority), job.submitted_s, job.number))

    @property
    def nodes(self) -> list[str]:
        """All nodes that a job had, or that were out."""
        return sorted({one.node for platform in self.platforms for one in platform.held()})


def _rank(priority: str) -> int:
    return int(Priority[priority]) if priority in Priority.__members__ else 0


def platform_day(result: Result) -> Figure | None:
    """Return all that happened on one time axis, in the first phase of the summary's ``timeline`` in which users' jobs
    played; None without any."""
    day = _day_of(result)
    if day is None:
        return None
    nodes, jobs, faults = day.nodes[:_NODES_SHOWN], day.jobs[:_JOBS_SHOWN], day.faults[:_FAULTS_SHOWN]
    rows = [len(nodes), len(jobs), len(faults) + bool(day.repairs)]
    heights = [0.3 + _ROW_INCHES * max(count, 1) for count in rows if count]
    heights += [_STORAGE_INCHES] * bool(len(day.chains.at_s))
    with framed(result, "A day of the cluster", 12.0, sum(heights) + _AXIS_INCHES + 0.4) as (figure, body):
        panels = body.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        left = iter(panels)
        colours = series_of([job.name for job in sorted(day.jobs, key=lambda job: job.submitted_s)])
        _draw_nodes(next(left), day, nodes, colours)
        _draw_jobs(next(left), day, jobs, colours)
        if rows[2]:
            _draw_faults(next(left), day, faults)
        if len(day.chains.at_s):
            _draw_storage(next(left), day)
        start_s, end_s = day.phase.load_s
        panels[-1].set_xlim(0, end_s - start_s)
        panels[-1].set_xlabel("time since all jobs play (s)")
        handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
        handles += [Patch(color=PALE, label="node is out"), Patch(color=_NOTICE_COLOUR, label="asked to end"),
                    Patch(facecolor="white", edgecolor=GREY, hatch="////", label="waits")]  # fmt: skip
        body.legend(handles=handles, loc="outside lower center", ncols=min(9, len(handles)))
    return figure


def _day_of(result: Result) -> _Day | None:
    wanted = result.summary.get("timeline", ())
    found = [one for one in users_jobs_of(result, since_load=True) if one.phase in wanted and one.jobs]
    phase = next((phase for phase in result.phases if found and phase.name == found[0].phase), None)
    if phase is None:
        return None
    origin, until_s = phase.load_s

    def of(name: str) -> pd.DataFrame:
        """Return the rows of a table, if the result can have it; times count from the begin of the load."""
        if name not in result.known_tables:
            return pd.DataFrame({"at_s": [], "size_bytes": []})
        frame = result.table(name)
        frame = frame[frame["phase"] == phase.name]
        times = [column for column in frame.columns if unit_of(column) == "s"]
        return frame.assign(**{column: frame[column] - origin for column in times})

    lines = result.config.get("failures") or []
    return _Day(
        phase,
        [one for one in found if one.phase == phase.name],
        list(faults_of(lines, of("failures"), until_s - origin)),
        list(repairs_of(of("controller"))),
        degraded_chains(of("storage_chains")),
        resync_rate(of("storage_resyncs"), until_s - origin),
    )


def _prepare(panel: Axes, title: str, names: Sequence[str], left_out: int = 0) -> None:
    """Give a panel its title and a row for each name, the first one above."""
    panel.set_title(title + (f"      ({left_out} more not shown)" if left_out else ""))
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(max(len(names), 1) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")


def _bar(panel: Axes, row: int, from_s: float, until_s: float, **looks: Any) -> None:
    panel.barh(row, until_s - from_s, left=from_s, **{"height": 0.72, "linewidth": 0.6, "zorder": 3, **looks})


def _draw_nodes(panel: Axes, day: _Day, nodes: Sequence[str], colours: Mapping[str, str]) -> None:
    """Draw who has each node: a bar a life, with its job's name where there is room."""
    _prepare(panel, "who has which node  (|: suspended, x: stopped since a node was lost or its rank is gone)", nodes,
             len(day.nodes) - len(nodes))  # fmt: skip
    begin_s, end_s = day.phase.load_s
    for one in (held for platform in day.platforms for held in platform.held() if held.node in nodes):
        row = nodes.index(one.node)
        if not one.job:
            _bar(panel, row, one.from_s, one.until_s, color=PALE, height=0.95, zorder=2)
            continue
        _bar(panel, row, one.from_s, one.until_s, color=colours[one.job], edgecolor="white")
        if len(one.job) * _CHARACTER * (end_s - begin_s) < one.until_s - one.from_s:
            panel.text(one.from_s, row, f"  {one.job}", va="center", fontsize=6.5, color="white", zorder=5)
        _mark(panel, row, one)


def _mark(panel: Axes, row: int, one: Held) -> None:
    if one.end in ("finished", ""):
        return
    mark = {"suspend": "|", "restart": "x"}.get(one.end, "o")
    panel.plot(one.until_s, row, mark, color=INK, markersize=13 if mark == "|" else 6, markeredgewidth=2,
               zorder=6, path_effects=HALO)  # fmt: skip


def _draw_jobs(panel: Axes, day: _Day, jobs: Sequence[UsersJob], colours: Mapping[str, str]) -> None:
    """Draw the queue: when each job runs, waits, and is between the notice and its end, and from which step it goes
    on."""
    names = [f"{job.name}  {' '.join(filter(None, (job.user, job.priority, _nodes_asked(job))))}" for job in jobs]
    _prepare(panel, "queue, by priority: who runs and who waits  (numbers: the step that was saved)", names,
             len(day.jobs) - len(jobs))  # fmt: skip
    for row, job in enumerate(jobs):
        for from_s, until_s in job.waits:
            _bar(panel, row, from_s, until_s, facecolor="white", edgecolor=colours[job.name], hatch="////")
        for life in job.lives:
            _draw_life(panel, row, life, colours[job.name])


def _nodes_asked(job: UsersJob) -> str:
    return f"{job.asks} node{'' if job.asks == 1 else 's'}" if job.asks else ""


def _draw_life(panel: Axes, row: int, life: Life, colour: str) -> None:
    _bar(panel, row, life.started_s, life.ended_s, color=colour)
    if life.told_s is not None and life.end != "finished":
        _bar(panel, row, life.told_s, life.ended_s, color=_NOTICE_COLOUR, zorder=4)
    if life.end in ("suspend", "restart") and life.step is not None:
        panel.text(life.ended_s, row, f" {life.step}", va="center", fontsize=7, fontweight="bold", zorder=5,
                   bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"})  # fmt: skip


def _draw_faults(panel: Axes, day: _Day, faults: Sequence[Fault]) -> None:
    """Draw what fails, a row a failure, and when the controller installed rules."""
    names = [fault.label for fault in faults] + ["controller installs rules"] * bool(day.repairs)
    _prepare(panel, "what fails, and what is mended", names, len(day.faults) - len(faults))
    for row, fault in enumerate(faults):
        colour = _FAULT_COLOURS.get(fault.kind, _CUT_COLOUR)
        _bar(panel, row, fault.from_s, fault.until_s, color=colour, edgecolor=colour)
    for repair in day.repairs:
        panel.plot(repair.at_s, len(faults), "|", color=_REPAIR_COLOUR, markersize=10, markeredgewidth=1.6)


def _draw_storage(panel: Axes, day: _Day) -> None:
    """Draw how many chains lack a replica, and what is sent to replicas that came back."""
    panel.set_title("storage")
    panel.step(day.chains.at_s, day.chains.values, where="post", color=_CHAINS_COLOUR)
    end_s = day.phase.load_s[1] - day.phase.load_s[0]
    panel.fill_between([*day.chains.at_s, end_s], [*day.chains.values, *day.chains.values[-1:]], step="post",
                       color=_CHAINS_COLOUR, alpha=0.25, linewidth=0)  # fmt: skip
    panel.set_ylim(0, 1.15 * max(day.chains.most, 1.0))
    panel.set_ylabel("number of chains\nwithout a replica", color=_CHAINS_COLOUR, fontsize=8)
    if not len(day.resync.at_s):
        return
    rate = panel.twinx()
    rate.fill_between(day.resync.at_s, day.resync.values / 1e3, step="post", color=_RESYNC_COLOUR, alpha=0.75,
                      linewidth=0)  # fmt: skip
    rate.set_ylim(0, 1.15 * day.resync.most / 1e3)
    rate.set_ylabel("resync (kB/s)", color=_RESYNC_COLOUR, fontsize=8)
    rate.grid(visible=False)
    rate.spines["right"].set_visible(True)
