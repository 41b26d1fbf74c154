"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How evenly do routes spread a permutation and all-to-all, and what does that leave each flow?",
    config="experiments.traffic_patterns.run:TrafficPatternsConfig",
    run="experiments.traffic_patterns.run:run_traffic_patterns",
    tables="experiments.traffic_patterns.tables:TABLES",
    measures="experiments.traffic_patterns.measures:MEASURES",
    figures="experiments.traffic_patterns.figures",
)
