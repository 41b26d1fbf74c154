"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does it cost to bring a storage node up to date that comes back, and who pays?",
    config="experiments.resync.config:ResyncRunConfig",
    run="experiments.resync.run:run_resync",
    tables="experiments.resync.tables:TABLES",
    measures="experiments.resync.measures:MEASURES",
    figures="experiments.resync.figures",
    see_also="fabric run storage_failure: what clients see until a failure is noticed",
)
