"""On nodes with an inside the series of Figure 7 are played with no cap, and which limit of a node binds is named."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.experiment import EXPERIMENT
from experiments.hfreduce_vs_nccl.sent import limits_of, nodes_of
from experiments.hfreduce_vs_nccl.study import STUDY
from experiments.hfreduce_vs_nccl.variants import VariantPhase, plays, variants
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Port
from fabric.queueing import budgets
from fabric.tables import TABLES as SHARED_TABLES
from runs import node_use
from runs.node_use import TABLES, busiest, counters_of, limits_frame
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.collectives.job import zones_of

NAMES = ["hfreduce", "hfreduce_nvlink_zone", "hfreduce_nvlink", "nccl_ring"]


def config_of(*overrides: str) -> HFReduceVsNcclConfig:
    return cast(HFReduceVsNcclConfig, resolve("hfreduce_vs_nccl", overrides)[1])


CONFIG = config_of("nodes=[2,16]", "sizes=[4 MiB]")
FABRIC = CONFIG.fabric()
PLAYED = plays(CONFIG, FABRIC)
SPEEDS = dict(zip(NAMES, (8e9, 16e9, 15e9, 4e9), strict=True))


def busy_frame(value: float) -> pd.DataFrame:
    """Return rows of the first play's nodes, of which the second's limits served ``value`` of what they could."""
    play = PLAYED[0]
    counters = counters_of(FABRIC, nodes_of(play, FABRIC))
    second = counters[-1].host
    before = {one.counted_at: 100.0 for one in counters}
    share = {one.counted_at: value if one.host == second else value / 2 for one in counters}
    after = {one.counted_at: 100 + share[one.counted_at] * one.rate_bps / 8 * 2 for one in counters}
    return limits_frame(play.name, counters, before, after, 2.0)


@cache
def summary() -> dict[str, Any]:
    rows = [
        [play.name, play.variant.level.label, 0, play.count, play.size, 1.0, 1 + play.size / SPEEDS[play.variant.name]]
        for play in PLAYED
    ]
    outcomes = [
        SimpleNamespace(
            phase=SimpleNamespace(name=play.name),
            conservation=SimpleNamespace(dropped_by_queues=0, sent_packets=1, retransmissions=0),
        )
        for play in PLAYED
    ]
    tables = {"steps": table_of("steps", rows).astype(SHARED_TABLES["steps"].dtypes), "node_limits": busy_frame(0.9)}
    session = SimpleNamespace(live=SimpleNamespace(fabric=FABRIC), phases=outcomes, table=tables.__getitem__)
    counted = {play.name: {"busiest_link_of_nic": 1.0} for play in PLAYED}
    return STUDY.summarize(cast(Session, session), CONFIG, PLAYED, counted)


def words_of(title: str) -> list[list[str]]:
    (found,) = [one for one in summary()["tables"] if one.title.startswith(title)]
    rows: list[list[str]] = found.words
    return rows


def test_the_default_is_nodes_with_an_inside_and_the_series_of_figure_7() -> None:
    default = config_of()
    assert (default.fabric().inside, default.queueing.value) == (FABRIC.inside, "lossless")
    assert [variant.name for variant in variants(default.fabric())] == NAMES
    assert default.nodes == [2, 4, 8, 16]


def test_caps_of_hosts_are_no_key_any_more() -> None:
    with pytest.raises(ConfigError, match="host_caps"):
        config_of("host_caps={}")


def test_only_one_variant_uses_nvlink_where_others_could() -> None:
    pairs = [VariantPhase(one, 2, 2**20) for one in variants(FABRIC)]
    names = {one.variant.name: [limit.name for limit in limits_of(one, FABRIC)] for one in pairs}
    assert {name for name, limits in names.items() if "NVLink" in limits} == {"hfreduce_nvlink_zone", "hfreduce_nvlink"}


def test_pairs_of_nodes_are_of_one_zone_or_of_two_as_the_series_says() -> None:
    pairs = {one.name: nodes_of(VariantPhase(one, 2, 2**20), FABRIC) for one in variants(FABRIC)}
    zones = {name: zones_of(FABRIC, nodes) for name, nodes in pairs.items()}
    assert zones == {"hfreduce": [0, 0], "hfreduce_nvlink_zone": [0, 0], "hfreduce_nvlink": [0, 1], "nccl_ring": [0, 0]}


def test_a_zone_that_has_too_few_nodes_plays_fewer() -> None:
    names = [play.name for play in PLAYED]
    sizes = [f"{name}_n2_4MiB" for name in NAMES]
    assert names == [*(f"{name}_n2" for name in NAMES), *(f"{n}_n16" for n in NAMES if not n.endswith("zone")), *sizes]


def test_nodes_without_nvlink_have_no_series_with_it() -> None:
    fabric = load_fabric("fire_flyer_2_nodes")
    assert [variant.name for variant in variants(fabric)] == ["hfreduce", "nccl_ring"]


def test_queueings_with_loss_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"topology\.node: queueing shared cannot have it"):
        config_of("queueing=shared")


def test_the_table_names_the_binding_limit_and_how_much_of_it_was_reached() -> None:
    rows = {(row[0], row[1]): row for row in words_of("Which limit of a node")}
    hfreduce = rows["HFReduce", "128"]
    assert hfreduce[5].startswith("root port of g5, g6 9.2")
    assert hfreduce[4] == f"{8e9 / 9.2276e9:.0%}"
    assert rows["NCCL, ring", "16"][5].startswith("root port of g5, g6 4.9")
    assert rows["HFReduce with NVLink, across zones", "128"][5].startswith("NIC 12.3")


def test_the_closed_form_of_the_tightest_limit_is_a_number_of_its_phase() -> None:
    limits = [by_path(summary()["metrics"])[f"{name}_n16.limit_Bps"] for name in NAMES if not name.endswith("zone")]
    assert undeclared("hfreduce_vs_nccl", summary()["metrics"]) == []
    assert limits == pytest.approx([9.2276e9, 12.303e9, 4.65e9], rel=1e-3)


def test_what_limits_served_is_told_of_the_busiest_node() -> None:
    frame = busy_frame(0.9)
    assert list(frame.columns) == list(TABLES["node_limits"].columns)
    limits = {limit for _, limit in busiest(frame)}
    assert limits == {
        "root port", "memory", "NVLink", "PCIe, GPU to CPU", "PCIe, CPU to GPU", "NIC, out", "NIC, in", "GPU to NIC",
        "NIC to GPU",
    }  # fmt: skip
    assert list(busiest(frame).values()) == pytest.approx([0.9] * len(limits))
    root = frame[(frame["limit"] == "root port") & (frame["host"] == "z0h000")]
    assert root["served_bytes"].tolist() == [round(0.45 * 37.5e9 * 2)]
    rows = words_of("Where the time goes")
    assert rows[0][3:] == ["90%"] * 9
    assert set(rows[1][3:]) == {"none"}


def test_what_a_limit_served_is_of_its_port_in_all_lanes_or_of_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = counters_of(FABRIC, FABRIC.computes[:1])
    names = [one.counted_at for one in counters if isinstance(one.counted_at, str)]
    assert sorted(name.split(" ", 1)[1] for name in names) == ["memory 0", "peer_in 0", "peer_out 0", "root_port 0"]
    port = next(one.counted_at for one in counters if not isinstance(one.counted_at, str))
    sent = {(port, "lossless"): 5, (port, "management"): 2, (Port(FABRIC.switches[0], 1), "lossless"): 9}
    monkeypatch.setattr(node_use, "lane_counters", lambda emulation, counter: sent)
    monkeypatch.setattr(budgets, "number_of", names.index)
    drawn = {number: SimpleNamespace(drawn=7000 + 1000 * number) for number in range(len(names))}
    monkeypatch.setattr(budgets, "read", lambda: drawn)
    found = node_use.served(cast(Any, SimpleNamespace(emulation=None)), counters)
    assert [found[name] for name in names] == [7, 8, 9, 10]
    assert found[port] == 7
    assert found.keys() == {one.counted_at for one in counters}


def test_points_have_no_such_limits() -> None:
    fabric = load_fabric("fire_flyer_2_small_200g")
    assert limits_of(VariantPhase(variants(fabric)[0], 2, 2**20), fabric) == []
    assert counters_of(fabric, fabric.computes) == []


def places_of(number: str, place: str) -> dict[str, str]:
    """Return where the phases are that have a number for figures."""
    return {one["phase"]: one["settings"][place] for one in summary()["cases"] if number in one["aside"]}


def test_each_figure_has_its_phases_over_gpus_or_sizes() -> None:
    plain = {"hfreduce_n2": "16", "nccl_ring_n2": "16", "hfreduce_n16": "128", "nccl_ring_n16": "128"}
    assert places_of("plain_Bps", "gpus") == places_of("plain_limit_Bps", "gpus") == plain
    papers = {one["settings"]["kind"]: one["settings"]["paper"] for one in summary()["cases"] if one["phase"] in plain}
    assert papers == {"HFReduce": "6.3-8.1", "NCCL": "1.6-4.8"}
    with_nvlink = {"hfreduce_nvlink_zone_n2", "hfreduce_nvlink_n2", "hfreduce_nvlink_n16"}
    assert places_of("beside_nvlink_Bps", "gpus").keys() == {"hfreduce_n2", "hfreduce_n16"} | with_nvlink
    assert places_of("nvlink_limit_Bps", "gpus").keys() == places_of("paper_nvlink_Bps", "gpus").keys() == with_nvlink
    sizes = places_of("of_size_Bps", "mebibytes")
    assert sizes == {f"{name}_n2": "8" for name in NAMES} | {f"{name}_n2_4MiB": "4" for name in NAMES}


def test_all_figures_of_a_study_are_drawn(tmp_path: Path) -> None:
    assert figures_drawn(tmp_path / "run", EXPERIMENT, summary()) == {"scaling", "scaling_nvlink", "sizes"}


def test_ratios_to_nccl_stand_beside_the_papers() -> None:
    (table,) = [one for one in summary()["tables"] if one.title.startswith("How many times")]
    assert table.words == [
        ["HFReduce", "2.00", "2.00"],
        ["HFReduce with NVLink, within a zone", "4.00", "none"],
        ["HFReduce with NVLink, across zones", "3.75", "3.75"],
    ]
    assert "1.7" in table.note
    assert by_path(summary()["metrics"])["hfreduce_nvlink_n16.times_nccl"] == pytest.approx(3.75)


def test_the_answer_names_each_series_with_its_gpus_and_the_papers_range() -> None:
    assert "HFReduce 8 GB/s over 128 GPUs (paper: 6.3-8.1)" in summary()["answer"]
    assert "HFReduce with NVLink, within a zone 16 GB/s over 16 GPUs (paper: > 10)" in summary()["answer"]
