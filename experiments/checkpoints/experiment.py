"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How fast do nodes write checkpoints, what binds, and what do steps of training lose beside them?",
    config="experiments.checkpoints.config:CheckpointsRunConfig",
    study="experiments.checkpoints.study:STUDY",
    run="experiments.checkpoints.study:run_checkpoints",
    figures="experiments.checkpoints.figures",
    see_also="fabric run checkpoint_restore: restores by all nodes at once",
)
