"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.routing_incast.run import QUESTION, RoutingIncastConfig, run_routing_incast
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=RoutingIncastConfig,
    run=run_routing_incast,
    figures="experiments.routing_incast.figures",
)
