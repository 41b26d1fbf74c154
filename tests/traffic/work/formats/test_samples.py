"""Traces of other projects, with the counts that were taken from the files by other means."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from tests.traffic.work.formats.reading import kinds, operations, sample
from traffic.work.checks import require_playable
from traffic.work.formats.counts import counted, ranks_counted
from traffic.work.formats.playing import playable
from traffic.work.operations import ANY, CollectiveCall, Compute, Receive, Send


def test_resnet50_has_the_five_buckets_of_ddp() -> None:
    trace = sample("resnet50_ddp.et.gz", ranks=8)
    calls = operations(trace, 0, CollectiveCall)
    sizes = {name: [one.size_bytes for one in calls if one.collective == name] for name in ("broadcast", "allreduce")}
    assert sizes == {
        "broadcast": [212_480, 424],
        "allreduce": [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160],
    }
    assert sum(sizes["allreduce"]) == 4 * 25_557_032
    assert len(trace.program(0)) == 3664
    assert kinds(trace) == {"compute": 3657, "broadcast": 2, "allreduce": 5}
    assert (trace.ranks, trace.alike, trace.left_out) == (8, True, {})
    assert trace.notes[0].startswith("3,664 control dependencies")
    assert all(one.measured_s > 0 for one in calls)
    require_playable(trace.graph())


def test_kernels_of_a_stream_follow_one_another_and_overlap_with_others() -> None:
    trace = sample("resnet50_ddp.et.gz")
    for stream in ("gpu 7", "gpu 14"):
        places = [place for place, one in enumerate(trace.program(0)) if one.stream == stream]
        for before, after in pairwise(places):
            assert before in trace.program(0)[after].after
    calls = operations(trace, 0, CollectiveCall)
    assert {one.stream for one in calls} == {"gpu 14"}


def test_messages_with_one_tag_are_matched_in_order() -> None:
    trace = sample("astrasim_custom_ring_8npus.tar.gz")
    assert trace.ranks == 8
    for rank in range(8):
        assert kinds(trace, rank) == {"send": 14, "receive": 14, "compute": 7}
        assert {(one.size_bytes, one.tag, one.peer) for one in operations(trace, rank, Send)} == {
            (131_072, 0, (rank + 1) % 8)
        }
    require_playable(trace.graph())


def test_a_size_of_an_all_gather_is_of_one_rank_in_chakra() -> None:
    trace = sample("astrasim_all_gather_4npus.tar.gz")
    (call,) = trace.program(3)
    assert isinstance(call, CollectiveCall)
    assert (call.collective, call.size_bytes, call.group, trace.ranks) == ("all_gather", 4 * 2**20, "all", 4)


def test_a_generated_transformer_has_its_groups_and_pairs() -> None:
    trace = sample("stg_dp2tp2pp2.tar.gz")
    assert trace.ranks == 8
    of_ranks = [kinds(trace, rank) for rank in range(8)]
    assert of_ranks[0] == {
        "compute": 132, "all_gather": 24, "reduce_scatter": 16, "send": 4, "receive": 4, "allreduce": 6,
    }  # fmt: skip
    collectives = ("all_gather", "reduce_scatter", "allreduce")
    assert sum(one[kind] for one, kind in product(of_ranks, collectives)) == 368
    assert (sum(one["send"] for one in of_ranks), sum(one["receive"] for one in of_ranks)) == (32, 32)
    assert trace.groups["5"] == (0, 2)
    assert all(one.duration_s is None and one.flops > 0 for one in operations(trace, 0, Compute))
    require_playable(trace.graph().timed(1e12))


def test_dlrm_sends_uneven_parts() -> None:
    trace = sample("dlrm_1.0.1.tar.gz")
    assert trace.ranks == 8
    for rank in range(8):
        assert kinds(trace, rank) == {"wait": 5, "all_to_all_v": 4, "all_to_all": 1, "allreduce": 3}
    third = operations(trace, 0, CollectiveCall)[3]
    assert third.sent_bytes == tuple(4 * one for one in (96, 224, 288, 1664, 592, 96, 192, 240))
    received = [operations(trace, rank, CollectiveCall)[3].sent_bytes[0] for rank in range(8)]
    assert received == [4 * 96] * 8
    assert trace.left_out["waits for what was called before the trace begins"] == 16
    require_playable(playable(trace.graph()))


def test_all_gathers_of_schema_1_0_2() -> None:
    trace = sample("allgather_1.0.2.tar.gz")
    assert (trace.ranks, trace.alike) == (2, True)
    assert kinds(trace) == {"all_gather": 10, "wait": 10}
    assert {one.size_bytes for one in operations(trace, 0, CollectiveCall)} == {8}


def test_kineto_of_an_older_capture_has_sizes_by_the_shapes_of_calls() -> None:
    trace = sample("kineto_dlrm_worker0.json.gz")
    calls = operations(trace, 0, CollectiveCall)
    assert [(one.collective, one.size_bytes) for one in calls] == [
        ("all_to_all", 4 * 6144), ("all_to_all", 8 * 24), ("all_to_all", 4 * 384), ("all_to_all", 4 * 3392),
        ("allreduce", 4 * 394_241), ("all_to_all", 4 * 6144), ("allreduce", 4 * 112), ("allreduce", 4 * 226_960),
    ]  # fmt: skip
    assert [round(one.measured_s * 1e6) for one in calls] == [2146, 1032, 176, 131, 246, 514, 601, 952]
    assert trace.ranks == 8
    assert sum(one.stream.startswith("gpu") for one in trace.program(0)) == 245 + 16
    require_playable(trace.graph())


def test_simai_of_9216_gpus_is_read_without_making_all_of_it() -> None:
    trace = sample("simai_moe_9216gpus_ep16_pp12.txt.gz")
    counts = counted(trace.program(0))
    assert trace.ranks == 9216
    assert trace.left_out["collectives of 0 bytes (REDUCESCATTER), which send nothing"] == 216
    calls = [one for one in trace.program(0) if isinstance(one, CollectiveCall)]
    experts = [one for one in calls if one.group.startswith("ep ")]
    assert (len(experts), {one.collective for one in experts}) == (768, {"all_to_all"})
    assert len(trace.groups["ep 0"]) == 16
    assert (counts["all_gather"].operations, counts["allreduce"].operations) == (1178, 32)
    part = sample("simai_moe_9216gpus_ep16_pp12.txt.gz", ranks=64)
    assert (len(part.groups["dp 0"]), len(part.groups["dp_ep 0"]), len(part.groups["tp 0"])) == (32, 2, 2)


def test_simai_with_two_tensor_parallel_ranks() -> None:
    trace = sample("simai_L7B_tp2.txt.gz", ranks=4)
    calls = operations(trace, 3, CollectiveCall)
    assert {one.size_bytes for one in calls if one.collective == "allreduce"} >= {2 * 2048 * 4096}
    (scatter,) = [one for one in calls if one.collective == "reduce_scatter"]
    assert (scatter.size_bytes, scatter.group) == (2 * 6_754_926_592, "dp 1")
    assert trace.groups["dp 1"] == (1, 3)
    require_playable(trace.graph())


def test_aicb_repeats_rows_and_says_how_many_ranks_there_are() -> None:
    trace = sample("aicb_L7B_zero2.csv.gz")
    assert trace.ranks == 128
    assert kinds(trace) == {"broadcast": 291, "barrier": 1, "allreduce": 8, "all_gather": 6}
    assert trace.left_out == {"rows of type epoch_end": 2}
    require_playable(playable(sample("aicb_L7B_zero2.csv.gz", ranks=16).graph()))


@pytest.mark.parametrize(
    ("name", "chunks", "sent"), [("msccl_ag_hier_4_LL.xml.gz", 16, 12), ("msccl_a2a2ll.xml.gz", 16, 14)]
)
def test_ranks_send_as_many_chunks_as_the_algorithm_has(name: str, chunks: int, sent: int) -> None:
    trace = sample(name, size=chunks * 1000)
    for counts in ranks_counted(trace):
        assert counts["send"].size_bytes == sent * 1000
    require_playable(trace.graph())


def test_goal_has_dependencies_after_starts_and_receives_from_anybody() -> None:
    trace = sample("goal_semantics.goal")
    first, second = operations(trace, 0, Send)
    assert (first.after, second.after_start, second.after) == ((0,), (2,), ())
    anybody = operations(trace, 2, Receive)[1]
    assert (anybody.peer, anybody.tag) == (ANY, ANY)
    assert trace.program(1)[1].after == (0,)
    require_playable(trace.graph())
    ring = sample("goal_ring_allreduce_5.goal")
    assert [len(ring.program(rank)) for rank in range(5)] == [21] * 5
    require_playable(ring.graph())


def test_phases_end_when_those_of_the_real_step_did() -> None:
    """The first attn(F) started 475 us after the first combine(B), which no dependency says."""
    trace = sample("deepseek_ep64_step.csv")
    program = trace.program(0)
    ends: list[float] = []
    free: dict[str, float] = {}
    for one in program:
        assert isinstance(one, Compute)
        start = max([free.get(one.stream, 0.0), *(ends[other] for other in one.after)])
        ends.append(start + (one.duration_s or 0.0))
        free[one.stream] = ends[-1]
    assert max(ends) + 475e-6 == pytest.approx(128_594e-6)
