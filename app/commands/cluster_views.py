"""What users look at of a cluster, once or again and again: jobs, nodes, failures; also as Slurm's commands show it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.commands.cluster_questions import WIDE, Answer, Answers, add_usual, asked
from fabric.errors import UsageError
from runs.console import OUT, print_tables

_EVERY_S, _MOST_S = 2.0, 3600.0


class _View(NamedTuple):
    """What is looked at: as JSON, and as tables."""

    values: Answer
    tables: list[Answer]


def add_view_options(commands: Any) -> None:
    """Define the commands that only look."""
    for name, (what, view) in _VIEWS.items():
        one = commands.add_parser(name, help=what)
        every = f"look again every so many seconds, until Ctrl-C (default, without a number: {_EVERY_S:g})"
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
        print(json.dumps(found.values, indent=None if options.watch else 1), flush=True)
        return
    if options.watch and OUT.is_terminal:
        OUT.clear()
    print_tables(found.tables)


# Our own columns -----------------------------------------------------------------------------------------------------


def _list(cluster: Answers) -> _View:
    from cluster.platform.questions import ListQuotas

    now_s, jobs = _jobs(cluster)
    quotas = cluster.ask(ListQuotas())["quotas"]
    rows = [_job_row(job, now_s) for job in jobs]
    columns = ["job", "name", "user", "priority", "state", "nodes", "step", "since", "why"]
    tables = [{"title": f"{len(jobs)} jobs", "columns": columns, "rows": rows}]
    tables += [_quota_table(quotas)] if quotas else []
    return _View({"now_s": now_s, "jobs": jobs, "quotas": quotas}, tables)


def _jobs(cluster: Answers) -> tuple[float, list[Answer]]:
    """Return the cluster's time, and all jobs."""
    from cluster.platform.questions import ListJobs

    answer = cluster.ask(ListJobs())
    jobs: list[Answer] = answer["jobs"]
    while answer["more"]:
        answer = cluster.ask(ListJobs(jobs[-1]["number"]))
        jobs += answer["jobs"]
    return answer["now_s"], jobs


def _job_row(job: Answer, now_s: float) -> list[Any]:
    from cluster.platform.telling import shortened

    nodes = shortened(job["nodes"], WIDE) if job["nodes"] else f"asks for {job['asks']}"
    why = job["waits"] or ("" if job["state"] == "running" else job["why"])
    if job["ended_s"] is not None:
        why = f"code {job['code']}" + (f": {job['why']}" if job["why"] else "")
        nodes = str(job["asks"])
    spent_s = (now_s if job["ended_s"] is None else job["ended_s"]) - job["submitted_s"]
    head = [job[key] for key in ("number", "name", "user", "priority", "state")]
    return [*head, nodes, job["step"], span(spent_s), why]


def span(seconds: float) -> str:
    """Return how long something took, in the unit that a person would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _quota_table(quotas: Sequence[Answer]) -> Answer:
    rows = [
        [*(one[key] for key in ("user", "priority", "group", "holds", "waits")), _limit(one["quota"])] for one in quotas
    ]
    columns = ["user", "priority", "group", "holds", "waits for", "quota"]
    return {"title": "Nodes that users hold and wait for", "columns": columns, "rows": rows}


def _limit(quota: int | None) -> str:
    return "no limit" if quota is None else str(quota)


def _nodes(cluster: Answers) -> _View:
    from cluster.platform.questions import ListNodes

    answer = cluster.ask(ListNodes())
    states = [node["state"] for node in answer["nodes"]]
    title = ", ".join(f"{states.count(state)} {state}" for state in ("free", "busy", "out"))
    columns = ["node", "zone", "state", "job", "life", "user", "validated", "why out"]
    keys = ("name", "zone", "state", "job", "life", "user")
    rows = [[*(node[key] for key in keys), _at(node["validated_s"]), node["out"]] for node in answer["nodes"]]
    table = {"title": f"{len(rows)} nodes: {title}", "columns": columns, "rows": rows}
    return _View({"now_s": answer["now_s"], "nodes": answer["nodes"]}, [table])


def _at(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s:.1f} s"


def _status(cluster: Answers) -> _View:
    """Return the queue and the nodes as Slurm's commands show them, and what fails by hand."""
    queue, nodes, failing = _squeue(cluster), _sinfo(cluster), cluster.ask(_failures_question())
    tables = [*nodes.tables, *queue.tables]
    if failing["failures"]:
        tables.append(failures_table(failing))
    return _View({**queue.values, **nodes.values, "failures": failing["failures"]}, tables)


def _failures_question() -> Any:
    from cluster.platform.questions import ListFailures

    return ListFailures()


def failures_table(answer: Answer) -> Answer:
    """Return a table of the failures by hand."""
    from cluster.platform.telling import shortened

    rows = [
        [one["target"], one["state"], _at(one["since_s"]), _at(one["until_s"]), shortened(one["hits"], WIDE)]
        for one in answer["failures"]
    ]
    columns = ["target", "state", "since", "until", "what it hits"]
    return {"title": "Failing by hand", "columns": columns, "rows": rows, "note": "fabric cluster heal TARGET ends it"}


# As Slurm's ----------------------------------------------------------------------------------------------------------


def _squeue(cluster: Answers) -> _View:
    from app.commands.cluster_as_slurm import QUEUE, queue_rows

    now_s, jobs = _jobs(cluster)
    left = [job for job in jobs if job["ended_s"] is None]
    table = {"title": "", "columns": list(QUEUE), "rows": queue_rows(left, now_s)}
    return _View({"now_s": now_s, "jobs": left}, [table])


def _sinfo(cluster: Answers) -> _View:
    from app.commands.cluster_as_slurm import NODES, node_rows
    from cluster.platform.questions import ListNodes

    answer = cluster.ask(ListNodes())
    table = {"title": "", "columns": list(NODES), "rows": node_rows(answer["nodes"])}
    return _View({"now_s": answer["now_s"], "nodes": answer["nodes"]}, [table])


_VIEWS: dict[str, tuple[str, Callable[[Answers], _View]]] = {
    "status": ("the queue, the nodes and what fails by hand, in short", _status),
    "list": ("all jobs, and what users hold of their quotas", _list),
    "nodes": ("the nodes: free, busy with which job, or out, and why", _nodes),
    "squeue": ("jobs that run or wait, in the columns of Slurm's squeue", _squeue),
    "sinfo": ("nodes by group and state, in the columns of Slurm's sinfo", _sinfo),
}
