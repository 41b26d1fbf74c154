"""Training jobs as jobs: small ones played on loopback, and what cannot be on a fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric
from traffic.job import Stage
from traffic.measures import JobRows
from traffic.work.kinds import TRAINING
from traffic.work.list_schedule import list_schedule
from traffic.work.training_job import PlayedTrainingConfig, TrainingJob, training_faults
from traffic.work.training_numbers import training_numbers

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
NODES = load_fabric("fire_flyer_2_nodes")
TINY = """
family: transformer
source: a test
layers: 4
hidden: 32
sequence: 64
vocabulary: 64
attention: {heads: 4, head_size: 8}
mlp: {inner: 64}
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    pool = AgentPool(preload=TRAINING.preload)
    yield Stage(FABRIC, pool, lambda _: None, seed=7, address_of=lambda _: "127.0.0.1")
    assert not pool.handles, "a test did not close its job"


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


def config_of(model: str, **keys: Any) -> PlayedTrainingConfig:
    return checked(PlayedTrainingConfig, {"model": model, "compute": {"forward": 0.02}, **keys}, "job")


@pytest.mark.parametrize(
    "keys",
    [
        {"layout": {"data": 2, "pipeline": 2, "gpus_per_node": 1}, "micro_batches": 3},
        {
            "layout": {"tensor": 2, "context": 2, "sequence_parallel": True, "gpus_per_node": 4},
            "ranks_per_process": 4,
        },
        {"layout": {"data": 3, "gpus_per_node": 1}, "data_parallel": {"strategy": "fsdp"}},
        {"layout": {"data": 2, "gpus_per_node": 1}, "parameter_server": {"servers": 1, "steps": 2, "delay": 1}},
    ],
)
def test_steps_are_played_and_take_no_less_than_their_computing(stage: Stage, tiny: str, keys: dict[str, Any]) -> None:
    config = config_of(tiny, **keys)
    per_node = config.layout.gpus_per_node
    nodes = FABRIC.computes[: -(-config.ranks // per_node)]
    job = TrainingJob(stage, config, nodes, level=ServiceLevel.NCCL, name="training")
    try:
        job.start()
        job.warm_up()
        steps = pd.DataFrame(job.run_steps(2, "alone").rows("work_steps"))
    finally:
        job.close()
    assert len(steps) == 2 * config.ranks
    ideal = list_schedule(config.loaded(), lambda operations, ranks: 0.0).end_s
    times = steps.groupby("step").agg({"started_s": "min", "ended_s": "max"})
    assert (times["ended_s"] - times["started_s"] >= ideal).all()


def test_ranks_fill_nodes_as_the_layout_says(tiny: str) -> None:
    config = config_of(tiny, layout={"data": 4, "gpus_per_node": 2})
    assert config.placed_by_node().ranks_per_node == 2
    assert config_of(tiny, layout={"data": 2}).placed_by_node().ranks_per_node == 2
    assert TRAINING.data.flows(config, FABRIC, FABRIC.computes[:2])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"compute": {}}, "says not how long computing takes; give flops_per_s or forward"),
        ({"layout": {"data": 4, "gpus_per_node": 2}, "ranks_per_node": 1}, "but layout.gpus_per_node is 2"),
        ({"layout": {"data": 32, "gpus_per_node": 16}}, "nodes of fire_flyer_2_nodes have 8 GPUs"),
        ({"data_parallel": {"algorithm": "star"}, "layout": {"data": 2}}, "star"),
    ],
)
def test_what_cannot_be_on_a_fabric(tiny: str, keys: dict[str, Any], said: str) -> None:
    faults = [*training_faults(config_of(tiny, **keys), NODES)]
    assert any(said in fault for fault in faults), faults


def test_a_job_that_can_be_has_no_faults(tiny: str) -> None:
    config = config_of(tiny, layout={"data": 16}, data_parallel={"algorithm": "hfreduce"})
    assert [*training_faults(config, NODES)] == []
    assert config.loaded() is config.loaded(), "made once"


PEAK = {"compute": {"forward": 0.02, "peak_flops_per_s": 1e9}}


def numbers(config: PlayedTrainingConfig, step_s: float, rows: Sequence[Mapping[str, Any]] = ()) -> dict[str, float]:
    """Return what a job of steps of that time comes to; ``rows``: of operations."""
    steps = [
        {
            "play": play,
            "step": play,
            "rank": 0,
            "sent_bytes": 0,
            "started_s": play * 1.0,
            "ended_s": play * 1.0 + step_s,
        }
        for play in range(3)
    ]
    tables = {"work_steps": pd.DataFrame(steps), "work_operations": pd.DataFrame(rows)}
    return dict(TRAINING.measures.of(JobRows(tables.__getitem__, [], config)))


def test_a_step_says_how_fast_training_is(tiny: str) -> None:
    config = config_of(
        tiny,
        layout={"data": 4, "gpus_per_node": 1},
        micro_batches=2,
        micro_batch=3,
        **PEAK,
        goal={"samples": 2401, "steps": "1000 * batch / 24 + tokens + ranks"},
    )
    found = numbers(config, 0.5)
    assert (found["step_s"], found["whole_step_s"], found["steps"]) == (0.5, 0.5, 3)
    assert (found["samples_per_s"], found["tokens_per_s"]) == (48, 48 * 64)
    flops = 3 * sum(layer.flops for layer in config.shapes.all_layers()) * 24
    assert found["mfu_fraction"] == pytest.approx(flops / 0.5 / 4 / 1e9)
    assert found["end_to_end_s"] == 101 * 0.5, "whole steps"
    assert found["steps_to_accuracy"] == 1000 + 24 * 64 + 4
    assert found["time_to_accuracy_s"] == found["steps_to_accuracy"] * 0.5
    assert {name for name in TRAINING.measures.told if name in found} == {
        "whole_step_s", "samples_per_s", "tokens_per_s", "mfu_fraction", "end_to_end_s", "steps_to_accuracy",
        "time_to_accuracy_s",
    }  # fmt: skip
    assert "mfu_fraction" not in numbers(config_of(tiny), 0.5), "without a peak there is none"


def test_images_are_no_tokens_and_a_graph_of_servers_has_several_steps() -> None:
    servers = {"servers": 1, "steps": 5}
    found = numbers(config_of("resnet50", layout={"data": 2}, micro_batch=8, parameter_server=servers), 2.0)
    assert (found["whole_step_s"], found["samples_per_s"]) == (0.4, 40)
    assert "tokens_per_s" not in found


def test_the_time_of_a_whole_step_follows_from_the_part_that_was_played(tiny: str) -> None:
    config = config_of(tiny, layout={"pipeline": 2, "gpus_per_node": 1}, micro_batches=50, played=5, recorded_steps=1)
    common = {"step": 0, "stream": "compute", "operation": 0}
    rows: list[dict[str, Any]] = [
        {**common, "rank": 1, "name": f"forward {number}.0", "started_s": 0.1 * number, "ended_s": 0.1 * number + 0.05}
        for number in range(5)
    ]
    rows.append({**common, "rank": 0, "name": "update", "started_s": 0.0, "ended_s": 0.6})
    assert training_numbers(config, 0.6, pd.DataFrame(rows), [])["whole_step_s"] == pytest.approx(0.6 + 45 * 0.1)
    timeline = list_schedule(config.loaded(), lambda operations, ranks: 0.0)
    computed_s = 50 * 0.02 * 3 / 2  # Of two stages, on average.
    found = training_numbers(config, 0.6, pd.DataFrame(rows), [timeline])
    assert found["bubble_fraction"] == pytest.approx(5.1 / computed_s - 1, rel=0.05), "of the whole step"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"layout": {"pipeline": 2}, "micro_batches": 50, "played": 5},
            "played: 5 of 50 micro-batches, and the time of a whole step follows from rows of a last stage's",
        ),
        (
            {"layout": {"pipeline": 2}, "micro_batches": 50, "played": 5, "recorded_steps": 1, "recorded_ranks": [0]},
            "set recorded_steps to 1 or more",
        ),
        (
            {
                "layout": {"data": 2},
                "parameter_server": {"servers": 1, "delay": None},
                "goal": {"steps": "100 * (1 + staleness)"},
            },
            "goal.steps: 100 * (1 + staleness): staleness is measured on the rows of all ranks' operations",
        ),
    ],
)
def test_numbers_that_need_rows_are_refused_without_them(tiny: str, keys: dict[str, Any], said: str) -> None:
    faults = [*training_faults(config_of(tiny, **keys), FABRIC)]
    assert any(said in fault for fault in faults), faults


def test_steps_that_are_no_function_are_refused(tiny: str) -> None:
    with pytest.raises(ConfigError, match=r"goal\.steps: epochs: steps do not depend on that; use batch"):
        config_of(tiny, goal={"steps": "epochs / 2"})


def test_staleness_of_asynchronous_servers_is_measured(tiny: str) -> None:
    servers = {"servers": 1, "steps": 8, "delay": None, "slow_workers": {0: 1.001, 1: 1.002}}
    config = config_of(tiny, layout={"data": 2}, parameter_server=servers, goal={"steps": "100 * (1 + staleness)"})
    timeline = list_schedule(config.loaded(), lambda operations, ranks: 0.0)
    found = training_numbers(config, timeline.end_s, pd.DataFrame(), [timeline])
    assert found["steps_to_accuracy"] == pytest.approx(200, rel=0.1), "a worker misses one push of the other"
    synchronous = config_of(tiny, layout={"data": 2}, goal={"steps": "100 * (1 + staleness)"})
    assert training_numbers(synchronous, 1.0, pd.DataFrame(), [])["steps_to_accuracy"] == 100
