"""1F1B and interleaved pipelines: their order, messages and bubbles, and a steady part for the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.errors import ConfigError
from tests.traffic.work.training import at_once, config_of, graph_of_job, played
from traffic.work import metrics
from traffic.work.closed_forms import Links, counted
from traffic.work.generators.orders import INPUTS, WEIGHTS, Pass, bubble_fraction, bubble_s, passes_of
from traffic.work.generators.steady import whole_step_s
from traffic.work.list_schedule import list_schedule
from traffic.work.models.listing import model_of
from traffic.work.operations import CollectiveCall, Operation, Send
from traffic.work.step_metrics import bubble, compute_s

EVEN = """
family: transformer
source: layers that are all alike, and no vocabulary
layers: 16
hidden: 512
sequence: 128
vocabulary: 1
attention: {heads: 4, head_size: 128}
mlp: {inner: 2048}
"""


@pytest.fixture
def even(tmp_path: Path) -> str:
    path = tmp_path / "even.yaml"
    path.write_text(EVEN)
    return str(path)


def words(stage: int, stages: int, chunks: int, micro_batches: int) -> str:
    return " ".join(
        f"{'b' if one.backward else 'f'}{one.micro_batch}" + (f".{one.chunk}" if chunks > 1 else "")
        for one in passes_of(stage, stages, chunks, micro_batches)
    )


def test_1f1b_in_order() -> None:
    assert words(0, 3, 1, 4) == "f0 f1 f2 b0 f3 b1 b2 b3"
    assert words(2, 3, 1, 4) == "f0 b0 f1 b1 f2 b2 f3 b3"
    assert words(0, 4, 1, 2) == "f0 f1 b0 b1"


def test_interleaved_in_order() -> None:
    assert words(1, 2, 2, 4) == "f0.0 f1.0 f0.1 b0.1 f1.1 b1.1 f2.0 b0.0 f3.0 b1.0 f2.1 b2.1 f3.1 b3.1 b2.0 b3.0"
    passes = passes_of(0, 4, 3, 8)
    assert sum(not one.backward for one in passes[: next(i for i, one in enumerate(passes) if one.backward)]) == 15
    assert len(set(passes)) == 2 * 3 * 8


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("micro_batches", [8, 32])
def test_the_bubble_of_1f1b(even: str, stages: int, micro_batches: int) -> None:
    timeline = played(even, layout={"pipeline": stages}, micro_batches=micro_batches)
    expected = bubble_fraction(stages, micro_batches)
    for rank in range(stages):
        assert bubble(timeline, rank) == pytest.approx(expected, rel=0.02)
    assert timeline.end_s == pytest.approx((micro_batches + stages - 1) * 3 / stages, rel=0.02)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (4, 4), (2, 8)])
@pytest.mark.parametrize("micro_batches", [8, 32])
def test_the_bubble_of_interleaved(even: str, stages: int, chunks: int, micro_batches: int) -> None:
    schedule = {"schedule": "interleaved", "chunks": chunks}
    timeline = played(even, layout={"pipeline": stages}, micro_batches=micro_batches, pipeline=schedule)
    expected = bubble_fraction(stages, micro_batches, chunks)
    for rank in range(stages):
        assert bubble(timeline, rank) == pytest.approx(expected, rel=0.02)


def in_order(place: int, stages: int, micro_batches: int, schedule: Any) -> str:
    """Return passes in words: f, b (all gradients), i (of inputs), w (of weights), of dualpipe with the chunk."""
    letters = {INPUTS: "i", WEIGHTS: "w", "all": "b"}
    return " ".join(
        f"{letters[one.of] if one.backward else 'f'}{one.micro_batch}"
        + (f".{one.chunk}" if schedule == "dualpipe" else "")
        for one in passes_of(place, stages, 1, micro_batches, schedule)
    )


def test_zb1p_in_order() -> None:
    assert in_order(0, 3, 4, "zb1p") == "f0 f1 f2 i0 w0 f3 i1 w1 i2 w2 i3 w3"
    assert in_order(1, 3, 4, "zb1p") == "f0 f1 i0 f2 i1 w0 f3 i2 w1 i3 w2 w3"
    assert in_order(2, 3, 4, "zb1p") == "f0 i0 f1 i1 f2 i2 w0 f3 i3 w1 w2 w3"


def test_dualpipe_in_order() -> None:
    """Of two ranks each has both stages; of four, the outer ones begin with twice two micro-batches of their end."""
    assert in_order(0, 2, 4, "dualpipe") == "f0.0 f2.1 f1.0 b2.1 f3.1 b0.0 b3.1 i1.0 w1.0"
    assert in_order(1, 2, 4, "dualpipe") == "f2.1 f0.0 f3.1 b0.0 f1.0 b2.1 b1.0 i3.1 w3.1"
    outer = in_order(0, 4, 8, "dualpipe")
    assert outer.startswith("f0.0 f1.0 f2.0 f4.1 i4.1 w4.1 f5.1 f3.0 b5.1 f6.1 b0.0 b6.1 f7.1 b1.0")
    assert outer.endswith("w2.0 i3.0 w3.0")


def held(passes: Sequence[Pass]) -> int:
    """Return the most micro-batches of which a rank has activations: until gradients of inputs and weights are made."""
    most = now = 0
    for one in passes:
        now += not one.backward
        now -= one.backward and one.of != INPUTS
        most = max(most, now)
    return most


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_schedules_do_every_pass_once_and_hold_as_many_activations_as_said(stages: int) -> None:
    batches = 2 * stages + 6
    for schedule, most in (("1f1b", stages), ("zb1p", stages), ("dualpipe", stages + 1)):
        for place in range(stages):
            passes = passes_of(place, stages, 1, batches, schedule)  # type: ignore[arg-type]
            assert len(set(passes)) == len(passes)
            for backward, of in ((False, ("all",)), (True, ("all", INPUTS)), (True, ("all", WEIGHTS))):
                done = [(one.chunk, one.micro_batch) for one in passes if one.backward == backward and one.of in of]
                assert len(set(done)) == len(done) == batches, (schedule, place)
            assert held(passes) <= most, (schedule, place)


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
@pytest.mark.parametrize("schedule", ["1f1b", "zb1p", "dualpipe"])
def test_bubbles_of_all_schedules(even: str, stages: int, schedule: Any) -> None:
    """A forward pass of a stage takes 1 / stages, gradients of inputs and of weights as long each."""
    batches = 3 * stages
    timeline = played(even, layout={"pipeline": stages}, micro_batches=batches, pipeline={"schedule": schedule})
    once = 1 / stages
    bubble = bubble_s(schedule, stages, once, 2 * once, once)
    for rank in range(stages):
        assert compute_s(timeline, rank) == pytest.approx(batches * 3 * once, rel=2e-4)
        assert timeline.end_s - compute_s(timeline, rank) == pytest.approx(bubble, rel=0.02, abs=0.02 * once)


def test_weights_ratio_says_what_is_put_off(even: str) -> None:
    def ends(schedule: str, **compute: float) -> float:
        return played(
            even,
            layout={"pipeline": 4},
            micro_batches=16,
            pipeline={"schedule": schedule},
            compute={"forward": 1.0, **compute},
        ).end_s

    assert ends("zb1p", weights_ratio=0.0) == pytest.approx(ends("1f1b"), rel=1e-6)
    assert ends("zb1p") < ends("zb1p", weights_ratio=0.5) < ends("1f1b")
    assert ends("zb1p", recompute=True) > ends("zb1p")


def test_a_stage_of_dualpipe_is_on_two_ranks_of_a_pipeline_which_add_up_its_gradients(even: str) -> None:
    keys: dict[str, Any] = {"layout": {"pipeline": 4, "data": 2}, "micro_batches": 8}
    graph = graph_of_job(even, **keys, pipeline={"schedule": "dualpipe"}, data_parallel={"bucket": 2**30})
    plain = graph_of_job(even, **keys, data_parallel={"bucket": 2**30})
    groups = {one.group for operations in graph.operations for one in operations if isinstance(one, CollectiveCall)}
    assert {tuple(sorted(graph.groups[name])) for name in groups} == {(0, 1, 6, 7), (2, 3, 4, 5)}
    assert len(groups) == 4, "each stage has its own"
    sizes = [counted(one, 0)["gradients", "allreduce"][1] for one in (graph, plain)]
    embedding = 2 * 4 * 512  # Of one word, and a head as large, which the last stage has.
    assert sizes[0] == pytest.approx(2 * sizes[1], abs=embedding), "parameters are there twice"
    list_schedule(graph, at_once)
    sends = [counted(graph, rank)["pipeline", "send"][0] for rank in range(0, 8, 2)]
    assert sends == [8, 16, 16, 8], "as many as of 1F1B: half of the micro-batches from either end"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"layout": {"pipeline": 1}},
            "pipeline.schedule: dualpipe needs layout.pipeline of 2 or more (got 1); use 1f1b",
        ),
        (
            {"layout": {"pipeline": 4}, "micro_batches": 6},
            "micro_batches: 6; dualpipe over 4 stages needs an even number",
        ),
        ({"layout": {"pipeline": 4}, "micro_batches": 9}, "from 8; use 10"),
        (
            {"layout": {"pipeline": 4}, "micro_batches": 8, "played": 8},
            "played: dualpipe's two directions have no steady",
        ),
    ],
)
def test_what_dualpipe_cannot_be(even: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(even, **keys, pipeline={"schedule": "dualpipe"})
    assert said in str(refused.value)


def test_faults_of_micro_batches_name_that_key_alone(even: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(even, layout={"pipeline": 4}, micro_batches=6, pipeline={"schedule": "interleaved", "chunks": 2})
    assert "micro_batches: 6 is not a multiple of the 4 stages" in str(refused.value)
    assert "played" not in str(refused.value)
    with pytest.raises(ConfigError, match="micro_batches: 2, and zb1p over 4 stages needs as many at least"):
        config_of(even, layout={"pipeline": 4}, micro_batches=2, pipeline={"schedule": "zb1p"})
    with pytest.raises(ConfigError, match=r"weights_ratio: 3 is a part of backward_ratio, 2; lower it"):
        config_of(even, compute={"forward": 1.0, "weights_ratio": 3})


def test_messages_are_one_each_way_for_each_micro_batch_and_boundary() -> None:
    graph = graph_of_job("llama_13b", layout={"pipeline": 4}, micro_batches=6)
    sends = [counted(graph, rank)["pipeline", "send"] for rank in range(4)]
    assert sends == [(6, 6 * 20_971_520), (12, 12 * 20_971_520), (12, 12 * 20_971_520), (6, 6 * 20_971_520)]
    moe = graph_of_job(
        "deepseek_moe_16b",
        layout={"pipeline": 10},
        micro_batches=10,
        pipeline={"stage_layers": [3] * 8 + [2] * 2},
    )
    assert {one.size_bytes for one in moe.operations[0] if isinstance(one, Send)} == {16_777_216}


def test_interleaved_sends_as_many_times_as_there_are_chunks(even: str) -> None:
    plain = graph_of_job(even, layout={"pipeline": 4}, micro_batches=8)
    chunked = graph_of_job(
        even, layout={"pipeline": 4}, micro_batches=8, pipeline={"schedule": "interleaved", "chunks": 2}
    )
    per_boundary = [sum(counted(graph, rank)["pipeline", "send"][0] for rank in range(4)) for graph in (plain, chunked)]
    assert per_boundary == [2 * 8 * 3, 2 * 8 * 7]


def test_sequence_parallel_ranks_send_their_part() -> None:
    layout = {"tensor": 4, "pipeline": 8, "sequence_parallel": True}
    graph = graph_of_job("llama3_70b", layout=layout, micro_batches=8)
    assert {one.size_bytes for one in graph.operations[0] if isinstance(one, Send)} == {33_554_432}


def test_gradients_of_a_stage() -> None:
    """A quarter of LLaMa-13B's layers with the embedding: 6.67 GB in BF16."""
    graph = graph_of_job("llama_13b", layout={"pipeline": 4, "data": 2}, data_parallel={"gradient_bytes": 2})
    assert counted(graph, 0)["gradients", "allreduce"][1] == 2 * 3_335_884_800
    assert graph.groups["dp-cp.0"] == (0, 1)


@pytest.mark.parametrize(
    ("keys", "last"),
    [
        ({}, 3),
        ({"pipeline": {"schedule": "interleaved", "chunks": 2}}, 3),
        ({"pipeline": {"schedule": "zb1p"}}, 3),
        ({"layout": {"pipeline": 4, "data": 2}, "data_parallel": {"bucket": 2**16}}, 7),
    ],
)
@pytest.mark.parametrize("slow", [0.0, 0.01])
def test_a_steady_part_stands_for_the_whole(even: str, keys: dict[str, object], last: int, slow: float) -> None:
    def sends(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        return slow

    whole: dict[str, object] = {"layout": {"pipeline": 4}, "micro_batches": 64, **keys}
    expected = list_schedule(graph_of_job(even, **whole), sends).end_s
    for part in (16, 24):
        config = config_of(even, **whole, played=part)
        timeline = list_schedule(graph_of_job(even, **whole, played=part), sends)
        assert whole_step_s(timeline, config.steady, last) == pytest.approx(expected, rel=1e-3)


def test_without_overlap_computing_waits_for_messages(even: str) -> None:
    def sends(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        return 0.01 if isinstance(operations[0], Send) else 0.0

    keys: dict[str, Any] = {"layout": {"pipeline": 2}, "micro_batches": 8}
    beside = played(even, sends, **keys)
    waiting = played(even, sends, **keys, pipeline={"overlap": False})
    assert waiting.end_s >= beside.end_s + 0.01


def test_staggered_copies_begin_one_after_the_other(even: str) -> None:
    keys: dict[str, Any] = {"layout": {"pipeline": 2, "data": 8}, "micro_batches": 4}
    timeline = played(even, **keys, pipeline={"stagger": True})
    firsts = [
        min(timeline.starts[rank][place] for place, one in enumerate(operations) if one.name.startswith("forward"))
        for rank, operations in enumerate(timeline.graph.operations[:8])
    ]
    turn = 3 / 2 / 8
    assert firsts == pytest.approx([rank * turn for rank in range(8)], rel=1e-2)
    sending = [
        round(start, 6)
        for rank, one, start, _ in timeline.spans()
        if rank < 8 and one.name == "pipeline send forward 0.0"
    ]
    assert len(set(sending)) == 8
    at_once_too = played(even, **keys)
    assert compute_s(at_once_too, 0) == pytest.approx(compute_s(timeline, 0))
    assert timeline.end_s - at_once_too.end_s == pytest.approx(7 * turn, rel=1e-2)


def test_both_ends_of_a_pipeline_add_up_a_tied_embedding() -> None:
    graph = graph_of_job("gpt2_medium", layout={"pipeline": 2}, micro_batches=2)
    calls = [one for one in graph.operations[1] if isinstance(one, CollectiveCall)]
    assert [(one.size_bytes, graph.groups[one.group]) for one in calls] == [(4 * 50_257 * 1024, (0, 1))]
    list_schedule(graph, at_once)


def test_copies_of_a_tied_embedding_are_added_up_over_data_before_both_ends_add_up_theirs() -> None:
    """Megatron-LM has the matrix in the buffers of both stages."""
    parameters = sum(layer.parameters for layer in model_of("gpt2_medium").all_layers())
    graph = graph_of_job("gpt2_medium", layout={"pipeline": 2, "data": 2}, micro_batches=2)
    calls = [one for rank in (0, 2) for one in graph.operations[rank] if isinstance(one, CollectiveCall)]
    assert sum(one.size_bytes for one in calls if "bucket" in one.name) == 4 * (parameters + 50_257 * 1024)
    for rank, operations in enumerate(graph.operations):
        (tied,) = [one for one in operations if one.name == "gradients tied embedding"]
        buckets = {place for place, one in enumerate(operations) if "bucket" in one.name}
        assert buckets <= {*tied.after}, f"rank {rank}"
    dual = {"pipeline": {"schedule": "dualpipe"}, "micro_batches": 4}
    both = graph_of_job("gpt2_medium", layout={"pipeline": 2}, **dual)
    assert not [one for _, _, one in both.all_operations() if "tied" in one.name], "each end has one matrix"


@pytest.mark.parametrize(
    ("stages", "schedule"),
    [([8, 6, 6, 4], "1f1b"), ([5, 7, 7, 5], "1f1b"), ([13, 5, 1, 5], "1f1b"), ([4, 10, 3, 7], "zb1p")],
)
def test_a_part_of_unequal_stages_is_not_too_short(stages: list[int], schedule: str) -> None:
    whole: dict[str, Any] = {
        "layout": {"pipeline": 4}, "micro_batches": 32, "pipeline": {"schedule": schedule, "stage_layers": stages},
    }  # fmt: skip
    links = Links(8, 200e9, 25e9)
    expected = list_schedule(graph_of_job("gpt2_medium", **whole), links).end_s
    for part in (13, 16, 20):
        config = config_of("gpt2_medium", **whole, played=part)
        timeline = list_schedule(graph_of_job("gpt2_medium", **whole, played=part), links)
        assert 0.9995 < whole_step_s(timeline, config.steady, 3) / expected < 1.01


def test_a_captured_step_of_unequal_stages_says_what_the_one_on_paper_says() -> None:
    keys: dict[str, Any] = {
        "layout": {"pipeline": 4}, "micro_batches": 32, "played": 13, "pipeline": {"stage_layers": [8, 6, 6, 4]},
    }  # fmt: skip
    config = config_of("gpt2_medium", **keys)
    timeline = list_schedule(graph_of_job("gpt2_medium", **keys), Links(8, 200e9, 25e9))
    rows = [
        {"rank": rank, "name": one.name, "stream": one.stream, "started_s": start, "ended_s": end}
        for rank, one, start, end in timeline.spans()
    ]
    found = metrics.whole_step_s(pd.DataFrame(rows), config.steady, [3])
    assert found == pytest.approx(whole_step_s(timeline, config.steady, 3), rel=1e-12)
