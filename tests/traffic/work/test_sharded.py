"""FSDP and ZeRO 3: how often parameters are gathered, when, and how many bytes that is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.traffic.work.training import graph_of_job, played
from traffic.work.closed_forms import counted, sent_bytes
from traffic.work.operations import CollectiveCall, Operation
from traffic.work.step_metrics import exposed_s

UNITS = 25
FSDP = {"strategy": "fsdp", "gradient_bytes": 2}


def counts(ranks: int = 4, micro_batches: int = 1, **options: object) -> dict[tuple[str, str], tuple[int, int]]:
    graph = graph_of_job(
        "gpt2_medium", layout={"data": ranks}, micro_batches=micro_batches, data_parallel={**FSDP, **options}
    )
    return counted(graph, 0)


def test_full_shard_gathers_2u_less_1_and_spreads_u() -> None:
    assert counts() == {
        ("parameters", "all_gather"): (2 * UNITS - 1, 1_314_265_088),
        ("gradients", "reduce_scatter"): (UNITS, 709_646_336),
    }


def test_parameters_that_stay_are_gathered_once() -> None:
    assert counts(reshard=False)["parameters", "all_gather"] == (UNITS, 709_646_336)
    assert counts(reshard=False)["gradients", "reduce_scatter"][0] == UNITS


def test_no_sync_spreads_gradients_once() -> None:
    assert counts(micro_batches=3)["gradients", "reduce_scatter"][0] == 3 * UNITS
    assert counts(micro_batches=3)["parameters", "all_gather"][0] == 3 * (2 * UNITS - 1)
    assert counts(micro_batches=3, no_sync=True)["gradients", "reduce_scatter"][0] == UNITS


def test_zero_3_gathers_everything_twice() -> None:
    """3 (n - 1) / n P: one and a half times of what DDP sends."""
    found = counts(strategy="zero3")
    assert found["parameters", "all_gather"] == (2 * (UNITS + 1), 2 * 709_646_336)
    assert found["gradients", "reduce_scatter"] == (UNITS + 1, 709_646_336)
    ranks = {"data": 4}
    zero = sent_bytes(graph_of_job("gpt2_medium", layout=ranks, data_parallel={**FSDP, "strategy": "zero3"}))
    ddp = sent_bytes(graph_of_job("gpt2_medium", layout=ranks, data_parallel={"gradient_bytes": 2}))
    total = sum(zero["parameters"]) + sum(zero["gradients"])
    assert total == pytest.approx(1.5 * sum(ddp["gradients"]))


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_of_a_rank(ranks: int) -> None:
    share = (ranks - 1) / ranks
    sent = sent_bytes(graph_of_job("gpt2_medium", layout={"data": ranks}, data_parallel=FSDP))
    assert sent["parameters"] == pytest.approx([share * 1_314_265_088] * ranks)
    assert sent["gradients"] == pytest.approx([share * 709_646_336] * ranks)


def gathers(seconds: float):  # type: ignore[no-untyped-def]
    def duration(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        (operation, *_) = operations
        assert isinstance(operation, CollectiveCall)
        return seconds if operation.collective == "all_gather" else 0.0

    return duration


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.06])
def test_what_of_the_forward_pass_is_exposed(seconds: float) -> None:
    """AG_0, then the sum of max(0, AG_(i+1) - F_i); the root computes nothing to speak of before the layers."""
    timeline = played("gpt2_medium", gathers(seconds), layout={"data": 4}, data_parallel=FSDP)
    operations = timeline.graph.operations[0]
    forward = [place for place, one in enumerate(operations) if one.name == "forward 0.0"]
    assert len(forward) == UNITS, "24 layers, and the head; the embedding has no FLOPs"
    layer = timeline.ends[0][forward[0]] - timeline.starts[0][forward[0]]
    expected = 2 * seconds + (UNITS - 2) * max(0.0, seconds - layer)
    waited = timeline.starts[0][forward[-1]] - (UNITS - 1) * layer
    assert waited == pytest.approx(expected)


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_parameters_are_not_gathered_further_ahead_than_said(prefetch: int) -> None:
    options = {**FSDP, "prefetch": prefetch}
    timeline = played("gpt2_medium", gathers(0.0001), layout={"data": 4}, data_parallel=options)
    operations = timeline.graph.operations[0]
    forward = [place for place, one in enumerate(operations) if one.name == "forward 0.0"][:24]
    arrived = {
        int(one.name.rpartition(" ")[2]): timeline.starts[0][place]
        for place, one in enumerate(operations)
        if one.name.startswith("parameters 0 forward")
    }
    for unit in range(2 + prefetch, 25):
        freed = timeline.ends[0][forward[unit - 2 - prefetch]]
        assert arrived[unit] == pytest.approx(freed), "it waits until the one so far before it is computed"


def test_the_next_gather_is_issued_before_these_gradients() -> None:
    """BACKWARD_PRE; and a rank's communicator is serial."""
    graph = graph_of_job("gpt2_medium", layout={"data": 4}, data_parallel=FSDP)
    names = [one.name for one in graph.operations[0] if isinstance(one, CollectiveCall)]
    assert names.index("parameters 0 backward unit 23") < names.index("gradients 0 backward unit 24")
    assert names[-1] == "gradients 0 backward unit 0"
    assert names[:3] == [f"parameters 0 forward unit {number}" for number in range(3)]


def test_prefetching_hides_gathers() -> None:
    ends = [
        played("gpt2_medium", gathers(0.02), layout={"data": 4}, data_parallel={**FSDP, "prefetch": prefetch}).end_s
        for prefetch in (0, 1)
    ]
    assert ends[0] == pytest.approx(3 + 49 * 0.02)
    assert ends[1] < ends[0]
    timeline = played("gpt2_medium", gathers(0.02), layout={"data": 4}, data_parallel=FSDP)
    assert sum(exposed_s(timeline, 0).values()) == pytest.approx(timeline.end_s - 3)
    assert all(a <= b for a, b in pairwise(ends[::-1]))
