"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.run.definition import Experiment
from experiments.storage_throughput.run import QUESTION, run_storage_throughput
from experiments.storage_throughput.variants import StorageThroughputConfig

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=StorageThroughputConfig,
    run=run_storage_throughput,
    figures="experiments.storage_throughput.figures",
)
