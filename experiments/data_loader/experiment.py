"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long does computing wait for a data loader's reads, by how far ahead batches are asked for?",
    config="experiments.data_loader.config:DataLoaderConfig",
    study="experiments.data_loader.study:STUDY",
)
