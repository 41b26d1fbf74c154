"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.random_arrivals.run import QUESTION, RandomArrivalsConfig, run_random_arrivals
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=RandomArrivalsConfig,
    run=run_random_arrivals,
)
