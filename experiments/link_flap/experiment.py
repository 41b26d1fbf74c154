"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.link_flap.run import QUESTION, LinkFlapConfig, run_link_flap
from experiments.link_flap.tables import TABLES
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=LinkFlapConfig,
    run=run_link_flap,
    tables=TABLES,
    figures="experiments.link_flap.figures",
)
