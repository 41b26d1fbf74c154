"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Does an incast's congestion spread further with adaptive routing, and whom does it slow?",
    config="experiments.routing_incast.config:RoutingIncastConfig",
    study="experiments.routing_incast.study:STUDY",
    run="experiments.routing_incast.study:run_routing_incast",
)
