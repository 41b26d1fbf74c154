"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long does a restore of a checkpoint by all nodes at once take, and what does request-to-send do?",
    config="experiments.checkpoint_restore.config:CheckpointRestoreConfig",
    study="experiments.checkpoint_restore.study:STUDY",
)
