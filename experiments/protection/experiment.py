"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="As the traffic of others grows, what is left to HFReduce and to storage, and is it what lanes promise?",
    config="experiments.protection.config:ProtectionConfig",
    run="experiments.protection.study:run_protection",
    study="experiments.protection.study:STUDY",
    earlier="experiments.protection.study:earlier_cases",
)
