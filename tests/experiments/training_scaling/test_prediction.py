"""HaiScale's steps put together of pieces with the paper's bandwidths: what follows without a fabric."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from experiments.training_scaling import steps as made_of_pieces
from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.pipelines import message_bytes, messages_graph, pipeline_times
from experiments.training_scaling.playing import needed_nodes, needed_of_nccl
from experiments.training_scaling.prediction import fitted_forward_s, point_of
from experiments.training_scaling.scaling import Run
from experiments.training_scaling.steps import Step, steps_of, with_packets
from experiments.training_scaling.study import STUDY
from fabric.config import checked, read_yaml
from fabric.errors import ConfigError
from runs.registry import EXPERIMENTS, resolve
from tests.experiments.declared import undeclared
from traffic.work.composition import Durations, Line, Pieces, line_through, predicted, with_gradients_as_time
from traffic.work.generators.config import training_graph
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall

COUNTS = (2, 4, 8, 16)


def pieces(allreduce: float = 8.1e9, nccl: float = 4.8e9) -> Pieces:
    """Return pieces by the paper's best figures, and messages that GPUs' PCIe or the node's NIC limits."""
    speeds = {"hfreduce": allreduce, "nccl": nccl, "all_gather": 2 * nccl, "reduce_scatter": 2 * nccl}
    lines = {(what, count): Line(0.0, speed) for what, speed in speeds.items() for count in COUNTS}
    return Pieces(lines, Line(0.0, 9.6e9), Line(0.0, 3.1e9))


def config() -> TrainingScalingConfig:
    data = read_yaml(EXPERIMENTS["training_scaling"].file)
    return checked(TrainingScalingConfig, {**data, "topology": {}}, "training_scaling")


def case_of(name: str) -> CaseConfig:
    return next(case for case in config().cases if case.name == name)


@pytest.mark.parametrize("allreduce", [6.3e9, 8.1e9])
def test_llama_is_within_4_percent_of_the_paper(allreduce: float) -> None:
    """Only the smallest run is fitted."""
    found = steps_of(case_of("llama_13b"), pieces(allreduce))
    errors = [one.error for one in found]
    assert errors[0] == pytest.approx(0, abs=1e-5)
    assert all(error is not None and abs(error) < 0.04 for error in errors), errors
    assert [one.point.nodes for one in found] == [2, 8, 16]
    assert [one.point.training.micro_batches for one in found] == [256, 64, 32]
    for one in found:
        assert one.point.training.steady.played == 9
        assert one.paper.gradients_s == pytest.approx(2 * 3_335_884_800 / allreduce)
        assert one.with_nccl.step_s > one.paper.step_s


def test_more_of_the_steady_part_changes_nothing() -> None:
    case = case_of("llama_13b")
    steps = []
    for played in (None, 16, 32):
        point = point_of(case.model_copy(update={"played": played}), 512, 0.3)
        assert point.training.steady.played == (played or 9)
        steps.append(predicted(point.training, Durations(pieces(), point.nodes, "hfreduce", burst=False)).step_s)
    assert steps == pytest.approx([steps[0]] * 3, rel=1e-3)


def test_a_fit_is_of_the_smallest_run_only_and_of_none_without_one() -> None:
    assert fitted_forward_s(case_of("vgg16"), pieces(), "hfreduce", burst=False) is None
    forward_s = fitted_forward_s(case_of("llama_13b"), pieces(), "hfreduce", burst=False)
    assert forward_s is not None
    flops = 3 * 5.608e13 / (3 * forward_s)
    assert 150e12 < flops < 200e12, "what a PCIe A100 may reach"


def test_one_bucket_of_vgg16_is_most_of_it() -> None:
    found = steps_of(case_of("vgg16"), pieces())
    for one in found:
        assert one.paper.exposed_s.keys() == {"gradients"}
        assert one.paper.gradients_s == pytest.approx(553_430_176 / 8.1e9)


def test_gathers_of_gpt2_are_of_25_units() -> None:
    point = point_of(case_of("gpt2_medium"), 16, None)
    calls = [one for one in training_graph(point.training).operations[0] if isinstance(one, CollectiveCall)]
    assert len(calls) == 49 + 25


def test_lines_through_sizes() -> None:
    line = line_through([(4_000_000, 0.0015), (16_000_000, 0.0045)])
    assert line.bytes_per_s == pytest.approx(4e9)
    assert line.base_s == pytest.approx(0.0005)
    assert line_through([(8_000_000, 0.002)]) == Line(0.0, 4e9)


def test_gradients_become_time_and_the_step_stays_as_long() -> None:
    point = point_of(case_of("llama_13b"), 64, 0.3)
    duration = Durations(pieces(), point.nodes, "hfreduce", burst=False)
    graph = training_graph(point.training)
    timed = with_gradients_as_time(graph, duration)
    assert not any(isinstance(one, CollectiveCall) for _, _, one in timed.all_operations())
    assert list_schedule(timed, duration).end_s == pytest.approx(list_schedule(graph, duration).end_s)


def test_a_played_pipeline_is_as_slow_as_its_slowest_copy() -> None:
    point = point_of(case_of("llama_13b"), 64, 0.3)
    duration = Durations(pieces(), point.nodes, "hfreduce", burst=False)
    timeline = list_schedule(with_gradients_as_time(training_graph(point.training), duration), duration)
    late = {rank: (1.5 if rank % 8 == 3 else 1.0) for rank in range(32)}
    rows = pd.DataFrame(
        {
            "rank": rank,
            "operation": place,
            "name": one.name,
            "stream": one.stream,
            "started_s": 7 + late[rank] * timeline.starts[rank][place],
            "ended_s": 7 + late[rank] * timeline.ends[rank][place],
        }
        for rank, place, one in timeline.graph.all_operations()
    )
    end_s, period_s = pipeline_times(rows, point)
    even = timeline.starts[24]
    assert period_s == pytest.approx(1.5 * 3 * 0.3 / 4, rel=0.1)
    assert end_s >= 1.4 * max(even)


def test_what_is_played() -> None:
    found = config()
    points = [point_of(case, one.gpus, None) for case in found.cases for one in case.points]
    assert needed_nodes(found, points) == [2, 4, 8, 16]
    assert ("all_gather", 16) in needed_of_nccl(found, points)
    assert message_bytes(found) == 20_971_520
    graph = messages_graph(2, 100, 0.5)
    assert list_schedule(graph, lambda operations, ranks: 0.1).ends == ((0, 0.1), (0.5, 0.6), (0.1,), (0.6,))


def summary_of(found: TrainingScalingConfig, steps: list[Step]) -> dict[str, Any]:
    session: Any = SimpleNamespace(phases=[])
    return STUDY.summarize(session, found, [Run(one.point.case, one.point.gpus, one) for one in steps])


def test_the_summary_says_what_binds() -> None:
    found = config()
    cases = [case_of("llama_13b"), case_of("vgg16")]
    summary = summary_of(found, [one for case in cases for one in steps_of(case, pieces())])
    assert undeclared("training_scaling", summary["metrics"]) == []
    assert [one["aside"]["efficiency"] for one in summary["cases"]][::3] == [1.0, 1.0], (
        "of the smallest run of each case"
    )
    assert "llama_13b" in summary["answer"] and "(-3" in summary["answer"]
    assert [len(table.words) for table in summary["tables"]] == [5, 5, 18]


def test_a_pipeline_that_is_played_again_stands_beside_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played: T(m) = 10 + (m - played) 0.25 by 9 micro-batches, and a hundredth more by 18."""
    found: Any = config().model_copy(update={"cases": [case_of("llama_13b").model_copy(update={"played_again": 18})]})

    def play(_: Any, __: Any, ___: Any, point: Any, ____: Any) -> tuple[float, float]:
        played = point.training.steady.played
        late = 1.01 if played == 18 else 1.0 if point.training.pipeline.stagger else 1.02
        return (10 + (played - 9) * 0.25) * late, 0.25 * late

    monkeypatch.setattr(made_of_pieces, "play_pipeline", play)
    session: Any = None
    steps = with_packets(session, found, steps_of(found.cases[0], pieces()))
    first, second, _ = steps
    assert first.played_s == pytest.approx(10 + (256 - 9) * 0.25)
    assert second.played_s == pytest.approx(10 + (64 - 9) * 0.25 + second.paper.gradients_s - first.paper.gradients_s)
    assert first.played_again_s == pytest.approx(1.01 * (10 + (256 - 9) * 0.25))
    assert first.played_at_once_s == pytest.approx(1.02 * (10 + (256 - 9) * 0.25))
    table = next(one for one in summary_of(found, steps)["tables"] if "by more micro-batches" in one.title)
    assert list(table.words[0]) == ["llama_13b", "64", "9: 71.7500", "18: 72.4675", "+1.000%"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"played_again": 9}, "played_again: 9 micro-batches, and 9 are played first, of 256; give more"),
        (
            {"played_again": 18, "in_packets": False},
            "played_again: plays the pipeline in packets once more",
        ),
        ({"batch": 4097}, "4097 is not divisible by 16 sequences at 64 GPUs"),
        ({"points": [{"gpus": 256}, {"gpus": 64}]}, "the smallest first"),
        ({"points": [{"gpus": 66}]}, "66 GPUs are not whole copies of 4 GPUs"),
    ],
)
def test_what_a_case_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(CaseConfig, {**case_of("llama_13b").model_dump(), **changed}, "case")


def test_published_times_are_not_fitted_on_scaled_rates() -> None:
    slow = ["topology.nic_rate=2 Gbit/s", "topology.uplink_rate=2 Gbit/s"]
    with pytest.raises(ConfigError, match=r"rates of fire_flyer_2_nodes are 1 : 100 of the true ones, and computing"):
        resolve("training_scaling", slow)
