"""Jobs of a config: where they play, when, what is refused; and what a run of them says."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from controllers.planning.paths import planned_path
from controllers.planning.routes import plan_static_routes
from experiments.shared_cluster.run import (
    SharedClusterConfig,
    _way_shares,
    job_metrics,
    kind_tables,
    overlap_s,
    port_shares,
    port_use,
    slowdown,
    summarize,
)
from fabric.delivered import Flow
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Port
from fabric.results import Phase
from fabric.tables import TABLES
from runs.allocation import Allocation, allocate
from runs.job_config import asked_nodes, place_jobs
from runs.kinds import tables_of_jobs
from runs.registry import resolve
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.collectives.kinds import HFREDUCE, NCCL
from traffic.flows.kinds import BACKGROUND
from traffic.job import Stage
from traffic.job_kind import JobKind
from traffic.programs.kinds import PROGRAM
from traffic.storage.kinds import STORAGE
from traffic.storage.metadata.kinds import FILES
from traffic.storage.tables import LOADER_BATCHES
from traffic.work.kinds import TRAINING

SMALL = load_fabric("fire_flyer_2_small")
PLAN = plan_static_routes(SMALL)


def configured(jobs: list[dict[str, Any]], **more: Any) -> SharedClusterConfig:
    import json

    settings = [f"jobs={json.dumps(jobs)}", *(f"{key}={json.dumps(value)}" for key, value in more.items())]
    config = resolve("shared_cluster", settings)[1]
    assert isinstance(config, SharedClusterConfig)
    return config


def train(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "kind": "hfreduce", "nodes": 4, **values}


def test_packed_jobs_have_the_next_nodes_each_and_spread_ones_take_turns() -> None:
    config = configured([train("a", nodes=2), train("b", nodes=["z0h001", "z0h005"]), train("c", nodes=3)])
    packed = allocate(asked_nodes(config.jobs), SMALL, Allocation.PACKED)
    spread = allocate(asked_nodes(config.jobs), SMALL, Allocation.SPREAD)
    assert [str(node) for node in packed["a"]] == ["z0h000", "z0h002"]
    assert [str(node) for node in packed["b"]] == [str(node) for node in spread["b"]] == ["z0h001", "z0h005"]
    assert [str(node) for node in packed["c"]] == ["z0h003", "z0h004", "z0h006"]
    assert [str(node) for node in spread["a"]] == ["z0h000", "z0h003"]
    assert [str(node) for node in spread["c"]] == ["z0h002", "z0h004", "z0h006"]


TRAINED = {
    "name": "a",
    "kind": "training",
    "nodes": 4,
    "model": "resnet50",
    "layout": {"data": 4, "gpus_per_node": 1},
    "compute": {"forward": "20 ms"},
}


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([train("a"), train("a")], "jobs: a: 2 jobs have this name"),
        (
            [train("a", nodes=20), train("b", nodes=5)],
            "jobs: ask for 25 nodes, and 24 compute nodes have no job by name",
        ),
        ([train("a", nodes=1)], "jobs.a.nodes: 1; hfreduce needs 2 or more"),
        ([train("a", nodes=["z0h000", "z9h000"])], "jobs.a.nodes: z9h000: no compute node of fire_flyer_2_small"),
        ([train("a", nodes=["z0h000", "z0h000"])], "jobs.a.nodes: names a node twice"),
        ([train("a", service_level="gold")], "jobs.a.service_level: 'gold'; use one of"),
        ([train("a", start="40 s")], "jobs.a: plays last from 40 s, and the phase lasts 40 s"),
        ([train("a", repeat={"every": "2 s", "times": 1})], "jobs.a.repeat: begins again every 2 s"),
        ([dict(TRAINED, nodes=3)], "jobs.a.nodes: 3, but 4 ranks, 1 on a node, take 4; give it 4"),
        ([dict(TRAINED, nodes=5)], "jobs.a.nodes: 5, but 4 ranks, 1 on a node, take 4; give it 4"),
        (
            [dict(TRAINED, placement=["z0h000", "z0h001", "z0h002", "nobody"])],
            "jobs.a: placement: nobody: no compute node of fire_flyer_2_small",
        ),
        ([dict(TRAINED, placement=["z0h000"])], "jobs.a: placement: names 1 places for 4 ranks; name one for each"),
        ([{"name": "a", "kind": "work", "nodes": 2, "graph": "none.jsonl"}], "none.jsonl: cannot be read"),
        ([train("a", kind="torch")], "jobs"),
        ([train("a", gpus=3)], "gpus"),
        ([], "jobs"),
    ],
)
def test_jobs_that_cannot_be_are_refused(jobs: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(jobs)
    assert words in str(refused.value)


def test_a_job_plays_again_as_its_config_says() -> None:
    (job,) = configured([train("a", start="1 s", duration="2 s", repeat={"every": "5 s", "times": 2})]).jobs
    assert job.windows() == [(1.0, 3.0), (6.0, 8.0), (11.0, 13.0)]


def test_placed_jobs_know_their_ports_their_names_and_their_lanes() -> None:
    jobs = [
        train("a"),
        {"name": "ring", "kind": "nccl", "nodes": 4, "service_level": "other"},
        {"name": "data", "kind": "storage", "nodes": 2},
        {"name": "noise", "kind": "background", "nodes": 4},
    ]
    stage = Stage(SMALL, None, lambda node: None, 1)  # type: ignore[arg-type]
    placed = place_jobs(configured(jobs).jobs, stage, PLAN, Allocation.PACKED)
    assert [(one.name, one.job.level) for one in placed] == [
        ("a", ServiceLevel.HFREDUCE),
        ("ring", ServiceLevel.OTHER),
        ("data", ServiceLevel.STORAGE),
        ("noise", ServiceLevel.OTHER),
    ]
    for one in placed:
        senders = {port.node for port in one.loads if not port.node.is_switch}
        assert set(one.nodes) <= senders, "every node of these jobs sends"
    storage = placed[2]
    assert {port.node for port in storage.loads if not port.node.is_switch} == {*storage.nodes, *SMALL.storages}


@pytest.mark.parametrize(("collective", "sent"), [("allreduce", 6 / 4), ("all_to_all", 3 / 4), ("reduce", 1.0)])
def test_a_job_of_kind_nccl_plays_any_collective_and_its_loads_are_what_that_sends(
    collective: str, sent: float
) -> None:
    jobs = [{"name": "a", "kind": "nccl", "nodes": 4, "collective": collective}]
    stage = Stage(SMALL, None, lambda node: None, 1)  # type: ignore[arg-type]
    (placed,) = place_jobs(configured(jobs).jobs, stage, PLAN, Allocation.PACKED)
    loads = [load for port, load in placed.loads.items() if not port.node.is_switch]
    assert max(loads) == pytest.approx(sent)
    assert len(loads) == (3 if collective == "reduce" else 4)


def test_a_collective_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        configured([{"name": "a", "kind": "nccl", "nodes": 4, "collective": "scan"}])
    assert "'scan' is not a collective; use one of allreduce, all_gather, reduce_scatter" in str(refused.value)


ROWS: dict[str, list[dict[str, Any]]] = {
    "jobs": [
        {"phase": "together", "job": job, "service_level": "hfreduce"}
        | dict(zip(("started_s", "halted_s", "ended_s"), times_s, strict=True))
        for job, times_s in (("a", (0.0, 3.5, 4.0)), ("a", (6.0, 8.0, 8.0)), ("b", (3.0, 6.0, 7.0)))
    ],
    "steps": [
        {"phase": "together", "job": job, "collective": "allreduce", "started_s": 0.0, "ended_s": took}
        | {"ranks": 4, "size_bytes": 1000}
        for job, took in (("a", 1.0), ("a", 2.0), ("a", 4.0), ("b", 8.0))
    ],
    "operations": [
        {"phase": "together", "job": "b", "operation": "read", "size_bytes": 600, "started_s": 3.0, "ended_s": 4.0}
    ],
}


def session() -> Any:
    frames = {name: pd.DataFrame(rows, columns=list(TABLES[name].columns)) for name, rows in ROWS.items()}
    frames["loader_batches"] = LOADER_BATCHES.empty()
    return SimpleNamespace(table=frames.__getitem__)


def job(name: str, kind: JobKind) -> Any:
    config = SimpleNamespace(of_kind=kind, own=lambda: None)
    return SimpleNamespace(name=name, measures=kind.measures, config=config)


def test_a_jobs_numbers_are_its_own() -> None:
    a, b = (job_metrics(session(), job(name, kind), "together") for name, kind in (("a", HFREDUCE), ("b", STORAGE)))
    assert (a["algbw_Bps"], a["steps"], a["played_s"]) == (500.0, 3.0, 6.0)
    assert b["read.bandwidth_Bps"] == 600 / 3, "from its begin until it was told to halt"
    assert "read.p99_s" not in a


def test_jobs_overlap_while_both_play() -> None:
    assert overlap_s(session(), "a", "b") == pytest.approx(1.0 + 1.0)


def test_ports_are_shared_by_what_flows_of_jobs_delivered_over_them() -> None:
    """Two jobs cross one uplink, and storage nodes talk in both of their zones, half in each."""
    hosts = ["z0h000", "z0h001", "z0h004", "z0h005"]
    ways = {pair: static_way(*pair) for pair in itertools.permutations(hosts, 2)}
    one, other, shared = next(
        (one, other, next(iter(common)))
        for one, other in itertools.combinations(ways, 2)
        if (common := {port for port in set(ways[one]) & set(ways[other]) if port.node.is_switch})
    )
    pairs = {"a": one, "b": other, "c": ("st000", "st001")}
    flows = [
        (at, "together", job, "other", *pairs[job], 0.001, 0, round(at * size))
        for job, size in (("a", 1000), ("b", 3000), ("c", 8000))
        for at in (0.0, 5.0, 10.0)
    ]
    frames = {"flows": table_of("flows", flows), "operations": TABLES["operations"].empty()}
    sent = [(at, str(shared), "lanes", round(5000 * at), 0, 0, 0, 0) for at in (0.0, 10.0)]
    frames["ports"] = table_of("ports", sent)
    live = SimpleNamespace(fabric=SMALL, plan=PLAN)
    fake: Any = SimpleNamespace(live=live, table=frames.__getitem__)
    outcome: Any = SimpleNamespace(phase=Phase("together", "t", "lanes", 0.0, 10.0))
    found = port_shares(fake, [SimpleNamespace(name=job) for job in pairs], outcome)  # type: ignore[misc]
    rate_bps = SMALL.link_at[shared].rate_bps
    (row,) = (row for row in found if row["port"] == str(shared))
    assert row["sent"] == pytest.approx(8 * 5000 / rate_bps)
    assert {job: row["jobs"][job] for job in "ab"} == pytest.approx({"a": 8000 / rate_bps, "b": 24000 / rate_bps})
    zones = _way_shares(fake, Flow("storage", "st000", "st001"))
    assert {port.number: part for port, part in zones.items() if not port.node.is_switch} == {0: 0.5, 1: 0.5}


def test_a_port_is_used_as_it_is_while_jobs_play() -> None:
    # One of the ports is inside a node.
    times = ((0.0, 0), (10.0, 5000), (20.0, 5000))
    rows = [(at, port, "lanes", sent, 0, 0, 0, 0) for port in ("z0l00:1", "z0h000.cpu0:0") for at, sent in times]
    ports = table_of("ports", rows)
    fake: Any = SimpleNamespace(live=SimpleNamespace(fabric=SMALL), table=lambda name: ports)
    outcome: Any = SimpleNamespace(phase=Phase("together", "t", "lanes", 0.0, 20.0, "", 0.0, 10.0))
    rate_bps = next(link.rate_bps for port, link in SMALL.directed_ports() if str(port) == "z0l00:1")
    assert port_use(fake, outcome) == {"z0l00:1": pytest.approx(500 * 8 / rate_bps)}


def static_way(source: str, destination: str) -> tuple[Port, ...]:
    first, last = (SMALL.nics_of[NodeId.parse(name)][0] for name in (source, destination))
    return planned_path(PLAN, SMALL, first, last)


def test_slowdown_is_of_what_a_job_is_measured_by() -> None:
    both = {"read.bandwidth_Bps": 3.0, "write.bandwidth_Bps": 1.0}
    assert slowdown({"algbw_Bps": 3.0}, {"algbw_Bps": 2.0}, NCCL.measures) == 1.5
    assert slowdown(both, {"read.bandwidth_Bps": 6.0}, STORAGE.measures) == 0.5
    assert slowdown({"write.bandwidth_Bps": 2.0}, both, STORAGE.measures) == 2, "alone it had not come to its reads"
    assert slowdown({"read.bandwidth_Bps": 2.0}, {"write.bandwidth_Bps": 1.0}, STORAGE.measures) is None
    made, looked_at = {"file_create.operations_per_s": 90.0}, {"file_stat.operations_per_s": 10.0}
    assert slowdown({**made, **looked_at}, {"file_create.operations_per_s": 45.0}, FILES.measures) == 2
    assert slowdown(made, looked_at, FILES.measures) is None
    assert slowdown({"algbw_Bps": 3.0}, {}, HFREDUCE.measures) is None
    assert slowdown(both, both, HFREDUCE.measures) is None, "a collective is not measured by reads"


def test_a_job_has_the_service_level_that_it_names_and_never_another_in_silence() -> None:
    lanes = {
        "tensor": {"share": 0.5, "service_levels": ["tensor"]},
        "rest": {"share": 0.5, "service_levels": ["hfreduce", "nccl", "storage", "other", "control"]},
    }
    queues = {"queues.service_levels": {"tensor": 10}, "queues.lanes": lanes}
    config = configured([train("a", service_level="tensor")], **queues)
    stage = Stage(SMALL, None, lambda node: None, 1)  # type: ignore[arg-type]
    (placed,) = place_jobs(config.jobs, stage, PLAN, Allocation.PACKED, config.queues.data_levels)
    assert placed.job.level == ServiceLevel("tensor", 10)
    with pytest.raises(KeyError, match="tensor"):
        place_jobs(config.jobs, stage, PLAN, Allocation.PACKED)


def test_a_program_is_placed_by_its_nodes_and_its_command_is_known_to_the_run() -> None:
    programs = {"name": "mine", "kind": "program", "nodes": 3, "command": "python3 /tmp/x/a.py --peers 3"}
    config = configured([programs, train("a")])
    assert config.commands == ("python3 /tmp/x/a.py --peers 3",)
    stage = Stage(SMALL, None, lambda node: None, 1)  # type: ignore[arg-type]
    placed = place_jobs(config.jobs, stage, PLAN, Allocation.PACKED)[0]
    assert (placed.job.level, len(placed.nodes), placed.loads) == (ServiceLevel.OTHER, 3, {})


def test_a_program_is_measured_by_what_its_hosts_sent() -> None:
    columns = ["phase", "job", "operation", "size_bytes", "started_s", "ended_s"]
    rows = [["together", "a", "program", 600, 0.0, 3.0], ["together", "a", "program_stopped", 200, 0.0, 4.0]]
    frames = {"jobs": session().table("jobs"), "steps": session().table("steps")[:0]}
    frames["operations"] = pd.DataFrame(rows, columns=columns)
    fake: Any = SimpleNamespace(table=frames.__getitem__)
    found = job_metrics(fake, job("a", PROGRAM), "together")
    assert found == {
        "played_s": 6.0, "program.bandwidth_Bps": (600 + 200 * 3.5 / 4) / 3.5, "program.ended": 1.0,
        "program.stopped": 1.0, "program.p50_s": 3.0,
    }  # fmt: skip
    factor = slowdown({"program.bandwidth_Bps": 4.0}, found, PROGRAM.measures)
    assert factor == pytest.approx(4.0 / found["program.bandwidth_Bps"])


def test_a_program_that_ends_by_itself_is_as_fast_in_a_long_window_as_in_a_short_one() -> None:
    columns = ["phase", "job", "operation", "size_bytes", "started_s", "ended_s"]
    frames = {"steps": session().table("steps")[:0]}
    frames["operations"] = pd.DataFrame([["together", "a", "program", 600, 0.0, 3.0]], columns=columns)
    for halted_s in (4.0, 40.0):
        times = {"started_s": 0.0, "halted_s": halted_s, "ended_s": halted_s}
        frames["jobs"] = pd.DataFrame([{"phase": "together", "job": "a", "service_level": "other", **times}])
        fake: Any = SimpleNamespace(table=frames.__getitem__)
        assert job_metrics(fake, job("a", PROGRAM), "together")["program.bandwidth_Bps"] == pytest.approx(200.0)


def test_jobs_numbers_count_what_did_not_complete() -> None:
    """Two flows of a hundred failed: the 99th percentile is not that of the other 98."""
    columns = ["phase", "job", "operation", "size_bytes", "started_s", "ended_s"]
    rows = [["together", "b", "flow", 60, 3.0, 3.0 + number / 100] for number in range(1, 99)]
    rows += [["together", "b", "flow_failed", 60, 3.0, 13.0]] * 2
    frames = {"jobs": session().table("jobs"), "steps": session().table("steps")[:0]}
    frames["operations"] = pd.DataFrame(rows, columns=columns)
    fake: Any = SimpleNamespace(table=frames.__getitem__)
    found = job_metrics(fake, job("b", BACKGROUND), "together")
    assert (found["flow.p50_s"], found["flow.p99_at_least_s"]) == pytest.approx((0.5, 10.0))
    assert (found["flow.operations"], found["flow.failed"]) == (98.0, 2.0)
    assert "flow.p99_s" not in found


def test_training_jobs_tell_how_fast_they_train_alone_and_together() -> None:
    placed = [job("a", TRAINING), job("b", HFREDUCE), job("c", TRAINING)]
    numbers = {"whole_step_s": 0.5, "tokens_per_s": 2048.0, "mfu_fraction": 0.415, "time_to_accuracy_s": 7200.0}
    found = {
        "a_alone": {"a": numbers},
        "b_alone": {"b": {"algbw_Bps": 1.0}},
        "c_alone": {"c": {"whole_step_s": 0.25}},
        "together": {"a": {**numbers, "whole_step_s": 0.75}, "b": {"algbw_Bps": 1.0}, "c": {}},
    }
    (table,) = kind_tables(placed, found)
    assert table.title == "Jobs of kind training"
    assert table.columns == ["job", "played", "step", "tokens per s", "MFU", "time to accuracy"]
    assert [list(row) for row in table.words] == [
        ["a", "alone", "500 ms", "2,048", "41.5%", "7200 s"],
        ["a", "together", "750 ms", "2,048", "41.5%", "7200 s"],
        ["c", "alone", "250 ms", "-", "-", "-"],
        ["c", "together", "-", "-", "-", "-"],
    ]
    assert kind_tables([job("b", HFREDUCE)], found) == []


def test_jobs_that_do_not_play_alone_have_no_slowdown_and_their_kind_says_what_came_to_pass() -> None:
    """As of ``cluster_day.yaml``, whose jobs are the platform's users'."""
    config = resolve("experiments/shared_cluster/cluster_day.yaml", [])[1]
    assert isinstance(config, SharedClusterConfig)
    assert (config.alone_time, "alone_time" in config.phase_lengths.by_key) == (None, False)
    phases: list[str] = []
    known = {**TABLES, **tables_of_jobs()}
    events = [{"at_s": 1.0, "event": "submitted", "number": 1, "life": 1, "nodes": "", "why": "one"}]
    played = {"started_s": 0.0, "halted_s": 240.0, "ended_s": 240.0}
    rows: dict[str, list[dict[str, Any]]] = {"platform_events": events, "jobs": [played]}
    lane = SimpleNamespace(lane_of=lambda level: SimpleNamespace(name="control"))

    def run_phase(name: str, *_: Any) -> Any:
        phases.append(name)
        return SimpleNamespace()

    stage = Stage(SMALL, None, lambda node: None, 1)  # type: ignore[arg-type]
    session: Any = SimpleNamespace(
        stage=stage,
        live=SimpleNamespace(plan=PLAN, fabric=SMALL, emulation=SimpleNamespace(lane_plan=lane)),
        phases=[SimpleNamespace(phase=SimpleNamespace(name="together", started_s=0.0, load_s=(0.0, 240.0)))],
        use_queueing=lambda queueing: None,
        run_phase=run_phase,
        table=lambda name: pd.DataFrame(
            [{"phase": "together", "job": "platform", **row} for row in rows.get(name, [])],
            columns=list(dict.fromkeys(["phase", "job", *(rows[name][0] if name in rows else known[name].columns)])),
        ),
    )
    placed = place_jobs(config.jobs, stage, PLAN, Allocation.PACKED)
    together: Any = SimpleNamespace(phase=session.phases[0].phase)
    summary = summarize(session, placed, together, were_alone=False)
    assert summary["answer"] == "platform: 0 of 6 jobs finished, 5 not submitted before the phase ended."
    assert (summary["slowdowns"], {metric.phase for metric in summary["metrics"]}) == ([], {"together"})
    assert [row[5:] for row in summary["tables"][0].words] == [["-", "-", "-"], ["-", "nothing done", "-"]]
