"""Configs of replays of traces: what is wrong with them is said before anything comes up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trace_replay.config import WANTED_SAMPLES, TraceReplayConfig
from fabric.config import checked, read_yaml
from runs.registry import EXPERIMENTS
from topologies.load import load_fabric, read_topology
from traffic.work.operations import Compute

FABRIC = load_fabric("fat_tree_k4")
GOAL = (
    "num_ranks {n}\nrank 0 {{\na: calc {ns}\nb: send 8b to 1\nb requires a\n}}\nrank 1 {{\na: recv {size}b from 0\n}}\n"
)


def config(*texts: str, **keys: Any) -> TraceReplayConfig:
    traces = [{"name": f"t{number}", "text": text} for number, text in enumerate(texts)]
    data = {"experiment": "trace_replay", "topology": read_topology("fat_tree_k4"), "traces": traces, **keys}
    return checked(TraceReplayConfig, data, "test")


def goal(size: int = 8, ns: int = 1000) -> str:
    return GOAL.format(n=2, size=size, ns=ns)


def test_the_example_has_no_faults() -> None:
    experiment = EXPERIMENTS["trace_replay"]
    data = read_yaml(experiment.file)
    data["topology"] = read_topology(data["topology"])
    example = checked(TraceReplayConfig, data, "example")
    assert list(example.faults(FABRIC)) == []


def test_what_cannot_end_or_be_read_or_placed_is_a_fault() -> None:
    (unequal,) = config(goal(size=9)).faults(FABRIC)
    assert unequal.startswith("graph t0: rank 0, operation 1")
    assert "sizes differ" in unequal
    (unread,) = config("hello").faults(FABRIC)
    assert unread.startswith("t0: begins with 'hello'")
    (many,) = config(*[goal()] * 9).faults(FABRIC)
    assert many == (
        "traces: 18 ranks, 1 per node, need 18 compute nodes, and fat_tree_k4 has 16; use a larger topology, or raise "
        "ranks_per_node"
    )
    (twice, *_) = config(goal(), traces=[{"name": "a", "text": goal()}] * 2).faults(FABRIC)
    assert twice == "traces: a: 2 have this name, which distinguishes their rows; give each its own"
    (neither,) = config(traces=[{"name": "a"}]).faults(FABRIC)
    assert neither == "a: needs either files or text"


def test_flops_need_a_speed_and_one_rank_sends_nothing() -> None:
    simai = "HYBRID_TRANSFORMER model_parallel_NPU_group: 1 all_gpus: 1\n1\na -1 5 ALLREDUCE 8 1 NONE 0 1 NONE 0 1\n"
    (alone,) = config(simai).faults(FABRIC)
    assert alone == "t0: has one rank, which sends nothing to others; say --ranks N, if all do the same"


def test_computing_takes_as_much_longer_as_the_fabric_is_slower() -> None:
    for scale, expected in ((None, FABRIC.scale * 1e-6), (3.0, 3e-6)):
        ((_, _, graph),) = config(goal(), time_scale=scale).work(FABRIC)
        first = graph.operations[0][0]
        assert isinstance(first, Compute)
        assert first.duration_s == pytest.approx(expected)


def names(found: list[Any]) -> list[list[str]]:
    return [[str(node) for node in nodes] for nodes, _ in found]


def test_ranks_are_placed_next_to_each_other_or_from_leaf_to_leaf_or_anywhere() -> None:
    computes = [str(node) for node in FABRIC.computes]
    assert names(config(goal()).places(FABRIC, [4, 3])) == [computes[:4], computes[4:7]]
    spread = names(config(goal(), placement="spread").places(FABRIC, [8]))[0]
    leaves = {FABRIC.leaf_of(FABRIC.nics_of[FABRIC.host_named(name)][0]) for name in spread}
    assert len(leaves) == 8
    first, again, other = (
        names(config(goal(), placement="random", seed=seed).places(FABRIC, [16])) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert sorted(first[0]) == computes


def test_ranks_are_where_a_list_says() -> None:
    computes = [str(node) for node in FABRIC.computes]
    ((nodes, named),) = config(goal(), placement=[computes[9], computes[2]]).places(FABRIC, [2])
    assert ([str(node) for node in nodes], named) == ([computes[9], computes[2]], [computes[9], computes[2]])
    (fault,) = config(goal(), placement=[computes[0]]).faults(FABRIC)
    assert fault == "placement: names 1 places for 2 ranks; name one for each"
    (unknown,) = config(goal(), placement=["x", computes[0]]).faults(FABRIC)
    assert unknown == "placement: x: no compute node of fat_tree_k4"


@pytest.mark.parametrize(("is_exact", "least_s"), [(True, 0.0), (False, 0.01)])
def test_a_short_replay_is_sampled_so_often_that_figures_have_points(
    monkeypatch: pytest.MonkeyPatch, is_exact: bool, least_s: float
) -> None:
    monkeypatch.setattr("experiments.trace_replay.config.current_engine", lambda: SimpleNamespace(is_exact=is_exact))
    short = config(goal(ns=10**8), steps=2, time_scale=1.0)
    assert short.sampled_on(FABRIC) == pytest.approx(max(2 * 0.1 / WANTED_SAMPLES, least_s))
    assert config(goal(ns=10**11), time_scale=1.0).sampled_on(FABRIC) == 0.05
    assert config(goal(ns=10**11), time_scale=1.0, sample_period="1 ms").sampled_on(FABRIC) == 0.001
