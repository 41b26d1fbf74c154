"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long do packets wait that come at random, and is it what queueing theory says?",
    config="experiments.random_arrivals.config:RandomArrivalsConfig",
    run="experiments.random_arrivals.study:run_random_arrivals",
    study="experiments.random_arrivals.study:STUDY",
)
