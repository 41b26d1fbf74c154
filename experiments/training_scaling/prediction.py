"""A step's time by composition (pure): a schedule on paper of one copy per GPU of a node, with communications as long
as they took when they were played.

Copies of a model do the same, so eight stand for all of them; only the allreduce of gradients is over all nodes of a
stage. Of many equal micro-batches a steady part is enough (:mod:`traffic.work.generators.steady`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.training_scaling.config import CaseConfig
from traffic.work.closed_forms import kind_of
from traffic.work.generators.config import TrainingConfig, training_graph
from traffic.work.generators.steady import whole_step_s
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline, list_schedule
from traffic.work.operations import CollectiveCall, Compute, Operation, Send
from traffic.work.step_metrics import compute_s, exposed_s

_TRIES = 20
_CLOSE = 1e-6
GRADIENTS = "gradients"


@dataclass(frozen=True)
class Line:
    """How long a communication takes by its size."""

    base_s: float
    bytes_per_s: float

    def time_s(self, size_bytes: float) -> float:
        """Return how long it takes."""
        return self.base_s + size_bytes / self.bytes_per_s


def line_through(points: Sequence[tuple[int, float]]) -> Line:
    """Return the line through (size in bytes, time in s) of the smallest and the largest size; of one size, that
    through zero."""
    (small, small_s), (large, large_s) = min(points), max(points)
    if small == large or large_s <= small_s:
        return Line(0.0, large / large_s)
    rate = (large - small) / (large_s - small_s)
    return Line(max(0.0, large_s - large / rate), rate)


@dataclass(frozen=True)
class Pieces:
    """What was played. ``collectives``: by (collective, nodes); ``message``: from a stage to the next, of one GPU of a
    node; ``burst``: of all of a node's at once."""

    collectives: Mapping[tuple[str, int], Line]
    message: Line
    burst: Line

    def collective(self, name: str, nodes: int) -> tuple[Line, int]:
        """Return the line of a collective over so many nodes, or over the nearest number that was played, and that."""
        played = sorted(count for what, count in self.collectives if what == name)
        nearest = min(played, key=lambda count: (abs(count - nodes), count))
        return self.collectives[name, nearest], nearest


@dataclass(frozen=True)
class Point:
    """A case at a number of GPUs. ``nodes``: over which a stage's gradients are added up."""

    case: CaseConfig
    gpus: int
    training: TrainingConfig
    nodes: int

    @property
    def last_rank(self) -> int:
        """A rank of the last stage."""
        return self.training.layout.groups("pp")[0][-1]


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


class Durations:
    """How long communications take: as :data:`traffic.work.list_schedule.Duration`."""

    def __init__(self, pieces: Pieces, point: Point, collectives: str, burst: bool) -> None:
        self._message = pieces.burst if burst else pieces.message
        self._pieces = pieces
        self._nodes = point.nodes
        self._collectives = collectives

    def __call__(self, operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        """Return the duration."""
        one = operations[0]
        if isinstance(one, Send):
            return self._message.time_s(one.size_bytes)
        assert isinstance(one, CollectiveCall)
        name = self._collectives if one.collective == "allreduce" else one.collective
        line, _ = self._pieces.collective(name, self._nodes)
        return line.time_s(one.size_bytes)


@dataclass(frozen=True)
class Prediction:
    """A step's time, what of it a rank of the last stage computes, and what it waits for in the part that is played, by
    kind; ``gradients_s``: how long the gradients of the first stage take."""

    gpus: int
    step_s: float
    compute_s: float
    exposed_s: Mapping[str, float]
    gradients_s: float

    @property
    def bubble(self) -> float:
        """The time in which it computes nothing / that in which it computes."""
        return self.step_s / self.compute_s - 1


def predicted(point: Point, duration: Callable[[Sequence[Operation], Sequence[int]], float]) -> Prediction:
    """Return the step's time on paper."""
    graph = training_graph(point.training)
    timeline = list_schedule(graph, duration)
    return _described(point, timeline, sum_of_gradients(graph, duration))


def _described(point: Point, timeline: Timeline, gradients_s: float) -> Prediction:
    step_s = whole_step_s(timeline, point.training.steady, point.last_rank)
    part, rank = point.training.steady, point.last_rank
    computed_s = compute_s(timeline, rank) * part.micro_batches / part.played
    return Prediction(point.gpus, step_s, computed_s, exposed_s(timeline, rank), gradients_s)


def sum_of_gradients(graph: WorkGraph, duration: Callable[[Sequence[Operation], Sequence[int]], float]) -> float:
    """Return how long the gradients of rank 0 take, one bucket after the other."""
    calls = [one for one in graph.operations[0] if isinstance(one, CollectiveCall) and kind_of(one) == GRADIENTS]
    return sum(duration([one], graph.members(one.group)) for one in calls)


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
        step_s = predicted(point, Durations(pieces, point, collectives, burst)).step_s
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


def with_gradients_as_time(
    graph: WorkGraph, duration: Callable[[Sequence[Operation], Sequence[int]], float]
) -> WorkGraph:
    """Return a graph whose collectives are replaced by as much time, on their streams: the rest of it can be played on
    fewer nodes than these are over."""
    operations = tuple(
        tuple(
            Compute(
                duration_s=duration([one], graph.members(one.group)),
                name=one.name,
                stream=one.stream,
                after=one.after,
                after_start=one.after_start,
            )
            if isinstance(one, CollectiveCall)
            else one
            for one in of_rank
        )
        for of_rank in graph.operations
    )
    return replace(graph, operations=operations, groups={})
