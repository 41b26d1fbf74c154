"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="Does an incast's congestion spread further with adaptive routing, and whom does it slow?",
    config="experiments.routing_incast.run:RoutingIncastConfig",
    run="experiments.routing_incast.run:run_routing_incast",
    measures="experiments.routing_incast.measures:MEASURES",
    figures="experiments.routing_incast.figures",
)
