"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.replay.run import QUESTION, ReplayConfig, run_replay
from experiments.replay.tables import TABLES
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=ReplayConfig,
    run=run_replay,
    tables=TABLES,
    figures="experiments.replay.figures",
)
