"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How fast are HFReduce and NCCL over growing numbers of nodes, and what limits them?",
    config="experiments.hfreduce_vs_nccl.config:HFReduceVsNcclConfig",
    run="experiments.hfreduce_vs_nccl.study:run_hfreduce_vs_nccl",
    study="experiments.hfreduce_vs_nccl.study:STUDY",
    tables="experiments.hfreduce_vs_nccl.tables:TABLES",
    figures="experiments.hfreduce_vs_nccl.figures",
)
