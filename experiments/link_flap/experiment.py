"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does a flapping link cost training and storage, and which repair keeps it small?",
    config="experiments.link_flap.run:LinkFlapConfig",
    run="experiments.link_flap.run:run_link_flap",
    tables="experiments.link_flap.tables:TABLES",
    measures="experiments.link_flap.measures:MEASURES",
    figures="experiments.link_flap.figures",
)
