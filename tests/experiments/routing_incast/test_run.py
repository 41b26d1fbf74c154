"""What the incast experiment says of a run: congestion and slow-downs from rows, and a wrong config is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from controllers.planning.policies import ADAPTIVE, ECMP, STATIC
from experiments.routing_incast.cases import INCAST, Traffic, Variant
from experiments.routing_incast.config import RoutingIncastConfig, choose
from experiments.routing_incast.study import STUDY, answer
from fabric.errors import ConfigError
from fabric.metrics import by_path, metrics_of
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.results import Phase
from fabric.tables import TABLES
from runs.job_metrics import DOWN, TIERS, TO_CLIENT, UP, congested_numbers, deep_ports, deep_shares
from runs.registry import resolve
from runs.session import Session
from runs.study import Outcome
from runs.ways import Moved
from tests.experiments.declared import undeclared
from tests.rows import table_of
from traffic.flows.fan_in_measures import reader_numbers, slowdowns

PHASE = Phase("p", "A phase", "shared", 10.0, 20.0)


def config_of(*overrides: str) -> RoutingIncastConfig:
    return cast(RoutingIncastConfig, resolve("routing_incast", overrides)[1])


def ports_table(*rows: tuple[float, str, str, int]) -> pd.DataFrame:
    """Rows of at_s, port, lane, backlog_bytes."""
    full = [(at, port, lane, 0, 0, 0, backlog, 0) for at, port, lane, backlog in rows]
    return table_of("ports", full).astype(TABLES["ports"].dtypes)


def reads_table(*rows: tuple[str, str, str, float, float, int]) -> pd.DataFrame:
    """Rows of phase, operation, host, started_s, ended_s, size_bytes."""
    full = [(p, "storage", kind, host, "x", size, began, ended, 0) for p, kind, host, began, ended, size in rows]
    return table_of("operations", full).astype(TABLES["operations"].dtypes)


# Congestion and slow-downs --------------------------------------------------------------------------------------------


def test_a_port_is_as_deep_as_all_its_lanes_together_in_samples_of_the_phase() -> None:
    ports = ports_table(
        (5.0, "a:1", "storage", 99),  # Before the phase.
        (11.0, "a:1", "storage", 6),
        (11.0, "a:1", "other", 5),
        (12.0, "a:1", "storage", 10),
        (12.0, "a:1", "other", 0),
        (11.0, "b:1", "storage", 0),
        (12.0, "b:1", "storage", 0),
    )
    assert deep_shares(ports, PHASE, 10) == {"a:1": 0.5, "b:1": 0.0}


def test_a_port_that_is_deep_while_the_load_plays_is_congested_however_long_the_last_reads_take() -> None:
    loaded = Phase("p", "A phase", "shared", 10.0, 20.0, "", 10.0, 12.0)
    ports = ports_table(*((10.0 + place, "a:1", "shared", 20 if place <= 2 else 0) for place in range(11)))
    assert deep_shares(ports, loaded, 10) == {"a:1": 1.0}
    assert deep_shares(ports, PHASE, 10) == {"a:1": pytest.approx(3 / 11)}


def test_a_port_is_congested_in_more_than_the_share_of_samples_not_in_just_that() -> None:
    rows = [(10.0 + place, port, "shared", 20 if place < deep else 0) for port, deep in (("a:1", 2), ("b:1", 3))
            for place in range(10)]  # fmt: skip
    assert deep_ports(ports_table(*rows), PHASE, 10, 0.2) == ["b:1"]
    assert deep_ports(ports_table(*rows), PHASE, 20, 0.0) == []


def test_ports_of_hosts_are_no_ports_of_switches() -> None:
    fabric = config_of().fabric()
    rows = [(11.0, port, "shared", 20) for port in ("z0l00:9", "z0l01:9", "z0h000:0")]
    found = congested_numbers(fabric, fabric.computes[-1:], ports_table(*rows), PHASE, 10, 0.5)
    assert found == {
        "congested_ports": 2, "congested_ports.leaf_to_client": 0, "congested_ports.spine_to_leaf": 0,
        "congested_ports.leaf_to_spine": 2, "congested_ports.leaf_to_other_hosts": 0, "congested_ports.inter-zone": 0,
    }  # fmt: skip


def test_a_readers_bandwidth_counts_only_the_time_in_which_it_reads() -> None:
    reads = reads_table(("p", INCAST, "h", 10.0, 10.5, 1000), ("p", INCAST, "h", 15.0, 16.5, 1000))
    assert reader_numbers(reads, INCAST) == {"reads": 2, "p50_s": 0.5, "p99_s": 1.5, "bandwidth_Bps": 1000.0}
    assert reader_numbers(reads[:0], INCAST) == {}


def test_a_read_that_failed_is_among_those_of_the_percentiles() -> None:
    failed = f"{INCAST}_failed"
    reads = reads_table(("p", INCAST, "h", 10.0, 10.5, 1000), ("p", failed, "h", 15.0, 17.0, 0))
    assert reader_numbers(reads, INCAST) == {"reads": 1, "p50_s": 0.5, "p99_at_least_s": 2.0, "bandwidth_Bps": 2000.0}


def test_slow_downs_compare_each_reader_with_itself() -> None:
    alone = reads_table(("a", "apart", "h", 0, 1, 4000), ("a", "apart", "i", 0, 1, 1000))
    beside = reads_table(("b", "apart", "h", 0, 1, 1000), ("b", "apart", "i", 0, 1, 1000))
    assert slowdowns(alone, beside, 1.1) == {"slowdown": 2.5, "worst_slowdown": 4.0, "slowed_pairs": 1}
    assert slowdowns(alone, beside[:1], 4.0) == {"slowdown": 4.0, "worst_slowdown": 4.0, "slowed_pairs": 0}
    assert slowdowns(alone[:0], beside, 1.1) == {}


# The summary ----------------------------------------------------------------------------------------------------------


def summary_of(config: RoutingIncastConfig, deep: dict[str, list[str]], speed: dict[str, float]) -> dict[str, Any]:
    """Return the summary of a run in which ``deep`` ports are congested and readers apart get ``speed``, by phase."""
    fabric = config.fabric()
    cases = Variant.grid(config)
    phases = {
        one.name: Phase(one.name, one.title, "shared", 10.0 * place, 10.0 * place + 9)
        for place, one in enumerate(cases)
    }
    ports, reads = [], []
    for name, phase in phases.items():
        for port, _ in fabric.directed_ports():
            backlog = 2**20 if str(port) in deep[name] else 0
            ports.append((phase.started_s + 1, str(port), "shared", backlog))
        ended = phase.started_s + 1000 / speed[name]
        reads.append((name, "apart", "h", phase.started_s, ended, 1000))
        if name.endswith("incast"):
            reads.append((name, INCAST, "c", phase.started_s, phase.started_s + 1, 8000))
    tables = {"ports": ports_table(*ports), "operations": reads_table(*reads)}
    conservation = SimpleNamespace(dropped_by_queues=3, sent_packets=1000, retransmissions=2)
    leaf, host = NodeId.parse("z0l00"), NodeId.parse("z0h001")
    uplink = next(port for port in fabric.uplinks_of(leaf) if fabric.peer(port).node.name == "z0s02")
    outcomes = []
    for place, phase in enumerate(phases.values()):  # One more in each; what was moved before it is not of it.
        at_s = (phase.started_s + 1, *[phase.started_s - 1] * (place > 0))
        moves = [Moved(at, leaf, fabric.nics_of[host][0].ip, uplink.number) for at in at_s for _ in range(place)]
        outcomes.append(SimpleNamespace(phase=phase, conservation=conservation, moves=tuple(moves)))
    session = SimpleNamespace(live=SimpleNamespace(fabric=fabric), phases=outcomes, table=tables.__getitem__)
    counted = {name: {"moves": place, "reorderings": 0.0} for place, name in enumerate(phases)}
    return STUDY.summarize(cast(Session, session), config, cases, counted)


def test_the_summary_counts_ports_by_tier_and_says_which_policy_spreads_further() -> None:
    config = config_of("policies=[static,adaptive]")
    deep = {
        "shared_static_alone": [],
        "shared_static_incast": ["z0l03:3", "z0s00:4"],
        "shared_adaptive_alone": ["z0h000:0"],
        "shared_adaptive_incast": ["z0s00:4", "z0s01:4", "z0l00:9", "z0h000:0"],
    }
    speed = dict(zip(deep, (1000.0, 1000.0, 1000.0, 500.0), strict=True))
    summary = summary_of(config, deep, speed)
    numbers = by_path(summary["metrics"])
    tiers = {tier: f"congested_ports.{tier.replace(' → ', '_to_').replace(' ', '_')}" for tier in TIERS}
    counted = {
        phase: {tier: numbers[f"{phase}.{name}"] for tier, name in tiers.items() if numbers[f"{phase}.{name}"]}
        for phase in deep
    }
    assert counted == {
        "shared_static_alone": {},
        "shared_static_incast": {TO_CLIENT: 1, DOWN: 1},
        "shared_adaptive_alone": {},
        "shared_adaptive_incast": {UP: 1, DOWN: 2},
    }
    assert numbers["shared_adaptive_incast.apart.worst_slowdown"] == 2.0
    assert by_path(summary["metrics"])["shared_adaptive_incast.apart.slowdown"] == 2.0
    assert "shared_adaptive_incast.apart.slowdown" in {one.path for one in summary["metrics"] if one.job == "storage"}
    assert by_path(summary["metrics"])["shared_adaptive_incast.moves"] == 3
    assert undeclared("routing_incast", summary["metrics"]) == []
    assert by_path(summary["metrics"])["shared_adaptive_incast.congested_ports.spine_to_leaf"] == 2
    assert summary["moves"]["shared_static_incast"] == [
        {"at_s": 11.0, "leaf": "z0l00", "host": "z0h001", "spine": "z0s02"}
    ]
    assert summary["answer"] == (
        "In one shared queue: static 2 congested ports, pairs apart 1.00 times as slow as alone, the slowest 1.00 "
        "times; adaptive 3 congested ports, pairs apart 2.00 times as slow as alone, the slowest 2.00 times: compared "
        "with static routes, adaptive ones have 1 congested port more and 1 slowed pair more among pairs apart."
    )


@pytest.mark.parametrize(
    ("static", "adaptive", "words"),
    [
        ((4, 0), (4, 0), "as many congested ports and as many slowed pairs among"),
        ((5, 0), (3, 2), "2 congested ports fewer and 2 slowed pairs more among"),
    ],
)
def test_the_answer_says_what_was_seen_whatever_the_paper_says(
    static: tuple[int, int], adaptive: tuple[int, int], words: str
) -> None:
    names = ("congested_ports", "apart.slowed_pairs")
    found = []
    for policy, numbers in ((STATIC, static), (ADAPTIVE, adaptive)):
        case = Variant(Queueing.SHARED, policy, Traffic.INCAST)
        found.append(Outcome(case, metrics_of(case.name, "", dict(zip(names, numbers, strict=True)))))
    assert words in answer(found)
    assert "compared with static" not in answer(found[1:])


# The config -----------------------------------------------------------------------------------------------------------


def test_every_queueing_is_played_with_every_policy() -> None:
    config = config_of("policies=[static,adaptive]", "queueings=[shared,lanes]")
    names = [one.name for one in Variant.grid(config) if one.is_beside]
    assert names == ["shared_static_incast", "shared_adaptive_incast", "lanes_static_incast", "lanes_adaptive_incast"]
    assert config.queueings_played == (Queueing.SHARED, Queueing.LANES)
    assert config.routing_of(ECMP).adaptive == config.routing.adaptive


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("policies=[static,static]", "named more than once"),
        ("policies=[]", "at least 1 item"),
        ("queueings=[shared,shared]", "named more than once"),
        ("bystanders.service_level=storrage", "did you mean 'storage'"),
        ("bystanders.apart=40", "bystanders.apart: 40 wanted"),
        ("incast.servers=9", "incast.servers: 9 are needed"),
        ("routing.policy=ecmp", "routing.policy: ecmp is not what decides here"),
        ("phase_time=0.1", "incast.period: exceeds phase_time"),
        ("topology.storage=0", "incast.servers: 2 are needed, the topology has 0 storage nodes"),
    ],
)
def test_what_cannot_be_played_is_refused(override: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(override)
    assert fault in str(refused.value)


def test_packed_storage_is_played_by_the_same_command() -> None:
    config = config_of("topology.placement=packed")
    incast, pairs = choose(config, config.fabric())
    assert len(incast.servers) == 8
    assert {kind: len(found) for kind, found in pairs.items()} == {"apart": 4, "crossing": 2}
