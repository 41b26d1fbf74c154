"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.isolation.config import IsolationConfig
from experiments.isolation.run import QUESTION, run_isolation
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=IsolationConfig,
    run=run_isolation,
    figures="experiments.isolation.figures",
    see_also=(
        "fabric run protection: what lanes leave to each program as the load of others grows beyond what links carry"
    ),
)
