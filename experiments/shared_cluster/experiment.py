"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.run.definition import Experiment
from experiments.shared_cluster.run import QUESTION, SharedClusterConfig, run_shared_cluster

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=SharedClusterConfig,
    run=run_shared_cluster,
    figures="experiments.shared_cluster.figures",
)
