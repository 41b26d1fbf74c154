"""Figures that experiments draw by code of their own, of made-up rows: what their axes say; and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cluster.checkpoints.job import WRITE
from experiments.checkpoints.beside import Beside
from experiments.goodput_year.shared_costs import STORAGE_LOSS
from experiments.nic_failover.run import CUT, WHOLE
from fabric.model.lanes import Queueing
from fabric.results import Phase
from fabric.tables import Table
from runs.launching.run_result import RunResult
from runs.registry import EXPERIMENTS
from tests.experiments.own_results import own_figures_drawn, own_result

DRAWN_ELSEWHERE = {
    "shared_cluster": {"slowdowns", "port_shares", "platform_day"},
    "kv_cache": {"peak", "beside_training", "first_token", "removal"},
    "libraries": {"sizes"},
    "hfreduce_vs_nccl": {"limits_in_use"},
    "storage_failure": {"chain_states"},
    "flash_cut_year": {"calendar"},
    "link_flap": {"steps_around_cuts", "blackouts", "repair_parts"},
    "isolation": {"port_shares"},
    "trace_replay": {"streams", "layers"},
}
"""By tests of these experiments, which look at the axes, too (:func:`own_figures_drawn`)."""
BLANK: dict[str, Any] = {"float64": 1.0, "int64": 1, "Int64": 1, "category": "x", "bool": False, "boolean": False}
Rows = Sequence[Mapping[str, Any]]


def rows_of(table: Table, rows: Rows) -> pd.DataFrame:
    """Return rows with all columns of a table; those that are not named have some value."""
    blank = {name: BLANK.get(kind, 1.0) for name, kind in table.dtypes.items()}
    return pd.DataFrame([{**blank, **row} for row in rows], columns=list(table.dtypes))


def result_of(directory: Path, name: str, summary: Mapping[str, Any], **own: Rows) -> RunResult:
    experiment = EXPERIMENTS[name]
    tables = experiment.load_tables()
    return own_result(
        directory, experiment, summary=summary, own={one: rows_of(tables[one], rows) for one, rows in own.items()}
    )


def with_tables(result: RunResult, monkeypatch: pytest.MonkeyPatch, **tables: Rows) -> RunResult:
    """Give a result rows of tables that not only this experiment has."""
    read = result.table
    made = {name: pd.DataFrame(rows) for name, rows in tables.items()}
    monkeypatch.setattr(result, "table", lambda name: made[name] if name in made else read(name))
    return result


Make = Callable[[Path, pytest.MonkeyPatch], RunResult]


def resync(directory: Path, _: pytest.MonkeyPatch) -> RunResult:
    values = {"read_beside_Bps": 2e9, "read_during_Bps": 1e9, "step_beside_s": 0.01, "step_during_s": 0.02,
              "read_beside_p99_s": 0.01, "read_during_p99_s": 0.03, "whole_s": 3.0}  # fmt: skip
    latency = [{"at_s": 0.5 * place, "p99_s": 0.1, "p50_s": 0.01} for place in range(8)]
    rolling = [{"latency": latency, "changes_s": [1.0], "restarts_s": {"st000": 1.5}, "checks": True}]
    summary = {"resync": {"variants": [{"phase": "own lane", **values}], "rolling": rolling}}
    shares = [{"phase": "own lane", "peer": f"st00{place}", "sent_bytes": 1000 + place} for place in range(3)]
    return result_of(directory, "resync", summary, resync_shares=shares)


def goodput_year(directory: Path, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    year = {"machine": "a machine", "nodes": 1000, "held": {"steps lost": 0.012}, "goodput": {"median": 0.981},
            "published": "98 %"}  # fmt: skip
    curve = {"machine": "a machine", "way": "asynchronous", "intervals_s": [60.0, 600.0], "goodput": [0.97, 0.98],
             "young_s": 200.0, "daly_s": 210.0}  # fmt: skip
    moments = {"failed_s": 12.0, "out_s": 14.0, "back_s": 16.0, "whole_s": 18.0}
    said = {"interval_s": 300.0, "years": [year], "curves": [curve], "storage_loss": moments}
    sweeps = [
        {"sweep": "interval", "machine": "a machine", "way": "asynchronous", "value": value, "goodput_fraction": 0.975,
         "low_fraction": 0.974, "high_fraction": 0.976}
        for value in (60.0, 600.0)
    ]  # fmt: skip
    costs = [{"kind": "killed", "node": "z0h001", "lost_s": 20.0 + 5 * place} for place in range(4)]
    result = result_of(directory, "goodput_year", {"goodput_year": said}, failure_costs=costs, year_sweeps=sweeps)
    batches = [
        {"phase": STORAGE_LOSS, "host": f"z0h00{place}", "due_s": 12.0, "started_s": 13.0 + place, "ended_s": 19.0}
        for place in range(3)
    ]
    return with_tables(result, monkeypatch, loader_batches=batches)


def replay(directory: Path, _: pytest.MonkeyPatch) -> RunResult:
    flows = [{"took_s": 0.001 * place, "theory_s": 0.0009 * place} for place in range(1, 9)]
    return result_of(directory, "replay", {}, replayed=flows)


def fencing(directory: Path, _: pytest.MonkeyPatch) -> RunResult:
    windows = [
        {"fence": fence, "place": place, "host": f"z0h00{host}", "forgotten_s": 10.0, "halted_s": 14.0, "first_s": 10.5,
         "last_s": 11.5, "stale": 3, "reads": 40}
        for fence in ("none", "lease") for place in ("between", "beside") for host in range(2)
    ]  # fmt: skip
    return result_of(directory, "fencing", {"fencing": {"polled_every_s": 1.0}}, stale_windows=windows)


def time_sharing(directory: Path, _: pytest.MonkeyPatch) -> RunResult:
    lives = [
        {"part": "packets", "policy": policy, "priority": "HIGH", "nodes": "z0h000, z0h001", "end": "finished",
         "queued_at": 0.0, "had_from": 60.0, "had_until": 600.0}
        for policy in ("fifo", "suspend")
    ]  # fmt: skip
    points = [
        {"policy": policy, "load": load, "used_waiting_fraction": 0.9, "wait_mean_s": 100.0 * load}
        for policy in ("fifo", "suspend") for load in (0.8, 1.0) for _ in range(2)
    ]  # fmt: skip
    waits = {"fifo": [1.0, 30.0, 400.0], "suspend": [1.0, 10.0, 90.0]}
    said = {"waits_s": waits, "points": points, "composed_nodes": 128, "composed_nodes_asked": 100}
    return result_of(directory, "time_sharing", {"time_sharing": said}, sharing_lives=lives)


def nic_failover(directory: Path, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    result = result_of(directory, "nic_failover", {"cut_s": 10.2})
    steps = [
        {"phase": phase, "collective": "allreduce", "ranks": 8, "size_bytes": 1_000_000, "started_s": at_s,
         "ended_s": at_s + 0.1}
        for phase, at_s in ((WHOLE, 1.0), (WHOLE, 1.1), (CUT, 10.0), (CUT, 10.4))
    ]  # fmt: skip
    return with_tables(result, monkeypatch, steps=steps)


def checkpoints(directory: Path, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    result = result_of(directory, "checkpoints", {})
    phase = Phase(Beside(Queueing.LANES).name, "beside", "lanes", 0.0, 10.0)
    monkeypatch.setattr(type(result), "phases", [phase])
    steps = [{"phase": phase.name, "step": place, "started_s": place, "ended_s": place + 0.9} for place in range(4)]
    writes = [{"phase": phase.name, "operation": WRITE, "step": 0, "started_s": 1.0, "ended_s": 2.5}]
    return with_tables(result, monkeypatch, work_steps=steps, checkpoints=writes)


MADE: dict[str, tuple[Make, set[str]]] = {
    "resync": (resync, {"resync_shares", "resync_cost", "restarts"}),
    "goodput_year": (goodput_year, {"failure_costs", "storage_loss", "goodput_year", "checkpoint_intervals"}),
    "replay": (replay, {"completion_times"}),
    "fencing": (fencing, {"stale_reads"}),
    "time_sharing": (time_sharing, {"nodes_by_policy", "waits_by_policy", "use_by_load"}),
    "nic_failover": (nic_failover, {"bandwidth_steps"}),
    "checkpoints": (checkpoints, {"checkpoint_steps"}),
}


@pytest.mark.parametrize("name", list(MADE))
def test_axes_have_words_and_units(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, figures = MADE[name]
    assert own_figures_drawn(make(tmp_path / "run", monkeypatch), EXPERIMENTS[name]) == figures


def test_no_figure_is_forgotten() -> None:
    forms = {name: {form.name for form in one._load_forms()} for name, one in EXPERIMENTS.items()}
    coded = {name: {spec.name for spec in one.load_figures()} - forms[name] for name, one in EXPERIMENTS.items()}
    looked_at = {name: figures for name, (_, figures) in MADE.items()} | DRAWN_ELSEWHERE
    assert {name: left for name, found in coded.items() if (left := found - looked_at.get(name, set()))} == {}
