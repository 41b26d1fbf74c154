"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long do jobs that share a cluster wait under each policy, and what does a suspend cost?",
    config="experiments.time_sharing.config:TimeSharingConfig",
    run="experiments.time_sharing.run:run_time_sharing",
    tables="experiments.time_sharing.tables:TABLES",
    measures="experiments.time_sharing.measures:MEASURES",
    figures="experiments.time_sharing.figures",
)
