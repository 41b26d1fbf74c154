"""Forward passes that a backward pass computes again: they communicate again, for each kind of parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from tests.traffic.work.training import at_once, computes_of, graph_of_job, played
from traffic.work.checks import require_playable
from traffic.work.closed_forms import counted, sent_bytes
from traffic.work.operations import CollectiveCall

AGAIN = {"forward": 1.0, "recompute": True}
LAYERS, VECTORS = 40, 2 * 2048 * 5120
TENSOR: dict[str, Any] = {"tensor": 4}


def test_a_layer_has_six_tensor_parallel_allreduces_in_place_of_four() -> None:
    graph = graph_of_job("llama_13b", layout=TENSOR, compute=AGAIN)
    calls = 6 * LAYERS + 2
    assert counted(graph, 0) == {("tensor", "allreduce"): (calls, calls * VECTORS)}


def test_sequence_parallel_ranks_gather_and_spread_again() -> None:
    graph = graph_of_job("llama_13b", layout={**TENSOR, "sequence_parallel": True}, compute=AGAIN)
    for collective in ("all_gather", "reduce_scatter"):
        assert counted(graph, 0)["tensor", collective][0] == 6 * LAYERS + 2


@pytest.mark.parametrize("ranks", [2, 4])
def test_keys_and_values_go_around_the_ring_again(ranks: int) -> None:
    block = 2 * (2048 // ranks) * 2 * 5120
    graph = graph_of_job("llama_13b", layout={"context": ranks}, compute=AGAIN)
    assert sent_bytes(graph)["context"] == [4 * (ranks - 1) * block * LAYERS] * ranks
    gathers = graph_of_job("llama_13b", layout={"context": ranks, "context_exchange": "all_gather"}, compute=AGAIN)
    assert counted(gathers, 0)["context", "all_gather"][0] == 3 * LAYERS
    require_playable(graph)


def test_tokens_go_to_experts_and_back_again() -> None:
    job: dict[str, Any] = {"layout": {"data": 8, "expert": 8, "gpus_per_node": 4}}
    once = graph_of_job("deepseek_moe_16b", **job)
    again = graph_of_job("deepseek_moe_16b", **job, compute=AGAIN)
    for kind in ("dispatch", "combine"):
        assert sum(sent_bytes(again)[kind]) == pytest.approx(1.5 * sum(sent_bytes(once)[kind]))
    require_playable(again)


@pytest.mark.parametrize("schedule", ["1f1b", "zb1p", "dualpipe"])
def test_all_schedules_compute_and_send_again_once_per_micro_batch(schedule: str) -> None:
    layout = {"tensor": 2, "pipeline": 2}
    keys: dict[str, Any] = {"layout": layout, "micro_batches": 4, "pipeline": {"schedule": schedule}}
    once, again = graph_of_job("llama_13b", **keys), graph_of_job("llama_13b", **keys, compute=AGAIN)
    names = [one.name for one in again.operations[0] if isinstance(one, CollectiveCall) and " again " in one.name]
    assert len(names) == 2 * (LAYERS // 2) * 4
    took = [sum(one.duration_s or 0.0 for one in computes_of(graph)) for graph in (once, again)]
    assert took[1] == pytest.approx(took[0] * 4 / 3)
    require_playable(again)


def test_layers_that_send_nothing_take_their_time_in_the_backward_pass() -> None:
    again = played("llama_13b", at_once, compute=AGAIN)
    assert again.end_s == pytest.approx(4.0)
    assert [one.name for one in computes_of(again.graph)] == ["forward 0.0", "backward 0.0", "update"]
