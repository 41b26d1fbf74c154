"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Do any of DCQCN's parameters suit HFReduce and storage at once, and do lanes without it?",
    config="experiments.dcqcn_frontier.points:DcqcnFrontierConfig",
    run="experiments.dcqcn_frontier.run:run_dcqcn_frontier",
    tables="experiments.dcqcn_frontier.tables:TABLES",
    measures="experiments.dcqcn_frontier.measures:MEASURES",
)
