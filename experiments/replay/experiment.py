"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long do the flows of a workload file take on this fabric, and how long in theory?",
    config="experiments.replay.run:ReplayConfig",
    run="experiments.replay.run:run_replay",
    tables="experiments.replay.tables:TABLES",
    measures="experiments.replay.measures:MEASURES",
    figures="experiments.replay.figures",
)
