"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does a year of link flash cuts cost training and storage, by repair policy?",
    config="experiments.flash_cut_year.run:FlashCutYearConfig",
    run="experiments.flash_cut_year.run:run_flash_cut_year",
    tables="experiments.flash_cut_year.tables:TABLES",
    measures="experiments.flash_cut_year.measures:MEASURES",
    figures="experiments.flash_cut_year.figures",
)
