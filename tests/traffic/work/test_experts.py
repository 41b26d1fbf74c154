"""Expert parallelism as DeepEP sends it: nodes a token goes to, bytes, and DeepSeek's step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.traffic.work.training import at_once, computes_of, graph_of_job
from traffic.work.closed_forms import Links, counted, sent_bytes
from traffic.work.generators.expert_exchange import sent_back, sent_out
from traffic.work.generators.expert_step import (
    PUBLISHED_S,
    SCHEDULED_S,
    deepseek_phases,
    measured_step,
    step_with_bytes,
)
from traffic.work.generators.routing import Routed, RoutingRule, mean_nodes, route, token_bytes
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall, Operation
from traffic.work.step_metrics import exposed_s, slack_s

V3 = RoutingRule(experts=256, top=8, groups=8, top_groups=4)
TOKENS = 4096


@pytest.fixture(scope="module")
def routed() -> Routed:
    """Few tokens of each of 64 ranks."""
    return route(V3, 64, 8, 256)


def test_bytes_of_a_token() -> None:
    assert token_bytes(7168, "fp8") == 7392
    assert token_bytes(7168, "bf16") == 14_336
    assert token_bytes(2048, "fp8") == 2048 + 64


def test_nodes_of_a_token_if_nothing_limits_them() -> None:
    assert mean_nodes(256, 8, 2) == pytest.approx(1.993, abs=1e-3)
    assert mean_nodes(256, 8, 4) == pytest.approx(3.61, abs=5e-3)
    free = RoutingRule(experts=256, top=8, groups=1, top_groups=1)
    assert route(free, 4, 1, TOKENS).nodes_per_token == pytest.approx(mean_nodes(256, 8, 4), rel=0.01)


@pytest.mark.parametrize(("best", "nodes"), [(2, 3.95), (1, 3.98)])
def test_nodes_of_a_token_by_the_rule_of_groups(best: int, nodes: float) -> None:
    """V3's rule, the sum of a group's two highest, and that of DeepEP's test, its highest."""
    rule = RoutingRule(experts=256, top=8, groups=8, top_groups=4, best=best)
    chosen = rule.chosen(0, TOKENS) // 32
    counts = [len(set(row)) for row in chosen.tolist()]
    assert max(counts) <= 4
    assert np.mean(counts) == pytest.approx(nodes, abs=0.01)


def test_all_copies_arrive_and_all_come_back(routed: Routed) -> None:
    assert routed.copies.sum() == 64 * 256 * 8
    assert (routed.to_rank <= routed.copies).all()
    out = [sent_out(routed, rank, 8) for rank in range(64)]
    back = [sent_back(routed, rank, 8) for rank in range(64)]
    assert sum(sum(one.over_rail) for one in out) == sum(sum(one.over_rail) for one in back) == routed.to_node.sum()
    assert sum(sum(one.in_node) for one in out) == sum(sum(one.in_node) for one in back) == routed.to_rank.sum()
    for node in range(8):
        for local in range(8):
            there, here = node * 8 + local, 3
            assert out[here].over_rail[node] == back[node * 8 + 3].over_rail[0]
            assert out[there].in_node[here] == back[node * 8 + here].in_node[local]


def test_skew_is_seeded_and_unequal() -> None:
    def loads(**keys: float) -> list[int]:
        rule = RoutingRule(experts=64, top=6, groups=1, top_groups=1, **keys)  # type: ignore[arg-type]
        return route(rule, 8, 8, 512).copies.sum(axis=0).tolist()  # type: ignore[no-any-return]

    even, skewed = loads(), loads(skew=0.5)
    assert max(even) < 1.1 * min(even)
    assert max(skewed) > 1.3 * min(skewed)
    assert loads(skew=0.5) == skewed
    assert loads(skew=0.5, seed=1) != skewed


def test_bytes_of_a_layer_with_experts() -> None:
    """Tokens x nodes x 7,392 B out and 14,336 B back, of which (N - 1) / N to other nodes if all are alike."""
    job = {"layout": {"data": 64, "expert": 64}, "sequence": 512}
    graph = graph_of_job("deepseek_v3_layer", **job)
    rails = [one for one in graph.operations[5] if isinstance(one, CollectiveCall) and "rail" in one.group]
    assert {one.group for one in rails} == {"ep.0.rail.5"}
    assert graph.groups["ep.0.rail.5"] == tuple(range(5, 64, 8))
    assert graph.groups["ep.0.node.0"] == tuple(range(8))
    out, back = rails[0], rails[1]
    assert out.name == "dispatch over rail forward 0.0"
    assert out.size_bytes == pytest.approx(512 * 3.95 * 7392, rel=0.01)
    assert back.size_bytes == pytest.approx(512 * 3.95 * 14_336, rel=0.03)
    assert [one.size_bytes for one in rails] == [out.size_bytes, back.size_bytes] * 2, "the backward pass swaps them"
    sent = sum(out.sent_bytes) - out.sent_bytes[0]
    assert sent == pytest.approx(out.size_bytes * 7 / 8, rel=0.03)
    list_schedule(graph, at_once)


def test_without_merging_all_copies_are_sent() -> None:
    """DeepEP's low latency: 128 tokens, 8 copies each: 7,569,408 B out and 14,680,064 B back."""
    job = {"layout": {"data": 64, "expert": 64}, "sequence": 128, "experts": {"dispatch": "per_copy"}}
    graph = graph_of_job("deepseek_v3_layer", **job)
    calls = [one for one in graph.operations[0] if isinstance(one, CollectiveCall) and one.group == "ep.0"]
    assert calls[0].size_bytes == 7_569_408
    total = sum(
        one.size_bytes
        for operations in graph.operations
        for one in operations
        if isinstance(one, CollectiveCall) and one.name == "combine forward 0.0"
    )
    assert total == 64 * 14_680_064
    list_schedule(graph, at_once)


def test_gradients_of_experts_have_groups_of_their_own() -> None:
    graph = graph_of_job("deepseek_moe_16b", layout={"data": 8, "expert": 4}, data_parallel={"strategy": "zero1"})
    sizes = counted(graph, 0)["gradients", "reduce_scatter"][1]
    experts = 27 * 64 * 3 * 2048 * 1408
    assert sizes == 4 * (16_375_728_128 - experts + experts // 4)
    assert graph.groups["edp.0"] == (0, 4)
    sent = sent_bytes(graph)["gradients"]
    assert sent[0] == pytest.approx(4 * ((16_375_728_128 - experts) * 7 / 8 + experts / 4 / 2))


def test_deepseeks_step_with_the_times_that_were_measured() -> None:
    timeline = list_schedule(measured_step(deepseek_phases()), at_once)
    assert timeline.end_s == pytest.approx(SCHEDULED_S, rel=1e-9)
    assert timeline.end_s == pytest.approx(PUBLISHED_S, rel=0.005)
    slack = slack_s(timeline, 0)
    assert [slack[f"combine(F) {layer}"] for layer in range(3)] == pytest.approx([1.9e-3, 1.3e-3, 0.11e-3], abs=2e-5)
    waits = exposed_s(timeline, 0)
    assert waits["combine(B)"] == pytest.approx(0.27e-3, abs=1e-5), "mlp(B) of the last layer"
    assert waits["dispatch(B)"] == pytest.approx(1.40e-3, abs=1e-5), "attn(B) of the last layer"
    assert waits.keys() == {"combine(B)", "dispatch(B)"}


@pytest.mark.parametrize(("late_s", "end_s"), [(0.08e-3, 0.0), (2e-3, 0.1e-3)])
def test_a_combine_that_comes_later_than_its_slack_delays_the_step(late_s: float, end_s: float) -> None:
    """combine(F) of layer 2 has 0.105 ms to spare, and combine(B) of layer 3 behind it none."""
    phases = [
        replace(one, duration_s=one.duration_s + late_s) if one.title == "combine(F) 2" else one
        for one in deepseek_phases()
    ]
    later = list_schedule(measured_step(phases), at_once).end_s - SCHEDULED_S
    assert later == pytest.approx(end_s) if not end_s else later > end_s


@pytest.mark.parametrize(("nodes", "mean", "dispatch", "combine"), [(4, 3.61, 58, 57), (8, 3.98, 51, 50)])
def test_deepeps_table(nodes: int, mean: float, dispatch: float, combine: float) -> None:
    """Logical GB/s of DeepEP's table within 10 % on NICs of 45 GB/s: bytes to the own node count, and cross no NIC."""
    groups = RoutingRule(experts=256, top=8, groups=nodes, top_groups=min(nodes, 4), best=1)
    found = route(groups, nodes, 1, 1024)
    assert found.nodes_per_token == pytest.approx(mean, rel=0.01)
    links = Links(1, 1e15, 45e9)
    for unit, published in ((7392, dispatch), (14_336, combine)):
        calls = [
            CollectiveCall(
                collective="all_to_all_v",
                group="all",
                size_bytes=int(tokens.sum()) * unit,
                sent_bytes=tuple(int(count) * unit for count in tokens),
            )
            for tokens in found.to_node
        ]
        seconds = links(calls, range(nodes))
        logical = calls[0].size_bytes / seconds / 1e9
        assert logical == pytest.approx(published, rel=0.1)


def test_deepseeks_step_with_bytes(routed: Routed) -> None:
    graph = step_with_bytes(deepseek_phases(), routed, 8)
    assert graph.ranks == 64
    found = counted(graph, 0)
    assert {key: count for key, (count, _) in found.items()} == {
        ("notify", "barrier"): 16,
        ("dispatch", "all_to_all_v"): 16,
        ("combine", "all_to_all_v"): 16,
    }
    links = Links(8, 160e9, 8 * 45e9)

    def scaled(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        return links(operations, ranks) * TOKENS / 256

    timeline = list_schedule(graph, scaled)
    computing = sum(one.duration_s or 0 for one in computes_of(graph) if one.stream == "compute")
    assert computing == pytest.approx(126.9e-3, rel=1e-3)
    assert timeline.end_s < PUBLISHED_S, "no notify kernel waits for a slower rank"
    assert timeline.end_s >= computing
