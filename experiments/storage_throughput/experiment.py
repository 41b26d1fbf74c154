"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=(
        "How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?"
    ),
    config="experiments.storage_throughput.variants:StorageThroughputConfig",
    run="experiments.storage_throughput.run:run_storage_throughput",
    measures="experiments.storage_throughput.measures:MEASURES",
    figures="experiments.storage_throughput.figures",
)
