"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How much slack does communication of a step with expert parallelism have, and what takes it?",
    config="experiments.expert_parallel.config:ExpertParallelConfig",
    run="experiments.expert_parallel.run:run_expert_parallel",
    measures="experiments.expert_parallel.measures:MEASURES",
    figures="experiments.expert_parallel.figures",
)
