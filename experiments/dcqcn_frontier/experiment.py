"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Do any of DCQCN's parameters suit HFReduce and storage at once, and do lanes without it?",
    config="experiments.dcqcn_frontier.config:DcqcnFrontierConfig",
    run="experiments.dcqcn_frontier.study:run_dcqcn_frontier",
    study="experiments.dcqcn_frontier.study:STUDY",
    tables="experiments.dcqcn_frontier.tables:TABLES",
)
