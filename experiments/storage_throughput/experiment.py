"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=(
        "How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?"
    ),
    config="experiments.storage_throughput.config:StorageThroughputConfig",
    study="experiments.storage_throughput.study:STUDY",
)
