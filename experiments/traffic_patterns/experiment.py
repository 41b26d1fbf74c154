"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.run.definition import Experiment
from experiments.traffic_patterns.run import QUESTION, TrafficPatternsConfig, run_traffic_patterns
from experiments.traffic_patterns.tables import TABLES

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=TrafficPatternsConfig,
    run=run_traffic_patterns,
    tables=TABLES,
    figures="experiments.traffic_patterns.figures",
)
