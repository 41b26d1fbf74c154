"""What the comparison of HFReduce and NCCL says of a run over points, and which configs are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.hfreduce_vs_nccl.by_nodes import node_price
from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.experiment import EXPERIMENT
from experiments.hfreduce_vs_nccl.network import explanation
from experiments.hfreduce_vs_nccl.sent import nodes_of
from experiments.hfreduce_vs_nccl.study import STUDY
from experiments.hfreduce_vs_nccl.variants import VariantPhase, plays, variants
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import ServiceLevel
from fabric.results import ResultWriter
from fabric.tables import TABLES
from runs.node_use import CountedSteps
from runs.placement import nodes_by_zone
from runs.record import summary_as_json
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.job import FiniteJob, Records
from traffic.stepped_job import FiniteSteps

TRUE_RATE = load_fabric("fire_flyer_2_small_200g")
SCALED = load_fabric("fire_flyer_2_small")
SIZE = 186 * 2**20


POINTS = str(EXPERIMENT.folder / "points.yaml")


def config_of(*overrides: str) -> HFReduceVsNcclConfig:
    return cast(HFReduceVsNcclConfig, resolve(POINTS, overrides)[1])


CONFIG = config_of("nodes=[2,8]")
PLAYED = sorted(
    plays(CONFIG, TRUE_RATE), key=lambda play: [one.name for one in variants(TRUE_RATE)].index(play.variant.name)
)
NAMES = [play.name for play in PLAYED]


def steps_of(speeds: dict[str, float]) -> pd.DataFrame:
    """Return three steps a phase at its GB/s of a true-rate fabric: the middle one counts."""
    rows = []
    for name, speed in speeds.items():
        level, ranks = name.partition("_")[0], int(name.rpartition("_n")[2])
        for step, factor in enumerate((0.5, 1.0, 3.0)):
            rows.append([name, level, step, ranks, SIZE, 1.0, 1.0 + factor * SIZE / speed / 1e9])
    return table_of("steps", rows).astype(TABLES["steps"].dtypes)


def summary_of(
    speeds: dict[str, float], fabric: Any = TRUE_RATE, config: HFReduceVsNcclConfig = CONFIG
) -> dict[str, Any]:
    outcomes = [
        SimpleNamespace(
            phase=SimpleNamespace(name=name),
            conservation=SimpleNamespace(dropped_by_queues=place, sent_packets=12345, retransmissions=2 * place),
        )
        for place, name in enumerate(NAMES)
    ]
    session = SimpleNamespace(live=SimpleNamespace(fabric=fabric), phases=outcomes, table=lambda _: steps_of(speeds))
    counted = {name: {"busiest_link_of_nic": 1 + place / 10} for place, name in enumerate(NAMES)}
    return STUDY.summarize(cast(Session, session), config, plays(config, fabric), counted)


def shown_in(summary: dict[str, Any], number: str) -> dict[str, float]:
    """Return a number that figures show of phases, by their names."""
    return {one["phase"]: one["aside"][number] for one in summary["cases"] if number in one["aside"]}


SPEEDS = {name: 9.01 + place for place, name in enumerate(NAMES)}


@cache
def usual_summary() -> dict[str, Any]:
    return summary_of(SPEEDS)


def rows_of(summary: dict[str, Any], title: str) -> list[list[str]]:
    (found,) = [one for one in summary["tables"] if one.title.startswith(title)]
    assert {len(row) for row in found.words} <= {len(found.columns)}
    rows: list[list[str]] = found.words
    return rows


def test_both_trees_and_both_algorithms_are_played_over_points() -> None:
    names = ["hfreduce_plain", "hfreduce_zone_aware", "nccl_ring", "nccl_tree"]
    assert [variant.name for variant in variants(TRUE_RATE)] == names
    wanted = [f"{name}_n{count}" for name in names for count in CONFIG.nodes]
    assert wanted == NAMES


@pytest.mark.parametrize(
    ("count", "zones", "shares"), [(2, 2, [2, 0]), (3, 2, [3, 0]), (4, 2, [2, 2]), (5, 2, [3, 2]), (4, 1, [4])]
)
def test_nodes_are_of_all_zones_from_four_on(count: int, zones: int, shares: Sequence[int]) -> None:
    assert nodes_by_zone(count, zones) == shares


def test_chosen_nodes_are_the_first_of_each_zone() -> None:
    nodes = nodes_of(VariantPhase(variants(TRUE_RATE)[0], 4, SIZE), TRUE_RATE)
    assert [node.name for node in nodes] == ["z0h000", "z0h001", "z1h000", "z1h001"]


def test_a_summary_can_be_written_and_read(tmp_path: Any) -> None:
    said = summary_as_json(usual_summary())
    ResultWriter(tmp_path).write_json("summary.json", said)
    assert json.loads((tmp_path / "summary.json").read_text()) == said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hfreduce_plain_n2.algbw_Bps", 9.01e9),
        ("hfreduce_plain_n2.steps", 3),
        ("hfreduce_plain_n8.busbw_Bps", 10.01e9 * 2 * 7 / 8),
        ("hfreduce_plain_n2.step_s", SIZE / 9.01e9),
        ("hfreduce_plain_n2.network_ideal_Bps", 25e9),
        ("hfreduce_plain_n8.network_ideal_Bps", 12.5e9),
        ("hfreduce_plain_n8.times_nccl", 10.01 / 14.01),
        ("nccl_ring_n2.network_ideal_Bps", 25e9),
        ("nccl_ring_n8.network_ideal_Bps", 25e9 * 8 / 14),
        ("nccl_tree_n8.network_ideal_Bps", 12.5e9),
        ("nccl_tree_n8.drops_packets", 7),
        ("nccl_tree_n8.retransmissions", 14),
        ("nccl_tree_n8.busiest_link_of_nic", 1.7),
    ],
)
def test_a_number_comes_from_the_rows_of_its_phase(name: str, value: float) -> None:
    assert by_path(usual_summary()["metrics"])[name] == pytest.approx(value)
    assert undeclared("hfreduce_vs_nccl", usual_summary()["metrics"]) == []


def test_algbw_stands_beside_its_share_of_the_limit_and_the_papers() -> None:
    rows = rows_of(usual_summary(), "algbw")
    assert rows[0] == ["HFReduce, plain tree", "9.01 (36%)", "10 (80%)", "6.3-8.1"]
    assert rows[-1] == ["NCCL, tree", "15 (60%)", "16 (128%)", "1.6-4.8"]


def test_what_is_explained_is_of_the_most_nodes_with_all_that_it_follows_from() -> None:
    rows = rows_of(usual_summary(), "What the network alone explains: 8 nodes")
    assert rows[0][:5] == ["HFReduce, plain tree", "10", "12.5", "80%", "6.3-8.1"]
    assert rows[-2][:5] == ["NCCL, ring", "14", "14.3", "98%", "1.6-4.8"]
    assert rows[-2][5].startswith("the network allows 2.9 times the paper's best")


def test_the_answer_is_of_the_most_nodes() -> None:
    assert usual_summary()["answer"] == (
        "With 186 MiB over 8 nodes the network alone allows: HFReduce, plain tree 10 GB/s (paper: 6.3-8.1); HFReduce, "
        "zone-aware tree 12 GB/s (paper: 6.3-8.1); NCCL, ring 14 GB/s (paper: 1.6-4.8); NCCL, tree 16 GB/s (paper: "
        "1.6-4.8)."
    )


def test_only_chosen_variants_are_played_and_told() -> None:
    config = config_of("nodes=[2,8]", "variants=[hfreduce_zone_aware]")
    chosen = plays(config, TRUE_RATE)
    assert [play.name for play in chosen] == ["hfreduce_zone_aware_n2", "hfreduce_zone_aware_n8"]
    summary = summary_of({play.name: 9.0 for play in chosen}, config=config)
    assert summary["answer"].endswith("alone allows: HFReduce, zone-aware tree 9 GB/s (paper: 6.3-8.1).")
    assert [row[0] for row in rows_of(summary, "algbw")] == ["HFReduce, zone-aware tree"]
    assert not any("times NCCL" in table.title for table in summary["tables"]), "no ring to compare with"
    assert list(shown_in(summary, "plain_Bps")) == [play.name for play in chosen]


def test_a_variant_that_the_fabric_has_not_is_refused_with_those_that_it_has() -> None:
    words = (
        r"variants: nccl_rings, x cannot be played on fire_flyer_2_small_200g; it has hfreduce_plain, "
        r"hfreduce_zone_aware, nccl_ring, nccl_tree"
    )
    with pytest.raises(ConfigError, match=words):
        config_of("variants=[nccl_rings, nccl_ring, x]")
    with pytest.raises(ConfigError, match="nccl_ring more than once"):
        config_of("variants=[nccl_ring, nccl_ring]")


def test_a_scaled_fabric_is_told_at_full_scale() -> None:
    summary = summary_of({name: speed / SCALED.scale for name, speed in SPEEDS.items()}, SCALED)
    assert rows_of(summary, "algbw") == rows_of(usual_summary(), "algbw")
    assert rows_of(summary, "What") == rows_of(usual_summary(), "What")
    assert by_path(summary["metrics"])["hfreduce_plain_n8.network_ideal_Bps"] == pytest.approx(12.5e9 / SCALED.scale)


def test_pairs_across_zones_are_those_of_the_schedule() -> None:
    pairs = {(row[0], row[1]): row[3] for row in rows_of(usual_summary(), "Network")}
    assert pairs["HFReduce, plain tree", "8"] == pairs["NCCL, tree", "8"] == "4"
    assert pairs["HFReduce, zone-aware tree", "8"] == "1"
    assert pairs["NCCL, ring", "8"] == "2"
    assert pairs["NCCL, ring", "2"] == "0"


def test_drops_retransmissions_and_the_busiest_link_are_told_of_each_phase() -> None:
    assert rows_of(usual_summary(), "Network")[-1] == ["NCCL, tree", "8", "186 MiB", "4", "1.70", "12,345", "7", "14"]


def test_bandwidth_per_price_is_at_full_scale_and_of_topologies_with_prices() -> None:
    assert not [one for one in usual_summary()["tables"] if "price" in one.title]
    config = config_of("nodes=[2,8]", "topology.prices={switch: 3, node: 6}", "variants=[hfreduce_plain]")
    price = node_price(config)
    assert price is not None
    assert price == pytest.approx(6 + 3 * 18 / len(TRUE_RATE.computes))
    summary = summary_of({"hfreduce_plain_n2": 5.0}, SCALED, config)
    prices = {path: value for path, value in by_path(summary["metrics"]).items() if "price" in path}
    assert prices == {"hfreduce_plain_n2.algbw_Bps_per_price": pytest.approx(5e9 * SCALED.scale / price)}
    rows = rows_of(summary, "algbw per price")
    assert rows == [["HFReduce, plain tree", f"{price:.4g}", f"{5 * SCALED.scale / price:.0f}", "none"]]


def test_a_run_without_steps_says_so() -> None:
    summary = summary_of({})
    assert "plain tree an unknown number of GB/s" in summary["answer"]
    assert rows_of(summary, "algbw")[0][1] == "none"
    assert not [one for one in summary["tables"] if one.title.startswith("What")]


@pytest.mark.parametrize(
    ("name", "gigabytes", "says"),
    [
        ("nccl_ring", 9.6, "the network allows 2.0 times the paper's best: hosts (PCIe, memory, kernels) set"),
        ("hfreduce_plain", 12.15, "the network allows 1.5 times the paper's best: hosts (the sum in the node"),
        ("nccl_tree", 3.0, "inside the paper's range: the network alone explains"),
        ("nccl_tree", 1.0, "below the paper's range"),
    ],
)
def test_what_the_network_explains_follows_from_the_numbers(name: str, gigabytes: float, says: str) -> None:
    (variant,) = [one for one in variants(TRUE_RATE) if one.name == name]
    assert says in explanation(variant, gigabytes * 1e9)


def test_every_phase_is_in_the_figure_of_algbw_over_nodes() -> None:
    assert sorted(shown_in(usual_summary(), "plain_Bps")) == sorted(NAMES)
    assert set(shown_in(usual_summary(), "paper_most_Bps").values()) == {8.1e9, 4.8e9}
    assert [one["settings"]["gpus"] for one in usual_summary()["cases"]] == ["2"] * 4 + ["8"] * 4, "points have one"
    assert not shown_in(usual_summary(), "beside_nvlink_Bps") | shown_in(usual_summary(), "of_size_Bps")


def test_a_phase_is_as_long_as_its_steps() -> None:
    played: list[tuple[int, str]] = []

    def run_steps(count: int, phase: str) -> Records:
        played.append((count, phase))
        return Records(steps=[{"step": number} for number in range(count)])

    inner = cast(Any, SimpleNamespace(name="nccl", level=ServiceLevel.NCCL, run_steps=run_steps))
    steps = CountedSteps(inner, 3, lambda: {"memory": len(played)})
    job = FiniteSteps(inner, steps)
    job.play("p")
    assert played == []
    job.finish()
    assert [row["step"] for row in job.halt().rows("steps")] == [0, 1, 2]
    assert played == [(3, "p")]
    assert (steps.before, steps.after) == ({"memory": 0}, {"memory": 1})
    assert isinstance(job, FiniteJob), "its load plays until it is told to halt, as that of all jobs"


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("nodes=[1]", "nodes.0: Input should be greater than or equal to 2"),
        ("nodes=[]", "nodes: List should have at least 1 item"),
        ("nodes=8", "nodes: Input should be a valid list"),
        ("nodes=[4, 8, 4]", "nodes: 4 more than once; name each once"),
        ("nodes=[26]", "nodes: 26 takes 13 compute nodes of zone 0, which has 12"),
        ("size=1001", "size: 1001 bytes are not whole fp32 elements"),
        ("size=1 MiB", None),
        ("size=256 KiB", "chunk: 256 KiB is more than the half of 256 KiB that a tree carries"),
        ("slice=100 MiB", "slice: 100 MiB is more than the half of 186 MiB"),
        ("steps=0", "steps: Input should be greater than or equal to 1"),
        ("host_caps={}", "host_caps"),
        ("sizes=[256 KiB]", "chunk: 256 KiB is more than the half of 256 KiB"),
        ("sizes=[1 MiB, 1 MiB]", "sizes: 1048576 more than once"),
    ],
)
def test_a_config_that_would_be_silently_wrong_is_refused(setting: str, fault: str | None) -> None:
    if fault is None:
        config_of(setting)
        return
    with pytest.raises(ConfigError) as caught:
        config_of(setting)
    assert fault in str(caught.value)
