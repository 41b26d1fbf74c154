"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does the failure of a storage node cost clients, until nobody counts on it, and until it is back?",
    config="experiments.storage_failure.run:StorageFailureConfig",
    run="experiments.storage_failure.run:run_storage_failure",
    tables="experiments.storage_failure.tables:TABLES",
    measures="experiments.storage_failure.measures:MEASURES",
    figures="experiments.storage_failure.figures",
)
