"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.dcqcn_frontier.points import DcqcnFrontierConfig
from experiments.dcqcn_frontier.run import QUESTION, run_dcqcn_frontier
from experiments.dcqcn_frontier.tables import TABLES
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=DcqcnFrontierConfig,
    run=run_dcqcn_frontier,
    tables=TABLES,
)
