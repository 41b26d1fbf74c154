"""Runs that take no time: what they would measure is computed from their settings, and their directories are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.sweeps.config import SweepConfig
from app.sweeps.executor import SweepWatch
from app.sweeps.local import Launch
from app.sweeps.planning import PlannedRun, SweepPlan, plan_sweep
from app.sweeps.store import Store
from app.sweeps.study import Findings, collect, run_missing
from app.sweeps.tally import Tally
from fabric.config import checked
from fabric.errors import FabricError
from fabric.metrics import metrics_frame
from runs.launching.events import Event
from runs.launching.spec import RunSpec
from tests.synthetic_result import _MAKERS, Recipe, write_result

SHARE = "queues.lanes.hfreduce.share"
METRIC = "lanes.hfreduce.algbw_Bps"
SWEEP = {
    "experiment": "isolation",
    "settings": {"topology": "fire_flyer_2_tiny", "nccl_nodes": 4},
    "grid": {SHARE: [0.1, 0.3], "queueings": [["shared"], ["lanes"]]},
    "seeds": 3,
}


def planned(**changes: Any) -> SweepPlan:
    return plan_sweep("small", checked(SweepConfig, {**SWEEP, **changes}, "small.yaml"))


def measured(spec: RunSpec) -> float:
    """What a run of a share and a seed measures: in proportion, and a little more with each seed."""
    assert spec.seed is not None
    return float(spec.settings.get(SHARE, 0.5)) * 1000 + spec.seed


def write_run(directory: Path, metrics: dict[str, float], seed: int = 1, status: str = "faithful", **more: Any) -> Path:
    reasons = [] if status == "faithful" else ["the machine was busy"]
    verdict = {"status": status, "reasons": reasons}
    frame = {"metrics": metrics_frame(metrics)}
    recipe = Recipe(
        "fire_flyer_2_tiny", "isolation", seed=seed, engine="virtual", verdict=verdict, metrics=metrics,
        without=tuple(_MAKERS), own=frame, **more,
    )  # fmt: skip
    return write_result(directory, recipe)


def play(spec: RunSpec, report: Callable[[Event], None], status: str = "faithful") -> None:
    """Leave what a run would."""
    assert spec.directory is not None
    assert spec.seed is not None
    partial = spec.directory.with_name(spec.directory.name + ".partial")
    write_run(partial, {METRIC: measured(spec)}, spec.seed, status).rename(spec.directory)


class InTurn:
    """An executor that plays one run after the other, in the order that ``ordered`` puts them in."""

    def __init__(
        self, played: Launch = play, ordered: Callable[[Sequence[PlannedRun]], Sequence[PlannedRun]] = list
    ) -> None:
        self._play = played
        self._ordered = ordered
        self.keys: list[str] = []

    def run(self, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        for run in self._ordered(missing):
            self.keys.append(run.key)
            try:
                self._play(replace(run.spec, directory=store.run_directory(run.key)), lambda event: None)
                watch.ended(run, None)
            except FabricError as error:
                watch.ended(run, str(error))


def swept(plan: SweepPlan, directory: Path, executor: Any, tallies: list[Tally] | None = None) -> Findings:
    """Run what is missing in a directory, and collect."""
    store = Store(directory)
    shown = [] if tallies is None else tallies
    run_missing(plan, store, executor, lambda tally: shown.append(copy(tally)), lambda text: None)
    return collect(plan, store)
