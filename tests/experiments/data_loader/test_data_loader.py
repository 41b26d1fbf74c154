"""What a run of data_loader says, from made-up rows; and what it plays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.data_loader.config import DataLoaderConfig
from experiments.data_loader.experiment import EXPERIMENT
from experiments.data_loader.study import STUDY, Epochs
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import Queueing
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from topologies.load import load_fabric
from traffic.metrics import payload_fraction
from traffic.storage.closed_forms import even_batch_s, ideal_epoch_s
from traffic.storage.load_config import SampleOrder

FABRIC = load_fabric("fire_flyer_2_small_200g")
FEW = ("computes=[1 ms]", "orders=[shuffled]", "prefetches=[0, 2]")


def config_of(*overrides: str) -> DataLoaderConfig:
    return cast(DataLoaderConfig, resolve("data_loader", overrides)[1])


def test_every_variant_is_the_config_s_load_with_its_own_pace() -> None:
    config = config_of("computes=[1 ms, 2 ms]", "prefetches=[0, 3]", "orders=[shuffled, in_order]")
    playing = Epochs.grid(config)
    assert len({one.name for one in playing}) == len(playing) == 8
    epochs = [one.in_config(config).storage.dataloader.epochs for one in playing]
    assert all(epochs)
    assert {(one.compute, one.order, one.prefetch) for one in epochs if one} == {
        (compute, order, ahead) for compute in (0.001, 0.002) for order in SampleOrder for ahead in (0, 3)
    }
    assert {one.batches for one in epochs if one} == {8}
    assert all(one.in_config(config).storage.has_end for one in playing)


@pytest.mark.parametrize(
    ("batch_s", "compute_s", "is_ahead", "epoch_s"),
    [(1, 2, False, 30), (1, 2, True, 1 + 9 * 2 + 2), (3, 2, True, 3 + 9 * 3 + 2), (0, 2, True, 20), (1, 0, True, 10)],
)
def test_an_epoch_at_an_even_rate(batch_s: float, compute_s: float, is_ahead: bool, epoch_s: float) -> None:
    assert ideal_epoch_s(10, batch_s, compute_s, is_ahead) == epoch_s


def test_an_even_rate_is_a_share_of_the_storage_nodes_nics_or_the_reader_s_own() -> None:
    payload = 25e9 * payload_fraction(FABRIC.mtu_bytes)
    assert even_batch_s(FABRIC, 24, 1e6) == pytest.approx(1e6 * 24 / (8 * payload))
    assert even_batch_s(FABRIC, 2, 1e6) == pytest.approx(1e6 / payload)


def rows_of(config: DataLoaderConfig) -> pd.DataFrame:
    """Two readers' epochs of two batches: computing of 1 s, and waits of 0.5 s, then 0.25 s."""
    rows = []
    for variant in Epochs.grid(config):
        for host in ("z0h000", "z0h001"):
            for batch, (due, started) in enumerate(((0.0, 0.5), (1.5, 1.75))):
                times = {"asked_s": due, "ready_s": started, "due_s": due, "started_s": started, "ended_s": started + 1}
                rows.append(
                    {"phase": variant.name, "job": "storage", "service_level": "storage", "host": host, "epoch": 0}
                    | {"batch": batch, "size_bytes": 1000, **times}
                )
    return pd.DataFrame(rows)


def summary_of(config: DataLoaderConfig, batches: pd.DataFrame) -> dict[str, Any]:
    """Return the summary of a run with these rows of ``loader_batches``, without operations."""
    tables = {"loader_batches": batches, "operations": TABLES["operations"].empty()}
    outcomes = [
        SimpleNamespace(
            phase=Phase(one.name, one.title, one.queueing.value, 0.0, 3.0),
            conservation=SimpleNamespace(dropped_by_queues=0, retransmissions=0),
        )
        for one in Epochs.grid(config)
    ]
    session: Any = SimpleNamespace(live=SimpleNamespace(fabric=FABRIC), phases=outcomes, table=tables.__getitem__)
    return STUDY.summarize(cast(Session, session), config, Epochs.grid(config))


def test_a_run_says_how_long_computing_waited_and_draws_it(tmp_path: Path) -> None:
    config = config_of(*FEW, "storage.dataloader.share=0.1")
    summary = summary_of(config, rows_of(config))
    found = by_path(summary["metrics"])
    assert undeclared("data_loader", summary["metrics"]) == []
    name = Epochs.grid(config)[0].name
    assert found[f"{name}.loader.epoch_s"] == 2.75
    assert found[f"{name}.loader.waiting_s"] == 0.75
    assert found[f"{name}.loader.first_wait_s"] == 0.5
    assert found[f"{name}.loader.waiting_fraction"] == pytest.approx(0.75 / 2.75)
    assert found[f"{name}.loader.node_Bps"] == pytest.approx(2000 / 2.75)
    assert "27%" in summary["answer"]
    (table,) = summary["tables"]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"epochs"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("storage.dataloader.epochs.count=null", "epochs would not end"),
        ("storage.dataloader.epochs=null", "storage.dataloader.epochs: is missing"),
        ("storage.checkpoint.share=0.5", "storage.checkpoint.share: 0.5, but clients only read epochs here"),
        ("storage.restore.share=0.5", "storage.restore.share: 0.5, but clients only read epochs here"),
        ("topology.storage=0", "0 storage nodes"),
        ("prefetches=[1, 1]", "named more than once"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(override)


def test_epochs_of_which_none_was_whole_have_dashes(tmp_path: Path) -> None:
    config = config_of(*FEW, "storage.dataloader.share=0.1")
    rows = rows_of(config)
    rows.loc[rows["batch"] == 1, ["started_s", "ended_s"]] = float("nan")
    for number, found in enumerate((rows, rows[:0])):
        summary = summary_of(config, found)
        assert summary["answer"] == "No epoch was whole."
        assert {row[2] for row in summary["tables"][0].words} == {"-"}
        assert figures_drawn(tmp_path / f"result{number}", EXPERIMENT, summary) == set()


def test_times_of_less_than_a_microsecond_are_phases_of_their_own() -> None:
    times_s = (1e-7, 2e-7, 1e-4, 1.0000001e-4)
    names = [Epochs(Queueing.LANES, time_s, SampleOrder.SHUFFLED, 1).name for time_s in times_s]
    assert names[2] == "lanes_100us_shuffled_ahead_1"
    assert names[0] == "lanes_0p1us_shuffled_ahead_1"
    assert len(set(names)) == 4
