"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Does a client read stale data from a storage node that has been forgotten, and does a fence prevent it?",
    config="experiments.fencing.run:FencingConfig",
    run="experiments.fencing.run:run_fencing",
    tables="experiments.fencing.tables:TABLES",
    measures="experiments.fencing.measures:MEASURES",
    figures="experiments.fencing.figures",
    see_also="fabric run storage_failure: what a failure costs clients",
)
