"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.flash_cut_year.run import QUESTION, FlashCutYearConfig, run_flash_cut_year
from experiments.flash_cut_year.tables import TABLES
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=FlashCutYearConfig,
    run=run_flash_cut_year,
    tables=TABLES,
    figures="experiments.flash_cut_year.figures",
)
