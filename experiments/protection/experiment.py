"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="As the traffic of others grows, what is left to HFReduce and to storage, and is it what lanes promise?",
    config="experiments.protection.run:ProtectionConfig",
    run="experiments.protection.run:run_protection",
    measures="experiments.protection.measures:MEASURES",
    figures="experiments.protection.figures",
)
