"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.hfreduce_vs_nccl.run import QUESTION, run_hfreduce_vs_nccl
from experiments.hfreduce_vs_nccl.tables import TABLES
from experiments.hfreduce_vs_nccl.variants import HFReduceVsNcclConfig
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=HFReduceVsNcclConfig,
    run=run_hfreduce_vs_nccl,
    tables=TABLES,
    figures="experiments.hfreduce_vs_nccl.figures",
)
