"""What stands for a case at a number of GPUs, and how long it computes (pure): one copy per GPU of a node.

Copies of a model do the same, so eight stand for all of them; only the allreduce of gradients is over all nodes of a
stage. Of many equal micro-batches a steady part is enough (:mod:`traffic.work.generators.steady`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.training_scaling.config import CaseConfig
from traffic.work.composition import Durations, Pieces, predicted
from traffic.work.generators.config import TrainingConfig

_TRIES = 20
_CLOSE = 1e-6


@dataclass(frozen=True)
class Point:
    """A case at a number of GPUs. ``nodes``: over which a stage's gradients are added up."""

    case: CaseConfig
    gpus: int
    training: TrainingConfig
    nodes: int


def point_of(case: CaseConfig, gpus: int, forward_s: float | None) -> Point:
    """Return what stands for a case at a number of GPUs. ``forward_s``: None leaves the time of computing as it is."""
    training, copies = case.training, case.copies(gpus)
    layout = training.layout.model_copy(update={"data": min(copies, training.layout.gpus_per_node)})
    micro_batches = case.micro_batches(gpus)
    changed: dict[str, object] = {"layout": layout, "micro_batches": micro_batches, "played": None}
    whole = training.model_copy(update=changed)
    if whole.steady.least < micro_batches:
        changed["played"] = min(case.played or whole.steady.least, micro_batches)
    if forward_s is not None:
        changed["compute"] = training.compute.model_copy(update={"forward": forward_s, "flops_per_s": None})
    return Point(case, gpus, training.model_copy(update=changed), -(-copies // layout.gpus_per_node))


def fitted_forward_s(case: CaseConfig, pieces: Pieces, collectives: str, *, burst: bool) -> float | None:
    """Return the time of a micro-batch's forward pass with which the smallest run takes as long as it was published to;
    None if it was not. Nothing else is fitted."""
    first = case.points[0]
    if first.step is None:
        return None
    tried: list[tuple[float, float]] = []
    forward_s = first.step / (case.micro_batches(first.gpus) * (1 + case.training.compute.backward))
    for _ in range(_TRIES):
        point = point_of(case, first.gpus, forward_s)
        step_s = predicted(point.training, Durations(pieces, point.nodes, collectives, burst)).step_s
        if abs(step_s - first.step) < _CLOSE * first.step:
            break
        tried = [*tried[-1:], (forward_s, step_s)]
        forward_s = _next_try(tried, first.step)
    return forward_s


def _next_try(tried: Sequence[tuple[float, float]], wanted: float) -> float:
    """Return what to try next by the line through the last two tries, which a step's time nearly is."""
    forward_s, step_s = tried[-1]
    if len(tried) == 1 or tried[0][1] == step_s:
        return forward_s * wanted / step_s
    slope = (step_s - tried[0][1]) / (forward_s - tried[0][0])
    return max(forward_s / 10, forward_s + (wanted - step_s) / slope)
