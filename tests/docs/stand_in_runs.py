"""What plays in place of runs where only what is done with results is tried: results of known numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.sweeps import from_python
from runs.launching import launcher
from runs.launching.events import PhaseProgress, Report
from runs.launching.run_result import RunResult
from runs.launching.spec import Prepared, RunSpec, prepare
from tests.app.sweeps.plain_runs import InTurn
from tests.synthetic_result import Recipe, write_result

METRICS = {
    "together.train.algbw_Bps": 2e9,
    "lanes.hfreduce.algbw_Bps": 3e8,
    "together.train.step_s": 0.0127,
    "train_alone.train.step_s": 0.0096,
}


def write_run(directory: Path, name: str) -> Path:
    return write_result(directory, Recipe("fire_flyer_2_tiny", name, engine="virtual", metrics=METRICS))


def play(prepared: Prepared, report: Report) -> RunResult:
    """Write a result of a run that has been checked."""
    report(PhaseProgress("all jobs", 0.5))
    return RunResult(write_run(Path(prepared.order.directory), prepared.experiment.name))


def play_planned(spec: RunSpec, report: Any) -> None:
    """Write a result of a run of a sweep where it is looked for."""
    assert spec.directory is not None
    partial = spec.directory.with_name(spec.directory.name + ".partial")
    write_run(partial, prepare(spec, []).experiment.name).rename(spec.directory)


def play_nothing() -> None:
    """Have ``launch`` and ``sweep`` of this process write results."""
    launcher.play = play
    vars(from_python)["LocalExecutor"] = lambda workers: InTurn(play_planned)
