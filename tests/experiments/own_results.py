"""Results of single experiments, of known numbers, for tests of what only they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runs.definition import Experiment
from runs.launching.run_result import RunResult
from tests.synthetic_result import Recipe, write_result


def own_result(directory: Path, experiment: Experiment, **options: Any) -> RunResult:
    """Write a result of an experiment, with the fields of ``Recipe`` as options, and read it."""
    folder = experiment.in_manifest["experiment_folder"]
    recipe = Recipe("fire_flyer_2_tiny", experiment.name, folder, own_tables=experiment.load_tables(), **options)
    return RunResult(write_result(directory, recipe))


def own_figures_drawn(result: RunResult, experiment: Experiment) -> set[str]:
    """Return the names of the experiment's own figures that the result has something to show in."""
    return {spec.name for spec in experiment.load_figures() if spec.draw(result) is not None}
