"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How fast is each collective by each algorithm over sizes, beside its closed form?",
    config="experiments.collectives.config:CollectivesConfig",
    study="experiments.collectives.study:STUDY",
)
