"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How does training scale with GPUs, and what binds: pipelines, gradients or messages?",
    config="experiments.training_scaling.config:TrainingScalingConfig",
    run="experiments.training_scaling.run:run_training_scaling",
    measures="experiments.training_scaling.measures:MEASURES",
    figures="experiments.training_scaling.figures",
)
