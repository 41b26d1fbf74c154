"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How fast are the libraries that users deploy, over sizes, beside theory and our own collectives?",
    config="experiments.libraries.config:LibrariesConfig",
    run="experiments.libraries.run:run_libraries",
    measures="experiments.libraries.measures:MEASURES",
    figures="experiments.libraries.figures",
)
