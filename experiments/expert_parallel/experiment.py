"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How much slack does communication of a step with expert parallelism have, and what takes it?",
    config="experiments.expert_parallel.config:ExpertParallelConfig",
    study="experiments.expert_parallel.study:STUDY",
)
