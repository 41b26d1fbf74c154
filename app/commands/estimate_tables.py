"""What ``fabric estimate`` prints: its tables, and its JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.estimate.estimating import Estimate, JobTimes
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.records.cells import Row, count_of, quantity
from fabric.records.summary_table import SummaryTable


def tables(found: Estimate, shown: int) -> list[SummaryTable]:
    """Return the times of each job's flows, and the ports that are used most, up to ``shown``."""
    fabric = found.setting.fabric
    where = f"{fabric.name}, {found.setting.routing.policy} routes, {Queueing(found.setting.lanes.queueing).words}"
    return [_times_table(found, where), _ports_table(found, where, shown)]


def _times_table(found: Estimate, where: str) -> SummaryTable:
    rows: list[Row] = []
    for job in found.jobs:
        numbers = _numbers(job)
        rows.append(
            [
                job.asked.name,
                job.lane,
                count_of(job.asked.count),
                quantity(numbers["estimated_median_s"], "time"),
                quantity(numbers["estimated_slowest_s"], "time"),
                " → ".join(_ends(found.setting.fabric, job)),
                quantity(job.last_s, "time"),
            ]
        )
    heads = ["median flow", "slowest flow", "which is", "all ended after"]
    columns = ["job", "lane", "flows", *(f"{head} (estimate)" for head in heads)]
    return SummaryTable(f"Estimate of completion times: {where}", columns, rows)


def _ports_table(found: Estimate, where: str, shown: int) -> SummaryTable:
    fabric = found.setting.fabric
    rows: list[Row] = [
        [
            fabric.label_of(one.port),
            fabric.label_of(fabric.peer(one.port)),
            quantity(fabric.link_at[one.port].rate_bps, "rate"),
            count_of(one.flows),
            quantity(one.utilisation, ".1%"),
        ]
        for one in found.ports[:shown]
    ]
    title = f"Estimate of the {len(rows)} busiest of {len(found.ports):,} ports in use: {where}"
    return SummaryTable(title, ["port", "to", "rate", "flows", "utilisation (estimate)"], rows)


def as_json(found: Estimate, shown: int, note: str) -> dict[str, Any]:
    """Return an estimate for programs: numbers in seconds, bytes and bit/s."""
    setting = found.setting
    return {
        "kind": "estimate",
        "note": note,
        "topology": setting.fabric.name,
        "hosts": len(setting.fabric.hosts),
        "routing": setting.routing.policy.name,
        "queueing": Queueing(setting.lanes.queueing).value,
        "seed": setting.seed,
        "jobs": [_job_as_json(setting.fabric, job) for job in found.jobs],
        "busiest_ports": [
            {
                "port": str(one.port),
                "to": str(setting.fabric.peer(one.port)),
                "rate_bps": setting.fabric.link_at[one.port].rate_bps,
                "flows": one.flows,
                "estimated_utilisation_fraction": one.utilisation,
            }
            for one in found.ports[:shown]
        ],
    }


def _job_as_json(fabric: Fabric, job: JobTimes) -> dict[str, Any]:
    source, sink = _ends(fabric, job)
    return {
        "name": job.asked.name,
        "plays": job.asked.plays,
        "service_level": job.asked.level,
        "lane": job.lane,
        "flows": job.asked.count,
        **_numbers(job),
        "estimated_all_ended_s": job.last_s,
        "slowest": {"source": source, "destination": sink},
    }


def _numbers(job: JobTimes) -> dict[str, float]:
    return {"estimated_median_s": float(np.median(job.took_s)), "estimated_slowest_s": float(job.took_s.max())}


def _ends(fabric: Fabric, job: JobTimes) -> tuple[str, str]:
    """Return the hosts of the slowest flow."""
    flows = job.asked.flows
    ends = (int(flows.sources[job.slowest]), int(flows.destinations[job.slowest]))
    source, sink = (fabric.own_names.get(fabric.nics[at].node, fabric.nics[at].node.name) for at in ends)
    return source, sink
