"""Tensor, sequence and context parallelism: how many collectives and bytes a layer has."""

from __future__ import annotations

import pytest

from tests.traffic.work.training import at_once, graph_of_job
from traffic.work.closed_forms import counted, sent_bytes
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import Compute

LAYERS = 40
VECTORS = 2 * 2048 * 5120
"""Bytes of a sequence's vectors in LLaMa-13B: 2 mbs s h."""


@pytest.mark.parametrize("samples", [1, 3])
def test_tensor_parallel_ranks_add_up_twice_forward_and_twice_backward(samples: int) -> None:
    graph = graph_of_job("llama_13b", layout={"tensor": 4}, micro_batch=samples)
    calls = 4 * LAYERS + 2
    """Beside the layers' the embedding's forward and the head's backward."""
    assert counted(graph, 0) == {("tensor", "allreduce"): (calls, calls * samples * VECTORS)}


def test_sequence_parallel_ranks_gather_and_spread_the_same_bytes() -> None:
    plain = graph_of_job("llama_13b", layout={"tensor": 4})
    spread = graph_of_job("llama_13b", layout={"tensor": 4, "sequence_parallel": True})
    found = counted(spread, 0)
    assert found["tensor", "all_gather"] == (4 * LAYERS + 2, (4 * LAYERS + 2) * VECTORS)
    assert found["tensor", "reduce_scatter"] == (4 * LAYERS + 2, (4 * LAYERS + 2) * VECTORS)
    assert sent_bytes(spread)["tensor"] == pytest.approx(sent_bytes(plain)["tensor"])


def test_ranks_share_a_sequences_flops() -> None:
    whole = [one.flops for one in graph_of_job("llama_13b").operations[0] if isinstance(one, Compute)]
    for layout in ({"tensor": 4}, {"context": 4}, {"tensor": 2, "context": 2}):
        part = [one.flops for one in graph_of_job("llama_13b", layout=layout).operations[0] if isinstance(one, Compute)]
        assert sum(part) == pytest.approx(sum(whole) / 4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_ring_passes_keys_and_values_once_and_their_gradients_back(ranks: int) -> None:
    """A rank's keys and values to n - 1 others forward; in the backward pass these, and as many gradients."""
    block = 2 * (2048 // ranks) * 2 * 5120
    graph = graph_of_job("llama_13b", layout={"context": ranks})
    forward_and_backward = 3 * (ranks - 1) * block * LAYERS
    assert counted(graph, 0)["context", "send"][1] == forward_and_backward
    assert sent_bytes(graph)["context"] == [forward_and_backward] * ranks
    list_schedule(graph, at_once)


def test_gathering_instead_of_a_ring() -> None:
    graph = graph_of_job("llama_13b", layout={"context": 4, "context_exchange": "all_gather"})
    whole = 2 * 2048 * 2 * 5120
    assert counted(graph, 0)["context", "all_gather"] == (2 * LAYERS, 2 * LAYERS * whole)
    assert counted(graph, 0)["context", "reduce_scatter"] == (LAYERS, LAYERS * whole)
    list_schedule(graph, at_once)


def test_fewer_heads_of_keys_are_fewer_bytes() -> None:
    graph = graph_of_job("llama3_70b", layout={"context": 2, "tensor": 8})
    block = 2 * (8192 // 2) * 2 * 8 * 128 // 8
    assert counted(graph, 0)["context", "send"][1] == 3 * block * 80


def test_gradients_are_added_up_over_context_and_data() -> None:
    graph = graph_of_job("llama_13b", layout={"context": 2, "data": 2, "tensor": 2})
    assert graph.groups["dp-cp.0"] == (0, 2, 4, 6)
    replicated = 40 * 2 * 5120 + 5120
    expected = 4 * ((13_015_864_320 - replicated) // 2 + replicated)
    assert counted(graph, 0)["gradients", "allreduce"][1] == expected
