"""Results of a study, of known numbers: its summary as JSON has it, for tests of its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runs.definition import Experiment
from runs.launching.run_result import RunResult
from runs.record import summary_as_json
from tests.experiments.own_results import own_figures_drawn, own_result


def study_result(directory: Path, experiment: Experiment, summary: Mapping[str, Any]) -> RunResult:
    """Write a result with what a study's summary says, and read it."""
    described = {key: value for key, value in summary_as_json(summary).items() if key != "tables"}
    return own_result(directory, experiment, summary=described)


def figures_drawn(directory: Path, experiment: Experiment, summary: Mapping[str, Any]) -> set[str]:
    """Return the names of a study's figures that have something to show of a summary."""
    return own_figures_drawn(study_result(directory, experiment, summary), experiment)
