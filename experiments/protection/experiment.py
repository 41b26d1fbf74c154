"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.protection.run import QUESTION, ProtectionConfig, run_protection
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=ProtectionConfig,
    run=run_protection,
    figures="experiments.protection.figures",
)
