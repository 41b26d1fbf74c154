"""A run or a cluster as metrics for Prometheus while it plays, by the encoder of results (:mod:`.openmetrics`).

Families beside those of results that are known already (run, verdict, ports)::

    fabric_port_backlog_bytes       gauges of ports, too
    fabric_run_progress_ratio       of the phase that plays
    fabric_failing_targets          by the kind of target
    fabric_users_jobs               by state: waiting, running, ended; of a platform
    fabric_users_nodes_out          nodes that are not to be used
    fabric_users_events             by the event
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from app.export.openmetrics import encoded, info_family, measure_family, port_families, verdict_family
from fabric.measure.live_file import LiveSeries
from fabric.measures import Measure
from fabric.report.users_jobs import UsersJob, users_jobs_of
from fabric.report.view.live import Live
from fabric.report.view.live_tables import LiveTables
from fabric.report.view.serving import Resource
from fabric.tables import TABLES, WHOLE_STATE

if TYPE_CHECKING:
    from prometheus_client import Metric

PROGRESS = Measure("run_progress_fraction", "how much of the phase that plays has been played")
FAILING = Measure("failing_targets.<kind>", "targets of this kind that are not as they should be")
JOBS = Measure("users_jobs.<state>", "jobs of users of a platform in this state")
OUT = Measure("users_nodes_out", "nodes of a platform that are not to be used")
EVENTS = Measure("users_events.<event>", "events of this kind in a platform's journal, in the phase that plays")
MEASURES = (PROGRESS, FAILING, JOBS, OUT, EVENTS)
_GROWS = {name: column.grows for table in ("ports", "stalls") for name, column in TABLES[table].labelled.items()}
_KIND = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def live_metrics(live: Live) -> Resource:
    """Return the answer to a scrape by Prometheus."""
    return Resource(encoded(_families(live)).encode(), _KIND)


def _families(live: Live) -> Iterator[Metric]:
    run = live.name
    yield info_family(run, {"experiment": live.experiment, "engine": live.engine})
    yield verdict_family(run, live.progress.verdict)
    if live.progress.phase:
        yield measure_family(PROGRESS, run, {"": live.progress.fraction}, "")
    with live.lock:
        series = live.series()
        totals = totals_now(series)
    yield from port_families(run, totals)
    tables = live.rows.of(series)
    yield measure_family(FAILING, run, _failing(tables), "kind")
    yield from _users_families(tables, run)


def _users_families(tables: LiveTables, run: str) -> Iterator[Metric]:
    found = users_jobs_of(tables)
    if not found:
        return
    now = found[-1]
    until_s = tables.phases[-1].ended_s
    states = Counter({"waiting": 0, "running": 0, "ended": 0})
    states.update(_state(job, until_s) for job in now.jobs)
    yield measure_family(JOBS, run, states, "state")
    yield measure_family(OUT, run, {"": sum(not one.back for one in now.out)}, "")
    yield measure_family(EVENTS, run, Counter(str(row["event"]) for row in now.events), "event", grows=True)


def _state(job: UsersJob, now_s: float) -> str:
    if job.lives and not job.lives[-1].end:
        return "running"
    return "waiting" if job.waits and job.waits[-1][1] >= now_s else "ended"


def _failing(tables: LiveTables) -> dict[str, float]:
    """Return how many targets of each kind fail now: those whose last change did not make them whole."""
    rows = tables.table("failures")
    done = rows[rows["done_s"].notna()].sort_values("done_s", kind="stable")
    last = done.groupby("target", observed=True).last()
    kinds = Counter(last["kind"][last["state"].astype(str) != WHOLE_STATE].astype(str))
    return {"link": 0, **kinds}


def totals_now(series: list[LiveSeries]) -> pd.DataFrame:
    """Return the counters and gauges of each lane of a port now, a row each. A counter that went down from one
    phase to the next began anew, as with other queues: what it had counted before is kept."""
    total = last = pd.DataFrame(index=pd.MultiIndex.from_arrays([[], []], names=["port", "lane"]))
    for one in (one for one in series if one.rows):
        queues = pd.MultiIndex.from_tuples(one.phase.queues, names=["port", "lane"])
        first, now = (pd.DataFrame(rows.T, queues, list(one.phase.columns)) for rows in (one.rows[0], one.rows[-1]))
        before = last.reindex(index=queues, columns=now.columns).fillna(0).astype("int64")
        counted = [name for name in now.columns if _GROWS[name]]
        grown = now[counted] - before[counted].where(first[counted] >= before[counted], 0)
        sums = grown.add(total.reindex(columns=counted), fill_value=0).fillna(0).astype("int64")
        gauges = now.drop(columns=counted).combine_first(total.drop(columns=counted, errors="ignore"))
        total, last = sums.join(gauges.fillna(0).astype("int64")), now
    return total.reset_index()
