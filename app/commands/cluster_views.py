"""What users look at of a cluster, once or again and again: jobs, nodes, failures; also as Slurm's commands show it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from app.commands.cluster_questions import WIDE, Answers, add_usual, as_json, asked
from fabric.errors import UsageError
from runs.console import OUT, print_tables

if TYPE_CHECKING:
    from cluster.platform.responses import FailuresListed, JobBrief, NodesListed, QuotaUse

_EVERY_S, _MOST_S = 2.0, 3600.0


class _View(NamedTuple):
    """What is looked at: as JSON, and as tables."""

    values: Mapping[str, Any]
    tables: list[dict[str, Any]]


def add_view_options(commands: Any) -> None:
    """Define the commands that only look."""
    for name, (what, view) in _VIEWS.items():
        one = commands.add_parser(name, help=what)
        every = f"look again at this interval in seconds, until Ctrl-C (default, without a number: {_EVERY_S:g})"
        one.add_argument("--watch", nargs="?", type=float, const=_EVERY_S, metavar="SECONDS", help=every)
        add_usual(one, _shows(view), is_read=True)


def _shows(view: Callable[[Answers], _View]) -> Callable[[argparse.Namespace, list[str]], int]:
    def show(options: argparse.Namespace, _: list[str]) -> int:
        every_s = options.watch
        if every_s is not None and not 0 < every_s <= _MOST_S:
            raise UsageError(f"--watch {every_s:g}: give more than 0 and {_MOST_S:g} seconds at most")
        with asked(options, is_read=True) as cluster:
            while True:
                _print(view(cluster), options)
                if every_s is None:
                    return 0
                try:
                    time.sleep(every_s)
                except KeyboardInterrupt:
                    return 0

    return show


def _print(found: _View, options: argparse.Namespace) -> None:
    """Print it; on a terminal that is watched in place of what was there."""
    if options.json:
        print(json.dumps(as_json(found.values), indent=None if options.watch else 1), flush=True)
        return
    if options.watch and OUT.is_terminal:
        OUT.clear()
    print_tables(found.tables)


# Our own columns -----------------------------------------------------------------------------------------------------


def _list(cluster: Answers) -> _View:
    from cluster.platform.requests import ListQuotas
    from cluster.platform.responses import QuotasListed

    now_s, jobs = _jobs(cluster)
    quotas = cluster.ask(ListQuotas(), QuotasListed).quotas
    rows = [_job_row(job, now_s) for job in jobs]
    columns = ["job", "name", "user", "priority", "state", "nodes", "step", "since", "why"]
    tables = [{"title": f"{len(jobs)} jobs", "columns": columns, "rows": rows}]
    tables += [_quota_table(quotas)] if quotas else []
    return _View({"now_s": now_s, "jobs": jobs, "quotas": quotas}, tables)


def _jobs(cluster: Answers) -> tuple[float, list[JobBrief]]:
    """Return the cluster's time, and all jobs."""
    from cluster.platform.requests import ListJobs
    from cluster.platform.responses import JobsListed

    answer = cluster.ask(ListJobs(), JobsListed)
    jobs = list(answer.jobs)
    while answer.more:
        answer = cluster.ask(ListJobs(jobs[-1].number), JobsListed)
        jobs += answer.jobs
    return answer.now_s, jobs


def _job_row(job: JobBrief, now_s: float) -> list[Any]:
    from cluster.platform.event_lines import shortened
    from cluster.platform.state import JobState

    nodes = shortened(job.nodes, WIDE) if job.nodes else f"asks for {job.asks}"
    why = job.waits or ("" if job.state is JobState.RUNNING else job.why)
    if job.ended_s is not None:
        why = f"code {job.code}" + (f": {job.why}" if job.why else "")
        nodes = str(job.asks)
    spent_s = (now_s if job.ended_s is None else job.ended_s) - job.submitted_s
    return [job.number, job.name, job.user, job.priority, job.state.value, nodes, job.step, span(spent_s), why]


def span(seconds: float) -> str:
    """Return how long something took, in the unit that a person would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _quota_table(quotas: Sequence[QuotaUse]) -> dict[str, Any]:
    rows = [[one.user, one.priority, one.group, one.holds, one.waits, _limit(one.quota)] for one in quotas]
    columns = ["user", "priority", "group", "holds", "waits for", "quota"]
    return {"title": "Nodes that users hold and wait for", "columns": columns, "rows": rows}


def _limit(quota: int | None) -> str:
    return "no limit" if quota is None else str(quota)


def _nodes(cluster: Answers) -> _View:
    from cluster.platform.responses import NodeUse

    found = _all_nodes(cluster)
    states = [node.state for node in found.nodes]
    title = ", ".join(f"{states.count(state)} {state.value}" for state in NodeUse)
    columns = ["node", "zone", "state", "job", "life", "user", "validated", "why out"]
    rows = [
        [one.name, one.zone, one.state.value, one.job, one.life, one.user, _at(one.validated_s), one.out]
        for one in found.nodes
    ]
    table = {"title": f"{len(rows)} nodes: {title}", "columns": columns, "rows": rows}
    return _View({"now_s": found.now_s, "nodes": found.nodes}, [table])


def _all_nodes(cluster: Answers) -> NodesListed:
    from cluster.platform.requests import ListNodes
    from cluster.platform.responses import NodesListed

    return cluster.ask(ListNodes(), NodesListed)


def _at(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s:.1f} s"


def _status(cluster: Answers) -> _View:
    """Return the queue and the nodes as Slurm's commands show them, and what fails by hand."""
    from cluster.platform.requests import ListFailures
    from cluster.platform.responses import FailuresListed

    queue, nodes, failing = _squeue(cluster), _sinfo(cluster), cluster.ask(ListFailures(), FailuresListed)
    tables = [*nodes.tables, *queue.tables]
    if failing.failures:
        tables.append(failures_table(failing))
    return _View({**queue.values, **nodes.values, "failures": failing.failures}, tables)


def failures_table(found: FailuresListed) -> dict[str, Any]:
    """Return a table of the failures by hand."""
    from cluster.platform.event_lines import shortened

    rows = [
        [one.target, one.state, _at(one.since_s), _at(one.until_s), shortened(one.hits, WIDE)] for one in found.failures
    ]
    columns = ["target", "state", "since", "until", "what it hits"]
    return {"title": "Failing by hand", "columns": columns, "rows": rows, "note": "fabric cluster heal TARGET ends it"}


# As Slurm's ----------------------------------------------------------------------------------------------------------


def _squeue(cluster: Answers) -> _View:
    from app.commands.cluster_as_slurm import QUEUE, queue_rows

    now_s, jobs = _jobs(cluster)
    left = [job for job in jobs if job.ended_s is None]
    table = {"title": "", "columns": list(QUEUE), "rows": queue_rows(left, now_s)}
    return _View({"now_s": now_s, "jobs": left}, [table])


def _sinfo(cluster: Answers) -> _View:
    from app.commands.cluster_as_slurm import NODES, node_rows

    found = _all_nodes(cluster)
    table = {"title": "", "columns": list(NODES), "rows": node_rows(found.nodes)}
    return _View({"now_s": found.now_s, "nodes": found.nodes}, [table])


_VIEWS: dict[str, tuple[str, Callable[[Answers], _View]]] = {
    "status": ("the queue, the nodes and what fails by hand, in short", _status),
    "list": ("all jobs, and what users hold of their quotas", _list),
    "nodes": ("the nodes: free, busy with which job, or out, and why", _nodes),
    "squeue": ("jobs that run or wait, in the columns of Slurm's squeue", _squeue),
    "sinfo": ("nodes by group and state, in the columns of Slurm's sinfo", _sinfo),
}
