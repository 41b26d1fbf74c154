"""What runs say of congestion: ways of flows, metrics and tables, from made-up tables on the smallest fabric."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from controllers.client import ControllerEvent
from controllers.planning.policies import ADAPTIVE, ECMP, STATIC, Policy
from controllers.routing import Routing
from fabric.delivered import Flow
from fabric.metrics import Metric, by_path
from fabric.model.identity import NodeId
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.tables import TABLES
from runs.congestion import (
    Found,
    congestion_frames,
    congestion_metrics,
    congestion_tables,
    longest_s,
    tell_congestion,
)
from runs.session import Session
from runs.ways import WayFinder, moves_in
from tests.rows import table_of
from topologies.load import load_fabric

FABRIC = load_fabric("head_of_line")
PHASE = Phase("lossless_1", "in one lossless lane", "lossless", 1.0, 5.0)
VICTIM = Flow("hfreduce", "z0h003", "z0h005")
SENDERS = [Flow("storage", host, "z0h002") for host in ("z0h000", "z0h001", "z0h004")]
STILL = {
    "z0h000:0": 0.6,
    "z0h001:0": 0.6,
    "z0h003:0": 0.6,
    "z0h004:0": 0.6,
    "z0l00:3": 0.8,
    "z0l01:3": 0.8,
    "z0s00:3": 0.6,
}
"""What part of the time each port stands still while z0h002's link is full."""
HOLDER = {"z0h000:0": "z0l00:3", "z0h003:0": "z0l00:3", "z0h001:0": "z0l01:3", "z0h004:0": "z0l01:3"}
HOLDER |= {"z0l00:3": "z0s00:3", "z0l01:3": "z0s00:3", "z0s00:3": "z0l02:1"}
PEER = {str(port): str(link.other(port)) for port, link in FABRIC.directed_ports()}


def measured(lanes: tuple[str, ...] = ("lossless",), still: str = "lossless") -> dict[str, pd.DataFrame]:
    """Five samples, a second apart; the ``still`` lane is the one in which everything waits for z0h002."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in ("stalls", "ports", "waits", "flows", "operations")}
    for second in range(5):
        at_s = 1.0 + second
        for port, link in FABRIC.directed_ports():
            sent = second * link.rate_bps / 8 * (1.0 if str(port) == "z0l02:1" else 0.2)
            for lane in lanes:
                share = STILL.get(str(port), 0.0) if lane == still else 0.0
                rows["stalls"].append((at_s, str(port), lane, 100 * second, round(second * share * 1e9), 0, 0))
                rows["ports"].append((at_s, str(port), lane, round(sent / len(lanes)), 0, 0, 0, 0))
        rows["waits"] += [(at_s, holder, still, PEER[port], still, 60_000) for port, holder in HOLDER.items()]
        for flow in (VICTIM, *SENDERS):
            parts = (flow.service_level, flow.host, flow.peer, 0.001, 0, second * 40_000_000)
            rows["flows"].append((at_s, PHASE.name, *parts))
    return {name: table_of(name, found).astype(TABLES[name].dtypes) for name, found in rows.items()}


def finder(queueing: Queueing) -> WayFinder:
    return WayFinder(FABRIC, plan_lanes(QueueConfig(), queueing), Routing())


def found_in(tables: dict[str, pd.DataFrame], queueing: Queueing = Queueing.LOSSLESS) -> Found:
    frames = congestion_frames(FABRIC, tables, PHASE, finder(queueing))
    return Found(PHASE, frames["congestion_trees"], frames["stalled_time"], frames["flow_stalls"])


def test_the_flow_that_waits_for_a_port_that_it_does_not_use_is_the_only_victim() -> None:
    found = found_in(measured())
    (victim,) = found.victims.to_dict("records")
    assert (victim["host"], victim["peer"], victim["root_port"]) == ("z0h003", "z0h005", "z0l02:1")
    assert victim["share"] == pytest.approx(0.8)
    assert congestion_metrics(found) == {
        "congested_fraction": pytest.approx(1.0),
        "largest_tree_ports": 8,
        "deepest_tree_waits": 3,
        "hosts_blocked_by_a_tree": 4,
        "victims": 1,
    }


def test_in_a_lane_of_its_own_it_is_none() -> None:
    found = found_in(measured(("hfreduce", "storage"), "storage"), Queueing.LOSSLESS_LANES)
    assert len(found.flows) == 4
    assert found.victims.empty
    assert congestion_metrics(found)["hosts_blocked_by_a_tree"] == 4


def test_tables_name_the_root_the_stillest_lanes_and_the_victim() -> None:
    trees, stalled, victims = congestion_tables([found_in(measured())])
    assert trees.words == [[PHASE.title, "z0l02:1 lossless", "100%", "4 s", "8", "3", "4", "410 KiB"]]
    assert [row[1] for row in stalled.words[:2]] == ["z0l00:3 → z0s00", "z0l01:3 → z0s00"]
    assert stalled.words[0][2:] == ["lossless", "400", "3.2 s", "80%", "80%"]
    flow, *rest = victims.words[0][1:]
    assert (flow, rest) == (
        "hfreduce z0h003 → z0h005",
        ["z0l02:1 lossless", "80% of the time", "320 Mbit/s", "800 Mbit/s"],
    )
    for table in (trees, stalled, victims):
        assert all(len(row) == len(table.columns) for row in table.words)


def test_a_phase_with_trees_and_no_victim_says_so_and_one_without_trees_says_nothing() -> None:
    through = measured()
    through["flows"] = through["flows"][through["flows"]["peer"] == "z0h002"]
    *_, victims = congestion_tables([found_in(through)])
    assert victims.words == [[PHASE.title, "none", "", "", "", ""]]
    calm = measured()
    calm["stalls"]["stalled_ns"] = 0
    assert congestion_tables([found_in(calm)]) == []
    assert congestion_metrics(found_in(calm))["congested_fraction"] == 0


def test_how_long_a_root_lasted_is_its_longest_stretch_without_a_gap() -> None:
    rows = pd.DataFrame({"at_s": [1.1, 1.2, 1.3, 1.5, 1.6], "interval_s": [0.1] * 5})
    assert longest_s(rows) == pytest.approx(0.3)


def session_of(tables: dict[str, pd.DataFrame], phase: Phase) -> Any:
    """A session with one phase, whose tables are those and what it is told to keep."""
    kept: dict[str, pd.DataFrame] = {}
    outcome = SimpleNamespace(phase=phase, routing=Routing(), moves=())
    return SimpleNamespace(
        live=SimpleNamespace(fabric=FABRIC),
        queues=QueueConfig(),
        phases=[outcome],
        table=lambda name: tables.get(name, TABLES[name].empty()),
        keep_frame=kept.__setitem__,
        kept=kept,
    )


def test_a_run_keeps_the_rows_and_adds_to_its_summary() -> None:
    session = session_of(measured(), PHASE)
    summary = tell_congestion(
        cast(Session, session), {"metrics": {"a": 1}, "tables": [SummaryTable("T", ["a"], [])], "title": "t"}
    )
    assert set(session.kept) == {"congestion_trees", "stalled_time", "flow_stalls"}
    for name, frame in session.kept.items():
        assert list(frame) == list(TABLES[name].columns)
        frame.astype(TABLES[name].dtypes)
    assert {"a": 1, "lossless_1.victims": 1}.items() <= by_path(summary["metrics"]).items()
    assert [table.title.split(":")[0] for table in summary["tables"]] == [
        "T", "Congestion trees", "Lanes that stalled longest", "Victims",
    ]  # fmt: skip


def test_congestion_is_added_to_metrics_that_say_their_job() -> None:
    told = [Metric("lossless_1", "storage", "read.p99_s", 1.0)]
    summary = tell_congestion(cast(Session, session_of(measured(), PHASE)), {"metrics": told, "tables": []})
    assert summary["metrics"][0] is told[0]
    assert Metric("lossless_1", "", "victims", 1) in summary["metrics"]


def test_a_run_without_lossless_phases_says_what_it_said() -> None:
    session = session_of({}, Phase("p", "P", "shared", 1.0, 5.0))
    said = {"metrics": {"a": 1}, "tables": [], "title": "t"}
    assert tell_congestion(cast(Session, session), said) == said
    assert session.kept == {}


def test_ways_are_the_planned_ports_in_the_lane_of_the_service_level() -> None:
    ((way,),) = finder(Queueing.LOSSLESS_LANES).ways(VICTIM, [2.0])
    assert [str(lane) for lane in way] == [
        "z0h003:0 hfreduce", "z0l00:3 hfreduce", "z0s00:3 hfreduce", "z0l02:2 hfreduce",
    ]  # fmt: skip
    ((one_lane,),) = finder(Queueing.LOSSLESS).ways(VICTIM, [2.0])
    assert {lane.lane for lane in one_lane} == {"lossless"}


SMALL = load_fabric("fire_flyer_2_small")
SMALL_FLOW = Flow("storage", "st000", "z0h001")


def small(policy: Policy, events: list[ControllerEvent] | None = None) -> WayFinder:
    moves = moves_in(events or [], origin=100.0)
    return WayFinder(SMALL, plan_lanes(QueueConfig(), Queueing.LOSSLESS), Routing(policy=policy), moves)


def test_by_hashes_a_flow_may_take_every_spine() -> None:
    (ways,) = small(ECMP).ways(SMALL_FLOW, [0.0])
    assert {way[1].port for way in ways} == {f"z0l00:{port}" for port in (5, 6, 7, 8)}


def test_moves_of_adaptive_routing_hold_from_when_they_were_made() -> None:
    ((static,),) = small(STATIC).ways(SMALL_FLOW, [0.0])
    number = next(port for port in (5, 6, 7, 8) if f"z0l00:{port}" != static[1].port)
    sink = SMALL.host_named("z0h001")
    moved = {"moves": [["z0l00", SMALL.nics_of[sink][0].ip, number], ["z0l02", "10.0.0.99", 5]]}
    events = [ControllerEvent(90.0, "ready", {}), ControllerEvent(103.0, "moved", moved)]
    before, (after,) = small(ADAPTIVE, events).ways(SMALL_FLOW, [2.9, 3.1])
    assert before == (static,)
    assert after[1].port == f"z0l00:{number}"
    assert SMALL.peer(SMALL.nics_of[sink][0].port).node == NodeId.parse(after[-1].port.split(":")[0])


def test_storage_nodes_talk_in_either_of_their_zones() -> None:
    (ways,) = small(STATIC).ways(Flow("storage", "st000", "st001"), [0.0])
    assert [way[0].port for way in ways] == ["st000:0", "st000:1"]
