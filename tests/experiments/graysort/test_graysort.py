"""What a run of graysort says, from made-up rows; and what it plays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.graysort.config import PAPER_BYTES, PAPER_S, Computing, GraySortConfig, Sort, paper_s
from experiments.graysort.experiment import EXPERIMENT
from experiments.graysort.study import STUDY
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Fabric
from fabric.results import Phase
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from topologies.load import load_fabric
from traffic.sorting.graph import Exchange, SortShape
from traffic.sorting.measures import Moved, Nics, phase_times

FABRIC = load_fabric("graysort_200g")


def config_of(*overrides: str) -> GraySortConfig:
    return cast(GraySortConfig, resolve("graysort", overrides)[1])


def test_computing_takes_as_long_as_the_published_run_for_as_much_data_half_in_each_phase() -> None:
    config = config_of()
    paper, none = (
        next(one for one in Sort.grid(config) if one.computing is computing).sort(config.sort)
        for computing in (Computing.PAPER, Computing.NONE)
    )
    whole_s = paper_s(config.sort.shape.node_bytes)
    assert paper.tasks * paper.partition_time == pytest.approx(whole_s / 2)
    assert paper.partitions * paper.sort_time == pytest.approx(whole_s / 2)
    assert none.partition_time == none.sort_time == 0
    assert paper_s(PAPER_BYTES / 50) == PAPER_S


def test_published_nics_were_nearly_idle() -> None:
    """2.7 GB/s each way of a node's 25 (3FS's README, both phases), and 16 % of storage nodes' with three replicas."""
    shape = SortShape(50, 1, 1, round(PAPER_BYTES / 50 / 50))
    shares = Moved.of(shape, 3).shares(Nics(25e9, 25 * 100e9), PAPER_S)
    assert shares["compute_nic_fraction"] == pytest.approx(2.68 / 25, rel=0.01)
    assert shares["storage_nic_fraction"] == pytest.approx(0.161, rel=0.01)


def test_what_moves_by_exchange() -> None:
    through, between = (SortShape(4, 1, 1, 100, exchange) for exchange in Exchange)
    assert Moved.of(through, 2) == Moved(2 * 400, 2 * 400, 2 * 1600 * 2, 2 * 1600 * 2)
    assert Moved.of(between, 2) == Moved(400 + 300, 400 + 300, 1600 * 2, 1600 * 2)
    assert Moved.of(through, 2).least_s(Nics(10, 100), 0.5) == pytest.approx(max(80, 64) / 0.5)


def rows(phase: str, exchange: Exchange) -> pd.DataFrame:
    met = "meet" if exchange is Exchange.STORAGE else "exchange 0"
    found = [("read 0", 1.0, 2.0), (met, 2.0, 4.0), (met, 2.0, 5.0), ("sort 0", 5.0, 6.0), ("output 0", 6.0, 11.0)]
    return pd.DataFrame(found, columns=["name", "started_s", "ended_s"]).assign(phase=phase)


@pytest.mark.parametrize("exchange", Exchange)
def test_the_first_phase_ends_when_all_partitions_are_there(exchange: Exchange) -> None:
    assert phase_times(rows("p", exchange)) == {"all_s": 10.0, "apart_s": 4.0, "sort_s": 6.0}


def summary_of(config: GraySortConfig, fabric: Fabric, longer: float = 1.0) -> dict[str, Any]:
    """Return the summary of a run that took some times as long as 10 s in each variant."""
    playing = Sort.grid(config)
    table = pd.concat([rows(one.name, one.exchange) for one in playing])
    table[["started_s", "ended_s"]] *= longer
    outcomes = [
        SimpleNamespace(
            phase=Phase(one.name, one.title, "lossless_lanes", 0.0, 12.0),
            conservation=SimpleNamespace(dropped_by_queues=0, retransmissions=0),
        )
        for one in playing
    ]
    session: Any = SimpleNamespace(
        live=SimpleNamespace(fabric=fabric), phases=outcomes, table={"work_operations": table}.__getitem__
    )
    return STUDY.summarize(cast(Session, session), config, playing)


def test_a_run_says_what_the_published_data_would_take_and_draws_it(tmp_path: Path) -> None:
    config = config_of("computing=[none]")
    summary = summary_of(config, FABRIC)
    found = by_path(summary["metrics"])
    assert undeclared("graysort", summary["metrics"]) == []
    node_bytes = config.sort.shape.node_bytes
    assert found["storage_none.papers_data_s"] == pytest.approx(10 * PAPER_BYTES / 50 / node_bytes)
    assert found["storage_none.compute_nic_fraction"] == pytest.approx(2 * node_bytes / 25e9 / 10)
    assert found["nodes_none.least_s"] < found["storage_none.least_s"]
    assert "through storage" in summary["answer"]
    for one in summary["tables"]:
        assert {len(row) for row in one.words} == {len(one.columns)}
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"sort_times"}


def test_on_scaled_rates_the_published_data_take_the_time_of_the_network_alone_at_the_true_rate() -> None:
    """They took 100 times as long, without a word; with computing, which is not scaled, nobody can tell."""
    config, scaled = config_of(), load_fabric("graysort_200g", ["nic_rate=2 Gbit/s", "uplink_rate=2 Gbit/s"])
    true, found = (
        by_path(one["metrics"]) for one in (summary_of(config, FABRIC), summary_of(config, scaled, longer=100.0))
    )
    for exchange in Exchange:
        name = f"{exchange.value}_none.papers_data_s"
        assert found[name] == pytest.approx(true[name])
        assert f"{exchange.value}_paper.papers_data_s" not in found
    summary = summary_of(config, scaled, longer=100.0)
    assert "rates here are 1 : 100 of the true ones" in (summary["tables"][0].note_words or "")
    assert [row[-2] == "-" for row in summary["tables"][0].words] == [False, True] * 2
    assert summary["answer"] == summary_of(config, FABRIC)["answer"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("sort.ranks=9", "sort.ranks: 9, and graysort_200g has 8 compute nodes"),
        ("sort.part=300 KiB", "sort.part: 300 KiB is not a multiple of files.chunk_size"),
        ("topology.storage=0", "0 storage nodes"),
        ("exchanges=[nodes, nodes]", "named more than once"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(override)
