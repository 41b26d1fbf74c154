"""The step that is played: its size, its variants, and what does not fit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.expert_parallel.config import ExpertParallelConfig, servers_of
from experiments.expert_parallel.study import STUDY, Variant
from fabric.errors import ConfigError
from fabric.measure.verdict import Status
from fabric.results import Phase
from runs.registry import resolve
from runs.study import Jobs
from topologies.load import load_fabric
from traffic.work.checks import require_playable
from traffic.work.generators.expert_step import SCHEDULED_S
from traffic.work.operations import CollectiveCall, Compute

FABRIC = load_fabric("next_generation_ep64")
NVLINK_BPS = 450e9


def configured(*overrides: str) -> ExpertParallelConfig:
    return cast(ExpertParallelConfig, resolve("expert_parallel", overrides)[1])


def test_what_is_shipped_fits() -> None:
    assert list(configured().faults(FABRIC)) == []


def test_measured_times_alone_are_the_published_schedule() -> None:
    assert configured().paper_s == pytest.approx(SCHEDULED_S, rel=0.005)


@pytest.mark.parametrize("shrink", [16, 64])
def test_bytes_and_times_shrink_alike(shrink: int) -> None:
    config = configured(f"shrink={shrink}", "layers=1")
    routed, graph = config.sent, config.graph(FABRIC)
    require_playable(graph)
    assert graph.ranks == 64
    assert routed.nodes_per_token == pytest.approx(3.95, rel=0.01)
    dispatched = [one for one in graph.operations[0] if isinstance(one, CollectiveCall) and one.sent_bytes]
    assert sum(dispatched[0].sent_bytes) * shrink == pytest.approx(4096 * 3.95 * 7392, rel=0.03)
    (attention,) = [one for one in graph.operations[0] if isinstance(one, Compute) and one.name == "attn(F) 0"]
    assert attention.duration_s is not None and attention.duration_s * shrink == pytest.approx(4.833e-3)


def test_tokens_inside_a_node_are_packets_or_a_time() -> None:
    configs = [configured("layers=1", f"nvlink_in_packets={packets}") for packets in ("false", "true")]
    timed, played = (one.graph(FABRIC).operations[0] for one in configs)
    in_node = [one for one in timed if isinstance(one, Compute) and one.name.endswith("in node")]
    assert len(in_node) == 4
    sent = [one for one in played if isinstance(one, CollectiveCall) and one.group == "node.0" and one.sent_bytes]
    assert [one.duration_s for one in in_node] == [
        pytest.approx((sum(call.sent_bytes) - call.sent_bytes[0]) / NVLINK_BPS) for call in sent
    ]


def test_deepeps_kernels_take_their_time_around_the_rail() -> None:
    config = configured("layers=1", "kernels=deepep", "nodes=4")
    graph = config.graph(FABRIC)
    require_playable(graph)
    operations = graph.operations[0]
    called = [place for place, one in enumerate(operations) if one.name.startswith("combine of combine(F) 0")]
    notify, in_node, first, rail = called
    assert [operations[one].after for one in (in_node, first, rail)] == [(notify,), (notify,), (first,)]
    assert isinstance(operations[rail], CollectiveCall)
    (rest,) = (one for one in operations if one.name == "rest of combine(F) 0")
    assert set(rest.after) == {in_node, rail}


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("nodes=7", "kernels: deepep: its chunks are known with 2, 4, 8 nodes, not 7; set nodes to one"),
        ("nvlink_in_packets=true", "kernels: deepep: NVLink has its kernels' rate, not the fabric's; set"),
    ],
)
def test_what_deepeps_kernels_do_not_fit_is_named(override: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured("kernels=deepep", override)
    assert any(fault in one for one in refused.value.faults)


def test_each_node_reads_from_the_storage_that_its_first_nic_reaches() -> None:
    assert {len(servers_of(FABRIC, node)) for node in FABRIC.computes} == {4}


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("nodes=9", "nodes: 9: next_generation_ep64 has 8 compute nodes; use fewer"),
        ("routed={experts: 100}", "routed.experts: 100 over 64 ranks; use a multiple"),
        ("variants=[{name: a}, {name: a}]", "variants: a, a: a name twice; give each its own"),
        (
            "variants=[{name: a, failures: [{link: z0l99-z0s00, at: 0}]}]",
            "variants: a: failures.0.link: next_generation_ep64 has no 'z0l99'",
        ),
        ("topology=fire_flyer_2_small", "no nodes of 8 GPUs with NVLink"),
        ("topology=next_generation_nodes", "has no storage nodes to read from"),
    ],
)
def test_what_does_not_fit_is_named(override: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(override)
    assert any(fault in one for one in refused.value.faults)


def test_a_variants_failure_that_was_never_due_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "{link: z0l00-z0s00, at: 0.2 ms, for: 1 ms, rate: 0.5}, {link: z0l00-z0s01, at: 9 s, for: 1 ms}"
    config = configured(f"variants=[{{name: cut, failures: [{line}]}}, {{name: idle}}]")
    done = pd.DataFrame({"phase": ["cut", "other"], "causes": ["0", "1"], "missed": "", "state": "rate 0.5"})
    session = session_of(Phase("cut", "cut", "lanes", 1.0, 2.0, "static", 1.0, 1.5), done)
    monkeypatch.setattr("runs.study.started", lambda *_: nullcontext())
    assert isinstance(STUDY.play, Jobs)
    play = replace(STUDY.play, make=lambda *_: [])
    for case in Variant.grid(config):
        play(session, config, case)
    (check,) = session.checks
    assert check.status is Status.DEGRADED
    assert check.text == (
        "never carried out: variants.cut.failures.1 (z0l00:7--z0s01:1, due at 9 s): no phase is so long; the longest "
        "has 0.5 s"
    )
    assert [None if one is None else len(one.events) for one in session.schedules] == [4, None], "each begins and ends"
    done.loc[1, "phase"] = "cut"
    session.checks.clear()
    play(session, config, Variant.grid(config)[0])
    assert session.checks == []


def session_of(phase: Phase, failures: pd.DataFrame) -> Any:
    """A session whose phases take no time and have these rows of failures."""
    schedules: list[Any] = []

    def run_phase(*args: Any) -> SimpleNamespace:
        schedules.append(args[-1])
        return SimpleNamespace(phase=phase)

    return SimpleNamespace(
        live=SimpleNamespace(fabric=FABRIC), checks=[], schedules=schedules, run_phase=run_phase,
        table={"failures": failures}.__getitem__, use_routing=lambda *_: None, use_queueing=lambda *_: None,
    )  # fmt: skip
