"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long do packets wait that come at random, and is it what queueing theory says?",
    config="experiments.random_arrivals.run:RandomArrivalsConfig",
    run="experiments.random_arrivals.run:run_random_arrivals",
    measures="experiments.random_arrivals.measures:MEASURES",
)
