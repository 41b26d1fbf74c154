"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How fast are HFReduce and NCCL over growing numbers of nodes, and what limits them?",
    config="experiments.hfreduce_vs_nccl.variants:HFReduceVsNcclConfig",
    run="experiments.hfreduce_vs_nccl.run:run_hfreduce_vs_nccl",
    tables="experiments.hfreduce_vs_nccl.tables:TABLES",
    measures="experiments.hfreduce_vs_nccl.measures:MEASURES",
    figures="experiments.hfreduce_vs_nccl.figures",
)
