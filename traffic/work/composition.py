"""A training step put together of pieces that were played, each alone: a schedule on paper, with communications as long
as they took then. Pure.

Of many equal micro-batches a steady part is enough (:mod:`traffic.work.generators.steady`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fabric.measures import Better, Measure
from traffic.work.closed_forms import kind_of
from traffic.work.generators.config import TrainingConfig, training_graph
from traffic.work.generators.steady import whole_step_s
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Duration, list_schedule
from traffic.work.operations import CollectiveCall, Compute, Operation, Send
from traffic.work.step_metrics import compute_s, exposed_s

GRADIENTS = "gradients"
COMPOSED = (
    Measure(
        "step_s",
        "time of a step on paper, of pieces that were played, with collectives at the rates of ours",
        Better.LESS,
    ),
    Measure("step_with_nccl_s", "time of a step on paper with NCCL's collectives", Better.LESS),
    Measure(
        "step_at_once_s", "time of a step on paper if gradients are reduced only once all are computed", Better.LESS
    ),
    Measure("compute_s", "time that a rank computes in a step"),
    Measure("gradients_s", "time that the gradients of the first stage take", Better.LESS),
    Measure("played_step_s", "time of a step that was played in packets", Better.LESS),
    Measure(
        "played_step_at_once_s",
        "time of a step that was played in packets, with gradients reduced only at its end",
        Better.LESS,
    ),
    Measure("played_again_step_s", "time of a step by a shorter one that was played in packets", Better.LESS),
    Measure("published_step_s", "time of a step as it was published"),
    Measure("error_fraction", "difference of the step's time from the published one, over that"),
)
"""Of steps that are put together, on paper and of a part that was played."""


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


class Durations:
    """How long communications take: as :data:`traffic.work.list_schedule.Duration`. ``nodes``: over which collectives
    are; ``collectives``: what was played for an allreduce; ``burst``: whether all GPUs of a node send at once."""

    def __init__(self, pieces: Pieces, nodes: int, collectives: str, burst: bool) -> None:
        self._message = pieces.burst if burst else pieces.message
        self._pieces = pieces
        self._nodes = nodes
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

    step_s: float
    compute_s: float
    exposed_s: Mapping[str, float]
    gradients_s: float

    @property
    def bubble(self) -> float:
        """The time in which it computes nothing / that in which it computes."""
        return self.step_s / self.compute_s - 1


def predicted(training: TrainingConfig, duration: Duration) -> Prediction:
    """Return the step's time on paper."""
    graph, part = training_graph(training), training.steady
    timeline, rank = list_schedule(graph, duration), training.layout.groups("pp")[0][-1]
    step_s = whole_step_s(timeline, part, rank)
    computed_s = compute_s(timeline, rank) * part.micro_batches / part.played
    return Prediction(step_s, computed_s, exposed_s(timeline, rank), sum_of_gradients(graph, duration))


def sum_of_gradients(graph: WorkGraph, duration: Duration) -> float:
    """Return how long the gradients of rank 0 take, one bucket after the other."""
    calls = [one for one in graph.operations[0] if isinstance(one, CollectiveCall) and kind_of(one) == GRADIENTS]
    return sum(duration([one], graph.members(one.group)) for one in calls)


def with_gradients_as_time(graph: WorkGraph, duration: Duration) -> WorkGraph:
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
