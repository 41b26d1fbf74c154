"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.incast.run import QUESTION, run_incast
from experiments.incast.variants import IncastConfig
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=IncastConfig,
    run=run_incast,
    figures="experiments.incast.figures",
)
