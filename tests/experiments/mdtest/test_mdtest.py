"""What a run of mdtest says, from made-up rows; its phases, and what cannot be played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.mdtest.config import MdtestExperimentConfig, StorePoint
from experiments.mdtest.experiment import EXPERIMENT
from experiments.mdtest.study import STUDY, Mdtest
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import resolve
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from topologies.load import load_fabric
from traffic.measures import JobRows
from traffic.storage.metadata.kinds import of_file_steps


def config_of(*overrides: str) -> MdtestExperimentConfig:
    return cast(MdtestExperimentConfig, resolve("mdtest", overrides)[1])


def test_rates_are_counted_as_mdtest_counts_them() -> None:
    """Two iterations of 100 files, in 2 and in 4 s; a step that took no time or did nothing has no rate."""
    steps = pd.DataFrame(
        {
            "step": ["file_create", "file_create", "tree_create"],
            "items": [100, 100, 0],
            "size_bytes": [1000, 1000, 0],
            "started_s": [1.0, 10.0, 0.0],
            "ended_s": [3.0, 14.0, 1.0],
        }
    )
    operations = pd.DataFrame(
        {
            "operation": ["file_create"] * 4 + ["file_create_failed"],
            "started_s": [1.0] * 5,
            "ended_s": [1.1, 1.1, 1.3, 1.3, 3.0],
            "size_bytes": [10] * 4 + [0],
        }
    )
    found = of_file_steps(JobRows({"file_steps": steps, "operations": operations}.__getitem__, []))
    assert found["file_create.operations_per_s"] == pytest.approx((50 + 25) / 2)
    assert found["file_create.bandwidth_Bps"] == pytest.approx((500 + 250) / 2)
    assert found["file_create.failed"] == 1
    assert "tree_create.operations_per_s" not in found


def test_each_phase_has_its_processes_and_its_store() -> None:
    config = config_of()
    point = config.point(StorePoint(name="x", read_latency=0.5), 7)
    assert point.mdtest is not None
    assert config.files.mdtest is not None
    assert point.mdtest.processes == 7
    assert point.mdtest.files == config.files.mdtest.files
    assert point.metadata.store.read_latency == 0.5
    assert point.metadata.lookup_caching == config.files.metadata.lookup_caching


def test_the_summary_says_what_few_and_many_processes_make(tmp_path: Path) -> None:
    config = config_of("stores=[{name: fast}]", "processes=[1, 4]", "clients=4")
    cases = Mdtest.grid(config)
    rates = dict(zip((one.name for one in cases), (500.0, 1234.0), strict=True))
    steps = [
        {"phase": phase, "job": "files", "step": "file_create", "items": rate, "size_bytes": 0}
        | {"started_s": 0.0, "ended_s": 1.0}
        for phase, rate in rates.items()
    ]
    tables = {"file_steps": pd.DataFrame(steps), "operations": TABLES["operations"].empty()}
    phases = [SimpleNamespace(phase=Phase(one.name, one.title, "lanes", 0.0, 1.0)) for one in cases]
    live = SimpleNamespace(fabric=load_fabric("fire_flyer_2_small_200g"))
    session: Any = SimpleNamespace(phases=phases, table=tables.__getitem__, live=live)
    summary = STUDY.summarize(session, config, cases, {"fast_16": {"conflicts": 3}})
    assert summary["answer"] == "Files made per second: store fast: 500 by 4 processes, 1,234 by 16 processes."
    assert {(one.phase, one.name) for one in summary["metrics"]} >= {("fast_16", "file_create.operations_per_s")}
    assert undeclared("mdtest", summary["metrics"]) == []
    (table,) = summary["tables"]
    assert [row[:3] for row in table.words] == [["fast", "4", "500"], ["fast", "16", "1,234"]]
    assert [row[-1] for row in table.words] == ["-", "3"]
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"files_per_second"}


def test_what_cannot_be_played_is_said() -> None:
    fabric = load_fabric("fire_flyer_2_small")
    config = config_of()
    files = config.files.model_copy(update={"mdtest": None})
    faults = list(config.model_copy(update={"clients": 999, "files": files}).faults(fabric))
    assert any("files.mdtest: is missing" in fault for fault in faults)
    assert any("clients: 999 exceed" in fault for fault in faults)
    without = list(config_of().faults(load_fabric("head_of_line")))
    assert any("topology.storage: 0 storage nodes, but files are on them" in fault for fault in without)
