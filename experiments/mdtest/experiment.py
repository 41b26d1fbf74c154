"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How many files per second does a metadata service make, look at, read and remove, and what limits it?",
    config="experiments.mdtest.config:MdtestExperimentConfig",
    study="experiments.mdtest.study:STUDY",
)
