"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How does training scale with GPUs, and what binds: pipelines, gradients or messages?",
    config="experiments.training_scaling.config:TrainingScalingConfig",
    run="experiments.training_scaling.study:run_training_scaling",
    study="experiments.training_scaling.study:STUDY",
)
