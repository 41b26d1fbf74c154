"""The notes on a run, from its tables."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fabric.metrics import Metric
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.records.notes import FewBehindMedians, FewValues, NicsUsed, NothingReroutes, UnusedNics
from fabric.results import Phase
from fabric.tables import TABLES
from runs.known_tables import own_tables
from runs.measures import SHARED
from runs.notes import few_behind_medians, nics_used, nothing_reroutes, unused_nics
from topologies.load import load_fabric

RAILS = load_fabric("dgx_superpod_140_small")
FABRIC = load_fabric("fire_flyer_2_small")
PHASES = [Phase("alone", "", "lanes", 0.0, 10.0), Phase("lanes", "", "lanes", 20.0, 30.0, "", 21.0, 29.0)]
KNOWN = {**TABLES, **own_tables({})}


def table(name: str, *rows: dict[str, Any]) -> pd.DataFrame:
    blank = {"float64": math.nan, "int64": 0, "Int64": 0, "category": "", "bool": True}
    full = [{**{column: blank[kind] for column, kind in KNOWN[name].dtypes.items()}, **row} for row in rows]
    return pd.DataFrame(full, columns=list(KNOWN[name].columns))


def tables(**found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    names = ("flows", "operations", "rank_steps", "ports", "steps", "work_steps")
    return {name: found.get(name, KNOWN[name].empty()) for name in names}


def sent(port: Any, *sizes: int, from_s: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"at_s": from_s + number, "port": str(port), "lane": "nccl", "sent_bytes": size}
        for number, size in enumerate(sizes)
    ]


def test_nics_over_which_nothing_went_are_counted_by_job() -> None:
    first, second = RAILS.computes[:2]
    nics = [nic.port for host in (first, second) for nic in RAILS.nics_of[host]]
    ends = [end for port in nics for end in (port, RAILS.peer(port))]
    used = {nics[0], RAILS.peer(nics[0]), RAILS.peer(nics[2])}  # The last one's host only received.
    rows = [row for end in ends for row in sent(end, *((0, 100) if end in used else (7, 7)))]
    rows += [row for end in ends for row in sent(end, 100, 900, from_s=12.0)]  # Calibration, between phases.
    steps = table("rank_steps", *({"job": "nccl", "host": host.name} for host in (first, second)))
    (note,) = unused_nics(RAILS, tables(ports=table("ports", *rows), rank_steps=steps), PHASES)
    assert note == UnusedNics({"nccl": 2}, {"nccl": 4})


def test_jobs_that_use_all_nics_have_no_note_nor_has_who_sampled_none() -> None:
    host, peer = FABRIC.computes[:2]
    flows = table("flows", {"job": "other", "host": f"{host.name}", "peer": peer.name})
    ports = [row for one in (host, peer) for row in sent(FABRIC.nics_of[one][0].port, 0, 9)]
    assert list(unused_nics(FABRIC, tables(flows=flows, ports=table("ports", *ports)), PHASES)) == []
    assert list(unused_nics(FABRIC, tables(flows=flows), PHASES)) == []


def test_what_nics_of_each_number_carried_is_counted_in_the_lanes_of_a_job() -> None:
    host, peer = RAILS.computes[:2]
    rows = []
    for one in (host, peer):
        for nic, size in zip(RAILS.nics_of[one], (1000, 10), strict=True):
            rows += [*sent(nic.port, 0, size), *({**row, "lane": "other"} for row in sent(nic.port, 0, 5000))]
            rows += sent(RAILS.peer(nic.port), 0, size, from_s=22.0)  # The other way, in the other phase.
    ranks = table("rank_steps", *({"job": "a", "service_level": "nccl", "host": one.name} for one in (host, peer)))
    lanes = {"lanes": plan_lanes(QueueConfig(), Queueing.LANES)}
    (note,) = nics_used(RAILS, tables(ports=table("ports", *rows), rank_steps=ranks), PHASES, lanes)
    assert note == NicsUsed({"a": (4000, 40)})
    assert note.words == "NICs of each host that jobs used: a unevenly 3.91 KiB and 40 B"
    even = NicsUsed({"a": (100, 104), "b": (7, 0)})
    assert even.words == "NICs of each host that jobs used: a all 2, b 1 of 2"
    flat = table("rank_steps", {"job": "a", "service_level": "nccl", "host": FABRIC.computes[0].name})
    assert list(nics_used(FABRIC, tables(rank_steps=flat), PHASES, lanes)) == []


def test_nics_are_used_in_a_phase_that_is_shorter_than_the_sample_period() -> None:
    host, peer = FABRIC.computes[:2]
    flows = table("flows", {"job": "other", "host": f"{host.name}", "peer": peer.name})
    ports = [row for one in (host, peer) for row in sent(FABRIC.nics_of[one][0].port, 0, 0, 9, 9)]
    found = tables(flows=flows, ports=table("ports", *ports))
    assert list(unused_nics(FABRIC, found, [Phase("short", "", "lanes", 2.2, 2.4)])) == []
    (note,) = unused_nics(FABRIC, found, [Phase("short", "", "lanes", 1.2, 1.4), Phase("last", "", "lanes", 3.2, 3.9)])
    assert note == UnusedNics({"other": 2}, {"other": 2})


def steps(phase: str, count: int, job: str = "train", from_s: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"phase": phase, "job": job, "started_s": from_s + number / 10, "ended_s": from_s + 1 + number / 10}
        for number in range(count)
    ]


OF_MANY = [one for one in SHARED if one.is_of_many]


def test_few_steps_and_operations_behind_medians_are_told_together() -> None:
    reads = [{**row, "operation": "read"} for row in steps("alone", 9, "storage")]
    reads += [{**row, "operation": "read_failed"} for row in steps("alone", 9, "storage")]
    reads += [{**row, "operation": "write"} for row in steps("alone", 2, "untold")]
    of_steps = table("steps", *steps("alone", 3), *steps("lanes", 8, from_s=22.0), *steps("lanes", 5, from_s=20.0))
    metrics = [
        Metric("alone", "train", "step.p50_s", 1.0),
        Metric("lanes", "train", "algbw_Bps", 1.0),
        Metric("", "storage", "read.p99_s", 1.0),
        Metric("alone", "untold", "bandwidth_Bps", 1.0),
    ]
    found = tables(steps=of_steps, operations=table("operations", *reads))
    (note,) = few_behind_medians(found, PHASES, metrics, OF_MANY)
    assert note == FewBehindMedians(
        (
            FewValues("train", "steps", 3, 8, ("alone", "lanes")),  # Those before its load do not count.
            FewValues("storage", "reads", 9, 9, ("alone",)),
        )
    )
    enough = tables(steps=table("steps", *steps("alone", 10)))
    assert list(few_behind_medians(enough, PHASES, metrics, OF_MANY)) == []


def test_links_between_switches_that_are_cut_while_nothing_reroutes_are_told() -> None:
    between = next(str(link) for link in FABRIC.links if all(port.node.is_switch for port in link.ports))
    host = str(FABRIC.link_at[FABRIC.nics_of[FABRIC.computes[0]][0].port])

    def change(phase: str, link: str, **more: Any) -> dict[str, Any]:
        return {"phase": phase, "kind": "link", "link": link, "up": False, **more}

    failures = table(
        "failures",
        change("wait", between),
        change("wait", between, up=True),
        change("wait", host),
        change("reroute", between),
        {"phase": "wait", "kind": "disk", "target": "st001", "up": False},
    )
    (note,) = nothing_reroutes(FABRIC, failures, ["wait"])
    assert note == NothingReroutes((between,), ("wait",))
    assert list(nothing_reroutes(FABRIC, failures, [])) == []
    assert list(nothing_reroutes(FABRIC, table("failures", change("wait", host)), ["wait"])) == []
