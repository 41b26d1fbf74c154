"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does it buy whom to send the packets of one flow on all paths, beside ECMP and one path?",
    config="experiments.spraying.config:SprayingConfig",
    study="experiments.spraying.study:STUDY",
)
