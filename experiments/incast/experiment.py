"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?",
    config="experiments.incast.config:IncastConfig",
    study="experiments.incast.study:STUDY",
)
