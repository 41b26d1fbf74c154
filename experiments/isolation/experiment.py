"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What do training and storage cost each other in one shared queue, and what in lanes?",
    config="experiments.isolation.config:IsolationConfig",
    study="experiments.isolation.study:STUDY",
    run="experiments.isolation.study:run_isolation",
    see_also=(
        "fabric run protection: what lanes leave to each program as the load of others grows beyond what links carry"
    ),
)
