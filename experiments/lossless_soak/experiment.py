"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Does a lossless fabric lose a frame or a credit, or stall without a reason, under random flows and cuts?",
    config="experiments.lossless_soak.run:LosslessSoakConfig",
    run="experiments.lossless_soak.run:run_lossless_soak",
    measures="experiments.lossless_soak.measures:MEASURES",
)
