"""DDP's buckets to the byte, its overlap in closed form, and bytes of ZeRO 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.traffic.work.training import FORWARD_S, at_once, computes_of, config_of, graph_of_job, played
from traffic.work.closed_forms import counted, sent_bytes
from traffic.work.generators.buckets import DataKind, Gradient, buckets_of
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall, Compute, Operation
from traffic.work.step_metrics import exposed_s

RESNET50 = (8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160)
"""What two captures of PyTorch have: mlcommons/chakra's feeder trace, and facebookresearch/param's of two GPUs."""
VGG16 = (16_388_000, 67_125_248, 411_058_176, 28_317_696, 28_319_744, 2_221_312)


def buckets_in(model: str, **keys: object) -> tuple[int, ...]:
    graph = graph_of_job(model, layout={"data": 2}, **keys)
    assert graph.operations[0] == graph.operations[1]
    calls = [one for one in graph.operations[0] if isinstance(one, CollectiveCall)]
    assert {call.collective for call in calls} == {"allreduce"}
    return tuple(call.size_bytes for call in calls)


@pytest.mark.parametrize(("model", "sizes"), [("resnet50", RESNET50), ("vgg16", VGG16)])
@pytest.mark.parametrize("overlap", [True, False])
def test_buckets_are_pytorchs_to_the_byte(model: str, sizes: tuple[int, ...], overlap: bool) -> None:
    assert buckets_in(model, data_parallel={"overlap": overlap}) == sizes
    assert sum(sizes) == 4 * {"resnet50": 25_557_032, "vgg16": 138_357_544}[model]


def test_a_bucket_overshoots_and_the_first_is_small() -> None:
    gradients = [Gradient((number, 0), size, DataKind("dp-cp")) for number, size in enumerate([9, 30, 30, 1, 6, 5])]
    found = buckets_of(gradients, 10, 50)
    assert [(one.size_bytes, one.ready) for one in found] == [(11, (4, 0)), (61, (1, 0)), (9, (0, 0))]


def test_one_bucket_may_take_all() -> None:
    assert buckets_in("resnet50", data_parallel={"first_bucket": 2**30, "bucket": 2**30}) == (sum(RESNET50),)


def per_byte(rate: float):  # type: ignore[no-untyped-def]
    def duration(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        (operation, *_) = operations
        assert isinstance(operation, CollectiveCall)
        return operation.size_bytes / rate

    return duration


@pytest.mark.parametrize("rate", [2e7, 1e8, 1e9])
@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
def test_a_step_is_what_the_recursion_says(model: str, rate: float) -> None:
    """e_i = max(e_(i-1), r_i) + c_i; T = max(F + B, e_last) + update; without overlap F + B + sum of c + update."""
    keys = {"layout": {"data": 4}, "compute": {"forward": FORWARD_S, "update": 0.25}}
    timeline = played(model, per_byte(rate), **keys)
    operations = timeline.graph.operations[0]
    end = 0.0
    for one in operations:
        if isinstance(one, CollectiveCall):
            ready = max(timeline.ends[0][place] for place in one.after)
            end = max(end, ready) + one.size_bytes / rate
    computed = sum(one.duration_s or 0 for one in operations if isinstance(one, Compute)) - 0.25
    assert computed == pytest.approx(3 * FORWARD_S)
    assert timeline.end_s == max(computed, end) + 0.25
    assert sum(exposed_s(timeline, 0).values()) == pytest.approx(timeline.end_s - computed - 0.25)
    off = played(model, per_byte(rate), **keys, data_parallel={"overlap": False})
    total = sum(one.size_bytes / rate for one in operations if isinstance(one, CollectiveCall))
    assert off.end_s == pytest.approx(computed + total + 0.25)
    assert timeline.end_s < off.end_s


def test_the_backward_pass_is_twice_the_forward_pass_unless_given() -> None:
    assert played("resnet50").end_s == pytest.approx(3 * FORWARD_S)
    longer = played("resnet50", compute={"forward": 1.0, "backward_ratio": 1.5, "recompute": True})
    assert longer.end_s == pytest.approx(3.5)


def test_flops_without_a_speed_are_left_to_who_plays() -> None:
    graph = graph_of_job("resnet50", compute={})
    assert {one.duration_s for one in computes_of(graph) if one.name != "update"} == {None}
    flops = sum(one.flops for one in graph.operations[0] if isinstance(one, Compute))
    assert list_schedule(graph.timed(flops), at_once).end_s == pytest.approx(1)


@pytest.mark.parametrize("ranks", [2, 8])
def test_bytes_of_ddp_and_zero(ranks: int) -> None:
    """2 (n - 1) / n P, of FP32 gradients; ZeRO spreads gradients in FP32 and gathers parameters in BF16."""
    whole = 4 * 25_557_032
    layout = {"data": ranks}
    share = (ranks - 1) / ranks
    ddp = sent_bytes(graph_of_job("resnet50", layout=layout))
    assert ddp == {"gradients": pytest.approx([2 * share * whole] * ranks)}
    zero = sent_bytes(graph_of_job("resnet50", layout=layout, data_parallel={"strategy": "zero1"}))
    assert zero["gradients"] == pytest.approx([share * whole] * ranks)
    assert zero["parameters"] == pytest.approx([share * whole / 2] * ranks)


def test_zero_2_spreads_gradients_in_each_micro_batch() -> None:
    keys = {"layout": {"data": 2}, "micro_batches": 3}
    one = counted(graph_of_job("resnet50", **keys, data_parallel={"strategy": "zero1"}), 0)
    two = counted(graph_of_job("resnet50", **keys, data_parallel={"strategy": "zero2"}), 0)
    assert one["gradients", "reduce_scatter"] == (5, 102_228_128)
    assert two["gradients", "reduce_scatter"] == (15, 3 * 102_228_128)
    assert one["parameters", "all_gather"] == two["parameters", "all_gather"] == (5, 51_114_064)


def test_ddp_adds_up_in_the_last_micro_batch_only() -> None:
    graph = graph_of_job("resnet50", layout={"data": 2}, micro_batches=3)
    assert counted(graph, 0)["gradients", "allreduce"] == (5, 102_228_128)
    assert config_of("resnet50").steady.played == 1
