"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How much of GraySort's half hour on 3FS would the network alone take, and what binds it?",
    config="experiments.graysort.config:GraySortConfig",
    study="experiments.graysort.study:STUDY",
)
