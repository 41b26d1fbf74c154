"""What a run of checkpoint_restore says, from made-up rows; and what it plays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from cluster.checkpoints.rates import GIB
from experiments.checkpoint_restore.config import CheckpointRestoreConfig, Parts
from experiments.checkpoint_restore.experiment import EXPERIMENT
from experiments.checkpoint_restore.study import STUDY, Restore
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.metrics import payload_fraction
from traffic.storage.closed_forms import most_read_Bps
from traffic.storage.load_config import RestoreBegin, RestoreOf
from traffic.storage.load_measures import loader_numbers, restore_numbers

FABRIC = load_fabric("fire_flyer_2_small_200g")


def config_of(*overrides: str) -> CheckpointRestoreConfig:
    return cast(CheckpointRestoreConfig, resolve("checkpoint_restore", overrides)[1])


def test_variants_restore_own_files_or_one_from_its_start_or_from_all_over() -> None:
    config = config_of("request_to_send=[off, 3]", "queueings=[lossless]")
    playing = Restore.grid(config)
    assert len({one.name for one in playing}) == len(playing) == 6
    found = {one.parts: one.in_config(config).storage.restore for one in playing}
    assert (found[Parts.OWN].of, found[Parts.OWN].begin) == (RestoreOf.OWN, RestoreBegin.START)
    assert (found[Parts.SAME].of, found[Parts.SAME].begin) == (RestoreOf.SAME, RestoreBegin.START)
    assert (found[Parts.SAME_SPREAD].of, found[Parts.SAME_SPREAD].begin) == (RestoreOf.SAME, RestoreBegin.SPREAD)
    assert [one.in_config(config).storage.request_to_send for one in playing] == [None, 3] * 3
    assert all(one.in_config(config).storage.has_end for one in playing)


def test_queues_that_drop_have_a_congestion_control_of_their_own() -> None:
    config = config_of()
    assert [config.controls_in(one)[ServiceLevel.STORAGE] for one in (Queueing.LANES, Queueing.LOSSLESS_LANES)] == [
        "cubic",
        "line",
    ]
    assert {"line", "cubic"} <= set(config.controls_played.values())


def test_nodes_restore_at_most_what_the_fewer_nics_carry() -> None:
    payload = 25e9 * payload_fraction(FABRIC.mtu_bytes)
    assert most_read_Bps(FABRIC) == pytest.approx(8 * payload)
    assert most_read_Bps(load_fabric("fire_flyer_2_small_200g", ["compute=4"])) == pytest.approx(4 * payload)


def test_a_run_says_what_nodes_restore_and_draws_it(tmp_path: Path) -> None:
    config = config_of("request_to_send=[off]", "queueings=[lossless_lanes]", "parts=[own, same]")
    playing = Restore.grid(config)
    rows = [
        (playing[0].name, "storage", "restore", "z0h000", "", GIB, 1.0, 2.0, 0),
        (playing[0].name, "storage", "restore", "z0h001", "", GIB, 1.0, 5.0, 0),
        (playing[0].name, "storage", "restore", "z0h002", "", GIB, 1.0, 3.0, 0),
        (playing[0].name, "storage", "read", "z0h002", "st001", 1000, 1.0, 1.5, 0),
        (playing[1].name, "storage", "restore_failed", "z0h000", "", 0, 1.0, 9.0, 0),
    ]
    operations = table_of("operations", rows).astype(TABLES["operations"].dtypes)
    outcomes = [
        SimpleNamespace(
            phase=Phase(one.name, one.title, one.queueing.value, 0.0, 9.0),
            conservation=SimpleNamespace(dropped_by_queues=3, retransmissions=4),
        )
        for one in playing
    ]
    session: Any = SimpleNamespace(
        live=SimpleNamespace(fabric=FABRIC), phases=outcomes, table={"operations": operations}.__getitem__
    )
    summary = STUDY.summarize(cast(Session, session), config, playing)
    found, name = by_path(summary["metrics"]), playing[0].name
    assert undeclared("checkpoint_restore", summary["metrics"]) == []
    assert found[f"{name}.restore.all_s"] == 4.0
    assert found[f"{name}.restore.median_s"] == 2.0
    assert found[f"{name}.restore.node_Bps"] == GIB / 2
    assert found[f"{name}.restore.slowest_Bps"] == GIB / 4
    assert found[f"{name}.restore.all_Bps"] == 3 * GIB / 4
    assert found[f"{playing[1].name}.restore.failed"] == 1
    assert found[f"{playing[1].name}.restore.all_at_least_s"] == 8.0
    (table,) = summary["tables"]
    assert {len(row) for row in table.words} == {len(table.columns)}
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"restores"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("storage.restore.share=0", "nobody reads or writes; raise one"),
        ("storage.dataloader.share=0.5", "storage.dataloader.share: 0.5, but clients only restore here"),
        ("storage.checkpoint.share=0.5", "storage.checkpoint.share: 0.5, but clients only restore here"),
        ("topology.storage=0", "0 storage nodes"),
        ("request_to_send=[2, 2]", "named more than once"),
        ("dropping_control=none", "dropping_control: 'none' is not a congestion control"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(override)


def test_restores_that_did_not_end_are_among_the_clients() -> None:
    """Two of five were cut off by the end of the phase, and one could not read a part."""
    rows = [
        ("p", "storage", "restore", "z0h000", "", GIB, 1.0, 2.0, 0),
        ("p", "storage", "restore", "z0h001", "", GIB, 1.0, 5.0, 0),
        ("p", "storage", "restore_abandoned", "z0h002", "", 3 * GIB, 1.0, 7.0, 0),
        ("p", "storage", "restore_abandoned", "z0h003", "", 0, 1.0, 7.0, 0),
        ("p", "storage", "restore_failed", "z0h004", "", GIB, 1.0, 4.0, 0),
    ]
    found = restore_numbers(table_of("operations", rows))
    assert (found["restore.clients"], found["restore.failed"], found["restore.abandoned"]) == (5, 1, 2)
    assert (found["restore.all_at_least_s"], found["restore.slowest_at_least_s"]) == (6, 6)
    assert found["restore.median_at_least_s"] == 4
    assert (found["restore.slowest_Bps"], found["restore.node_Bps"]) == (0, GIB / 3)
    assert found["restore.all_Bps"] == GIB
    assert restore_numbers(table_of("operations", [rows[0], rows[2]]))["restore.median_at_least_s"] == 3.5
    assert restore_numbers(table_of("operations", [*rows[:1] * 3, rows[2]]))["restore.median_s"] == 1


def test_restores_of_no_clients_are_no_numbers() -> None:
    assert restore_numbers(TABLES["operations"].empty()) == {}
    assert loader_numbers(pd.DataFrame({"epoch": []})) == {}
