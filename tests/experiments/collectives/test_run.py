"""What the experiment on collectives plays, refuses and says, and what its figures show."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.collectives.cases import Play, plays
from experiments.collectives.config import CollectivesConfig
from experiments.collectives.experiment import EXPERIMENT
from experiments.collectives.study import STUDY, sized
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import ServiceLevel
from fabric.results import Phase
from runs.placement import ideal_algbw_Bps, ranks_of
from runs.record import summary_as_json
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_figures_drawn, own_result
from tests.experiments.studies import study_result
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.collectives.job import StepCounts
from traffic.collectives.listing import COLLECTIVES
from traffic.job import Records

FABRIC = load_fabric("fire_flyer_2_zone_200g")
GRADIENTS = str(EXPERIMENT.folder / "gradients.yaml")
PAYLOAD = 4148 / 4214
"""Of a frame of 4,200 B and an Ethernet header, what TCP's payload is."""


def config_of(*overrides: str, of: str = "collectives") -> CollectivesConfig:
    return cast(CollectivesConfig, resolve(of, overrides)[1])


def test_by_default_every_collective_is_played_by_all_that_it_has() -> None:
    wanted = {(one.name, name) for one in COLLECTIVES.values() for name in one.algorithms} | {("allreduce", "hfreduce")}
    played = plays(config_of())
    assert {(play.collective, play.algorithm) for play in played} == wanted
    assert len({play.name for play in played}) == len(played) == len(wanted)


def test_sizes_grow_by_the_factor_up_to_the_end() -> None:
    config = config_of("begin=8", "end=1 KiB", "factor=4", "slice=64", "chunk=64")
    assert config.sizes == [8, 32, 128, 512]
    (barrier,) = (play for play in plays(config) if play.collective == "barrier")
    assert barrier.sizes(config) == [0]


def test_servers_are_hosts_beside_the_ranks() -> None:
    played = [play for play in plays(config_of(of=GRADIENTS)) if play.collective == "push_pull"]
    assert {(play.ranks, play.servers, play.all_ranks) for play in played} == {(8, k, 8 + k) for k in (0, 2, 4, 8)}
    assert [play.name for play in played[:2]] == ["push_pull_sharded_n8", "push_pull_sharded_n8_k2"]


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["ranks=[2,9]"], "ranks: 9 take 9 hosts of fire_flyer_2_zone_200g, which has 8"),
        (["servers=[1]"], "ranks: 8 and 1 servers take 9 hosts of fire_flyer_2_zone_200g, which has 8"),
        (["ranks=[4,4]"], "ranks: 4: named more than once; name each once"),
        (["begin=6"], "begin: 6 bytes are not whole fp32 elements; use a multiple of 4"),
        (["begin=16 MiB"], "begin: 16 MiB is more than end, 8 MiB; lower it"),
        (["slice=16 MiB"], "slice: 16 MiB is more than end, 8 MiB; lower it"),
        (["algorithms=[rign]"], "algorithms: 'rign' is not an algorithm; use some of byteps, "),
        (["collectives=[allredcue]"], "collectives: 'allredcue' is not a collective; use one of allreduce"),
        (["collectives=[gather]", "algorithms=[ring]"], "algorithms: none of the collectives has one of them"),
        (["node_ranks=3"], "node_ranks: 3 do not divide 8 ranks; use a divisor (allreduce, hierarchical, 8 ranks)"),
        (["servers=[3]", "ranks=[2]"], "algorithms: byteps: 3 servers for 2 workers"),
        (
            ["begin=64 GiB", "end=64 GiB"],
            "end: 64 GiB are 2,097,152 pieces of 32 KiB (slice), and a rank keeps account of 524,288 in a step; lower "
            "it, or raise slice to 128 KiB",
        ),
        (["topology=dgx_a100_nodes", "ranks=[16]"], "hfreduce: its ranks are nodes, and here they are GPUs; name"),
        (["msccl=[/nowhere.xml]"], "/nowhere.xml: cannot be read: No such file or directory; give the path"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_begins(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(*overrides)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("play", "busiest"),
    [
        (Play("allreduce", "ring", 8), 1.75),
        (Play("allreduce", "halving_doubling", 7), 2.5),
        (Play("allreduce", "hfreduce", 8), 2.0),
        (Play("gather", "direct", 8), 7 / 8),
        (Play("broadcast", "tree", 8), 1.0),
        (Play("push_pull", "sharded", 6, 2), 3.0),
        (Play("push_pull", "byteps", 6, 2), 2 * 6 * 5 / (36 + 12 - 4)),
    ],
)
def test_closed_forms_fill_the_nic_of_the_busiest_host(play: Play, busiest: float) -> None:
    config, ranks = config_of(), FABRIC.computes[: play.all_ranks]
    found = ideal_algbw_Bps(FABRIC, ranks, play.flows(config, FABRIC, ranks))
    assert found == pytest.approx(25e9 * PAYLOAD / busiest)


def test_gpus_of_a_host_share_its_nic_and_what_stays_in_it_needs_none() -> None:
    fabric = load_fabric("fire_flyer_2_nodes")
    ranks, config = ranks_of(fabric, fabric.computes)[:16], config_of()
    assert len({rank.host for rank in ranks}) == 2
    ring = Play("allreduce", "ring", 16)
    assert ideal_algbw_Bps(fabric, ranks, ring.flows(config, fabric, ranks)) == pytest.approx(
        25e9 * (fabric.mtu_bytes - 52) / (fabric.mtu_bytes + 14) / (2 * 15 / 16)
    )
    hierarchical = Play("allreduce", "hierarchical", 16)
    flows = hierarchical.flows(config, fabric, ranks)
    assert ideal_algbw_Bps(fabric, ranks, flows) == pytest.approx(
        25e9 * (fabric.mtu_bytes - 52) / (fabric.mtu_bytes + 14) / 1.0
    ), "each of 8 GPUs sends 2(N-1)/N S/8 to the other node"
    alone = Play("allreduce", "ring", 8)
    assert ideal_algbw_Bps(fabric, ranks, alone.flows(config, fabric, ranks[:8])) is None


# The summary ---------------------------------------------------------------------------------------------------------

COUNTED = {
    Play("allreduce", "ring", 8): {"ideal_algbw_Bps": 14e9, "busiest_link_of_nic": 1.0},
    Play("allreduce", "tree", 8): {"ideal_algbw_Bps": 12e9, "busiest_link_of_nic": 1.5},
    Play("barrier", "dissemination", 8): {"busiest_link_of_nic": 1.0},
    Play("push_pull", "sharded", 8, 2): {"ideal_algbw_Bps": 6e9, "busiest_link_of_nic": 1.0},
}
SPEEDS = {"allreduce_ring_n8": 14e9, "allreduce_tree_n8": 8e9, "push_pull_sharded_n8_k2": 3e9}
SIZES = (4096, 4 * 2**20)


def steps() -> pd.DataFrame:
    """Return two steps a size, of which one takes thrice as long; in place the ring takes as long again."""
    rows = []
    for phase, speed in SPEEDS.items():
        for size in SIZES:
            for factor in (0.5, 1.5):
                rows.append([phase, "nccl", 0, 8, size, 1.0, 1.0 + factor * size / speed])
    rows += [["allreduce_ring_n8_in_place", "nccl", 0, 8, size, 1.0, 1.0 + 2 * size / 14e9] for size in SIZES]
    rows.append(["barrier_dissemination_n8", "nccl", 0, 8, 0, 1.0, 1.00001])
    return table_of("steps", rows)


def summary() -> dict[str, Any]:
    phases = [SimpleNamespace(phase=Phase(case.name, case.title, "shared", 0.0, 9.0)) for case in COUNTED]
    session = SimpleNamespace(live=SimpleNamespace(fabric=FABRIC), table=lambda _: steps(), phases=phases)
    config = config_of("begin=4 KiB", "end=4 MiB", "factor=1024")
    return STUDY.summarize(cast(Session, session), config, list(COUNTED), {one.name: COUNTED[one] for one in COUNTED})


def rows_of(title: str) -> list[list[str]]:
    (found,) = (one for one in summary()["tables"] if one.title.startswith(title))
    assert all(len(row) == len(found.columns) for row in found.words)
    return cast("list[list[str]]", found.words)


def test_sizes_are_means_over_steps_out_of_place_and_in_place() -> None:
    found = by_path(summary()["metrics"])
    assert found["allreduce_ring_n8.size_4194304.time_s"] == pytest.approx(SIZES[1] / 14e9)
    assert found["allreduce_ring_n8.size_4194304.in_place.time_s"] == pytest.approx(2 * SIZES[1] / 14e9)
    assert "allreduce_tree_n8.size_4096.in_place.time_s" not in found
    assert undeclared("collectives", summary()["metrics"]) == []


def test_rows_have_the_columns_of_nccl_tests() -> None:
    last = rows_of("allreduce")[1]
    assert last[:7] == ["ring", "8", "4194304", "1048576", "float", "sum", "-1"]
    assert last[7:] == ["299.59", "14.000", "24.500", "0", "599.19", "7.000", "12.250", "0"]
    assert rows_of("allreduce")[2][11:] == ["N/A"] * 4
    assert rows_of("barrier")[0][:8] == ["dissemination", "8", "0", "0", "float", "none", "-1", "10.00"]


def test_what_falls_short_of_its_closed_form_says_by_what() -> None:
    whole, shared, slow = rows_of("busbw of the largest size")
    assert whole[4:] == ["24.5", "24.5", "100.0%", "1.00", "NIC"]
    assert shared[4:] == ["14", "21", "66.7%", "1.50", "a link that flows share: 67%"]
    assert slow[6:] == ["50.0%", "1.00", "time to fill, or peers in turn"]
    assert "1 of 3 reach 95%" in summary()["answer"]
    assert "push pull, sharded + 2 servers, 8 ranks: 50%" in summary()["answer"]


def test_ways_to_add_up_gradients_stand_beside_each_other_by_closed_form() -> None:
    rows = rows_of("Adding up 4 MiB of gradients")
    assert [row[1:3] for row in rows] == [
        ["allreduce, ring", "8"],
        ["allreduce, tree", "8"],
        ["push pull, sharded + 2 servers", "10"],
    ]
    assert rows[0][3] == f"{25 * PAYLOAD / 14:.3f}"


def test_metrics_and_the_summary_can_be_written() -> None:
    found = by_path(summary()["metrics"])
    assert found["allreduce_ring_n8.size_4194304.busbw_Bps"] == pytest.approx(24.5e9)
    assert found["allreduce_ring_n8.size_4096.in_place.time_s"] == pytest.approx(2 * 4096 / 14e9)
    assert found["allreduce_tree_n8.of_closed_form_fraction"] == pytest.approx(2 / 3)
    assert "barrier_dissemination_n8.of_closed_form_fraction" not in found
    cases = json.loads(json.dumps(summary_as_json(summary())))["cases"]
    assert [
        one["settings"]["size"] for one in cases if one["phase"] == "allreduce_ring_n8" and "size" in one["settings"]
    ] == ["4096", "4194304"]


def test_a_phase_plays_each_size_as_often_as_the_config_says() -> None:
    config = config_of("warm_up_steps=2", "steps=3")
    called = []

    def run_sizes(sizes: list[int], counts: StepCounts, phase: str, in_place: bool) -> Records:
        called.append((sizes, counts, phase, in_place))
        return Records(steps=[{"step": 0}])

    inner = cast(Any, SimpleNamespace(name="nccl", level=ServiceLevel.NCCL, run_sizes=run_sizes))
    steps_of = sized(inner, Play("allreduce", "ring", 8), config, in_place=True)
    steps_of.play("p")
    steps_of.finish()
    assert called == [([8 * 4**place for place in range(11)], StepCounts(2, 3), "p", True)], "8 B to 8 MiB"
    assert steps_of.halt().rows("steps") == [{"step": 0}]
    assert steps_of.halt().rows("steps") == []


# Figures -------------------------------------------------------------------------------------------------------------


def drawn(tmp_path: Path, name: str, found: dict[str, Any]) -> Figure | None:
    result = study_result(tmp_path / name, EXPERIMENT, found)
    return next(one for one in EXPERIMENT.load_figures() if one.name == name).draw(result)


def test_figures_show_each_collective_beside_its_closed_form(tmp_path: Path) -> None:
    figure = drawn(tmp_path, "busbw", summary())
    assert figure is not None
    panels = {panel.get_title(loc="left"): panel for panel in figure.subfigs[1].axes if panel.get_visible()}
    assert list(panels) == ["allreduce", "push pull"]
    ring = panels["allreduce"].lines[0]
    assert np.asarray(ring.get_xdata()).tolist() == list(SIZES)
    assert np.asarray(ring.get_ydata())[-1] == pytest.approx(24.5)
    assert [text.get_text() for text in panels["allreduce"].texts] == ["24.5", "21"], "a line per closed form"
    compared = drawn(tmp_path, "sums", summary())
    assert compared is not None
    (panel,) = compared.subfigs[1].axes
    assert [text.get_text().replace("\n", " ") for text in panel.get_yticklabels()] == [
        "push pull, sharded + 2 servers, 8 ranks",
        "allreduce, tree, 8 ranks",
        "allreduce, ring, 8 ranks",
    ]
    assert [text.get_text() for text in panel.texts][-1] == "0.3 ms, 100.0% of closed form"


def test_without_plays_there_are_no_figures(tmp_path: Path) -> None:
    result = own_result(tmp_path / "run", EXPERIMENT)
    assert own_figures_drawn(result, EXPERIMENT) == set()
