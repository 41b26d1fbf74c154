"""Training jobs for tests, and communications of chosen durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fabric.config import checked
from traffic.work.generators.config import TrainingConfig, training_graph
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline, list_schedule
from traffic.work.operations import Compute, Operation

FORWARD_S = 1.0


def config_of(model: str, **keys: Any) -> TrainingConfig:
    return checked(TrainingConfig, {"model": model, "compute": {"forward": FORWARD_S}, **keys}, "training")


def graph_of_job(model: str, **keys: Any) -> WorkGraph:
    return training_graph(config_of(model, **keys))


def at_once(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
    return 0.0


def played(
    model: str, duration: Callable[[Sequence[Operation], Sequence[int]], float] = at_once, **keys: Any
) -> Timeline:
    return list_schedule(graph_of_job(model, **keys), duration)


def computes_of(graph: WorkGraph, rank: int = 0) -> list[Compute]:
    return [one for one in graph.operations[rank] if isinstance(one, Compute)]
