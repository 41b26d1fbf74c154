"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does a full port do to a flow that does not use it, with and without loss, in one lane and in two?",
    config="experiments.head_of_line.config:HeadOfLineConfig",
    run="experiments.head_of_line.study:run_head_of_line",
    study="experiments.head_of_line.study:STUDY",
)
