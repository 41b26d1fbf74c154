"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.lossless_soak.run import QUESTION, LosslessSoakConfig, run_lossless_soak
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=LosslessSoakConfig,
    run=run_lossless_soak,
)
