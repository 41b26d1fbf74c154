"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What do jobs that share a fabric cost each other, and which ports do they share?",
    config="experiments.shared_cluster.run:SharedClusterConfig",
    run="experiments.shared_cluster.run:run_shared_cluster",
    measures="experiments.shared_cluster.measures:MEASURES",
    figures="experiments.shared_cluster.figures",
)
