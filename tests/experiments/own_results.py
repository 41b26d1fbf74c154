"""Results of single experiments, of known numbers, for tests of what only they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runs.definition import Experiment
from runs.launching.run_result import RunResult
from tests.figure_axes import axis_faults, precision_faults
from tests.synthetic_result import Recipe, write_result


def own_result(directory: Path, experiment: Experiment, **options: Any) -> RunResult:
    """Write a result of an experiment, with the fields of ``Recipe`` as options, and read it."""
    folder = experiment.in_manifest["experiment_folder"]
    recipe = Recipe("fire_flyer_2_tiny", experiment.name, folder, own_tables=experiment.load_tables(), **options)
    return RunResult(write_result(directory, recipe))


def own_figures_drawn(result: RunResult, experiment: Experiment) -> set[str]:
    """Return the names of the experiment's own figures that the result has something to show in. Their axes have words
    and units, and their numbers no more digits than were measured."""
    found = {spec.name: spec.draw(result) for spec in experiment.load_figures()}
    drawn = {name: figure for name, figure in found.items() if figure is not None}
    assert [fault for figure in drawn.values() for fault in axis_faults(figure) + precision_faults(figure)] == []
    return set(drawn)
