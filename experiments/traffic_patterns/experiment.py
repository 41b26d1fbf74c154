"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How evenly do routes spread a permutation and all-to-all, and what does that leave each flow?",
    config="experiments.traffic_patterns.config:TrafficPatternsConfig",
    run="experiments.traffic_patterns.study:run_traffic_patterns",
    study="experiments.traffic_patterns.study:STUDY",
    tables="experiments.traffic_patterns.tables:TABLES",
    earlier="experiments.traffic_patterns.study:earlier_cases",
)
