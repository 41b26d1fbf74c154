"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.head_of_line.run import QUESTION, HeadOfLineConfig, run_head_of_line
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=HeadOfLineConfig,
    run=run_head_of_line,
)
