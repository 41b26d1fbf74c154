"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does each kind of failure cost a training job, and what do a year's cost whole machines?",
    config="experiments.goodput_year.config:GoodputYearConfig",
    run="experiments.goodput_year.run:run_goodput_year",
    tables="experiments.goodput_year.tables:TABLES",
    measures="experiments.goodput_year.measures:MEASURES",
    figures="experiments.goodput_year.figures",
    see_also="fabric cluster goodput: the same composition of given costs, or of this result's (--costs)",
)
