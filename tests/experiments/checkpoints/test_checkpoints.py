"""What ``checkpoints`` plays, what it refuses, and what it makes of rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from cluster.checkpoints.losses import gaps, losses
from experiments.checkpoints.alone import needed
from experiments.checkpoints.config import CheckpointsRunConfig, StepConfig, WriteSetup, setup_on
from experiments.checkpoints.experiment import EXPERIMENT
from experiments.checkpoints.study import STUDY, cases_of
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Fabric
from fabric.results import Phase
from runs.launching.run_result import RunResult
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn, study_result
from topologies.load import load_fabric
from traffic.work.operations import CollectiveCall, Compute

FABRIC = load_fabric("fire_flyer_2_small_200g")
CONFIG: Any = resolve("checkpoints", []).config
CASES = cases_of(CONFIG)


def test_the_main_setup_is_played_first_and_alone_has_restores() -> None:
    assert isinstance(CONFIG, CheckpointsRunConfig)
    assert [one.name for one in CONFIG.all_setups][:2] == ["alone_4_nodes_2_replicas", "alone_4_nodes_1_replicas"]
    main = CONFIG.alone(CONFIG.main)
    assert (main.count, main.writers, main.restored_by, CONFIG.nodes_of(CONFIG.main)) == (1, 4, [4, 2, 8], 8)
    other = WriteSetup(writers=8, replicas=2)
    assert (CONFIG.alone(other).restored_by, CONFIG.nodes_of(other)) == ([], 8)
    assert (CONFIG.beside().count, CONFIG.beside().restored_by) == (2, [])
    assert not list(CONFIG.faults(FABRIC))


def test_what_does_not_fit_is_named() -> None:
    for setting, words in (
        ("checkpoints.chains_per_target=4", "alone_4_nodes_3_replicas: .* cannot be cut into chains of 3 replicas"),
        (
            "setups=[{writers: 30, replicas: 1}]",
            "alone_30_nodes_1_replicas: 30 nodes, but fire_flyer_2_small_200g has 24",
        ),
        ("checkpoints.writers=2", "checkpoints.writers: training's nodes write; leave it out"),
        ("setups=[{writers: 4, replicas: 1}, {writers: 4, replicas: 1}]", "there is the same setup twice"),
        ("topology.storage=0", "0 storage nodes, but checkpoints are on them"),
    ):
        with pytest.raises(ConfigError, match=words):
            resolve("checkpoints", [setting])


def test_storage_serves_a_zone_by_its_nics_there() -> None:
    """Of 14 nodes twelve are in one zone, where each of four storage nodes has a NIC."""
    found = setup_on(FABRIC, FABRIC.computes[:14], 2, 216e9)
    assert (found.writers, found.storage_nics, found.replicas, found.copy_Bps) == (12, 4, 2, 27e9)
    assert 24.4e9 < found.nic_Bps < 25e9


def test_a_step_adds_up_layers_while_others_are_computed() -> None:
    graph = StepConfig(ranks=3, layers=4, gradients=4096).loaded()
    assert graph.ranks == 3
    kinds = [type(one) for one in graph.operations[0]]
    assert kinds == [Compute, *[Compute, CollectiveCall] * 4, Compute]
    sums = [one for one in graph.operations[0] if isinstance(one, CollectiveCall)]
    assert [one.size_bytes for one in sums] == [1024] * 4
    assert graph.operations[0][-1].after == (2, 4, 6, 8)


def test_steps_lose_what_those_that_meet_a_checkpoint_take_longer() -> None:
    steps = [(0.0, 1.0), (1.0, 2.5), (2.5, 3.5), (3.5, 4.5)]
    found = losses(1.0, steps, [(1.2, 2.2), (2.3, 2.4)])
    assert found == pytest.approx(
        {"step_alone_s": 1.0, "lost_s": 0.25, "met_steps": 1, "lost_fraction": 0.5 / 1.1, "step_beside_s": 1.5,
         "slowdown": 1.5}
    )  # fmt: skip
    none = losses(1.0, steps, [])
    assert (none["lost_s"], none["lost_fraction"], "slowdown" in none) == (0.0, 0.0, False)


def test_steps_that_wait_lose_from_one_to_the_next() -> None:
    steps = [(0.0, 1.0), (1.0, 2.0), (5.0, 6.0), (6.0, 7.0)]
    assert gaps(steps, [(2.1, 4.9)]) == [3.0]
    assert gaps(steps, [(7.0, 8.0)]) == [], "the phase was over before the next step"


def tables_of(rate_Bps: float, steps: list[tuple[str, float, float]]) -> dict[str, pd.DataFrame]:  # noqa: N803
    """Return rows of checkpoints that a node wrote at a rate, each complete after 2 s, beside some steps."""
    size_bytes = 1 << 20
    names = [case.name for case in CASES if not case.name.startswith("training")]
    written = [
        {"phase": name, "job": "checkpoints", "operation": "write", "step": 1, "nodes": 4, "size_bytes": size_bytes,
         "started_s": 10.0, "ready_s": 10.5, "done_s": 10.5 + size_bytes / rate_Bps, "ended_s": 12.0}
        for name in names
    ]  # fmt: skip
    columns = ["phase", "step", "started_s", "ended_s"]
    played = [(phase, place, start, end) for place, (phase, start, end) in enumerate(steps)]
    return {"checkpoints": pd.DataFrame(written), "work_steps": pd.DataFrame(played, columns=columns)}


def summary_of(fabric: Fabric, rate_Bps: float, steps: list[tuple[str, float, float]]) -> dict[str, Any]:  # noqa: N803
    tables = tables_of(rate_Bps, steps)
    live = SimpleNamespace(fabric=fabric)
    session = cast(Session, SimpleNamespace(live=live, phases=[], table=tables.__getitem__))
    return STUDY.summarize(session, CONFIG, CASES)


def row_of(summary: dict[str, Any], title: str, start: str) -> dict[str, str]:
    (table,) = [one for one in summary["tables"] if one.title == title]
    return next(dict(zip(table.columns, row, strict=True)) for row in table.words if row[0] == start)


STEPS = [
    *[("training_lossless_lanes", place, place + 1.0) for place in range(3)],
    *[("beside_lossless_lanes", 9.5, 11.5), ("beside_lossless_lanes", 13.0, 14.0)],
    *[("waiting", 9.0, 9.5), ("waiting", 12.5, 13.5)],
]


def test_steps_that_go_on_and_steps_that_wait_stand_in_one_table(tmp_path: Path) -> None:
    summary = summary_of(FABRIC, 12 * 2.0**30, STEPS)
    metrics = by_path(summary["metrics"])
    assert metrics["beside_lossless_lanes.training.lost_s"] == pytest.approx(1.0)
    assert metrics["waiting.training.lost_s"] == pytest.approx(3.0)
    assert not [path for path in metrics if path.startswith("waiting.training.") and not path.endswith("lost_s")]
    title = "Training and checkpoints on the same nodes"
    lost = ("alone", "that meet one", "lost per checkpoint", "of a step", "of its time", "of all, 5 s every 300 s")
    rows = [row_of(summary, title, f"{how}, in lossless lanes") for how in ("go on", "wait for it")]
    assert [[row[head] for head in lost] for row in rows] == [
        ["1 s", "2 s", "1 s", "100%", "50.0%", "0.833%"],
        ["1 s", "-", "3 s", "300%", "100.0%", "1.639%"],
    ]
    assert undeclared("checkpoints", summary["metrics"]) == []
    assert "checkpoint_rates" in figures_drawn(tmp_path, EXPERIMENT, summary)


def test_each_step_is_a_bar_over_the_checkpoints_that_it_meets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = study_result(tmp_path, EXPERIMENT, summary_of(FABRIC, 12 * 2.0**30, STEPS))
    name = "beside_lossless_lanes"
    tables = tables_of(12 * 2.0**30, STEPS)
    monkeypatch.setattr(RunResult, "phases", [Phase(name, "t", "lossless_lanes", 9.0, 15.0)])
    monkeypatch.setattr(RunResult, "table", lambda _, table: tables[table])
    figure = next(one for one in EXPERIMENT.load_figures() if one.name == "checkpoint_steps").draw(result)
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    assert panel.get_title(loc="left") == "lossless lanes"
    (steps,) = panel.containers
    assert [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in steps] == [(0, 2e3, 2e3), (3.5e3, 1e3, 1e3)]
    (written,) = (patch for patch in panel.patches if patch not in steps)
    assert (written.get_extents().transformed(panel.transData.inverted()).x0) == pytest.approx(0.5e3)
    (alone,) = panel.lines
    assert alone.get_ydata() == [1e3, 1e3]


def test_setups_are_in_order_of_writers_and_replicas_beside_their_closed_forms() -> None:
    summary = summary_of(FABRIC, 12 * 2.0**30, STEPS)
    shown = [one for one in summary["cases"] if "setup" in one["settings"]]
    assert [one["settings"]["setup"] for one in shown] == [
        "4 nodes write, 1 replica", "4 nodes write, 2 replicas", "4 nodes write, 3 replicas",
        "8 nodes write, 2 replicas",
    ]  # fmt: skip
    one_replica, two, three, twice_the_nodes = (one["aside"]["bound_Bps"] for one in shown)
    assert one_replica / two == pytest.approx(2)
    assert two / three == pytest.approx(1.5)
    assert two / twice_the_nodes == pytest.approx(2)
    assert {one["aside"]["wanted_Bps"] for one in shown} == {10 * 2**30}


def test_without_restores_there_is_no_table_of_them() -> None:
    titles = [one.title for one in summary_of(FABRIC, 12 * 2.0**30, [])["tables"]]
    assert "Restores" not in titles
    assert "Checkpoints alone" in titles


def test_the_papers_10_gib_per_second_are_compared_at_the_true_rate() -> None:
    """At 1 : 100 every setup was said to be below 10 GiB/s, and that no number of NICs would do."""
    scaled = load_fabric("fire_flyer_2_small_200g", ["nic_rate=2 Gbit/s", "uplink_rate=2 Gbit/s"])
    for fabric, rate_Bps in ((FABRIC, 12 * 2.0**30), (scaled, 0.12 * 2**30)):  # noqa: N806 - a unit
        summary = summary_of(fabric, rate_Bps, [])
        assert row_of(summary, "Checkpoints alone", "4")["above 10 GiB/s"] == "yes"
        note = next(one.note for one in summary["tables"] if one.title == "Checkpoints alone")
        assert ("times the scale of 100" in (note or "")) is (fabric is scaled)
    assert needed(scaled) == needed(FABRIC)
