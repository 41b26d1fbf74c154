"""Training jobs as jobs: small ones played on loopback, and what cannot be on a fabric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.config import checked
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric
from traffic.job import Stage
from traffic.work.kinds import TRAINING
from traffic.work.list_schedule import list_schedule
from traffic.work.training_job import PlayedTrainingConfig, TrainingJob, training_faults

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
    yield Stage(FABRIC, pool, lambda _: None, seed=7)
    assert not pool.handles, "a test did not close its job"


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


class OnLoopback(TrainingJob):
    """All ranks have the machine's own address."""

    def _addresses_of(self, rank: int) -> tuple[str, ...]:
        return ("127.0.0.1",)


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
    job = OnLoopback(stage, config, nodes, level=ServiceLevel.NCCL, name="training")
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
