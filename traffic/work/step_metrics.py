"""Numbers of a training step, from when its operations were: on paper or in packets.

``exposed``: time in which a rank computes nothing and a communication of a kind is what its next computing waits for.
``bubble``: time in which it computes nothing / that in which it computes. ``slack``: how much later a communication
could have ended without anything that waits for it beginning later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from traffic.work.closed_forms import kind_of
from traffic.work.list_schedule import Timeline
from traffic.work.operations import Compute, Operation

COMMUNICATION = "communication"


def compute_s(timeline: Timeline, rank: int) -> float:
    """Return how long a rank computes."""
    return sum(end - start for start, end, _ in _computing(timeline, rank))


def bubble(timeline: Timeline, rank: int) -> float:
    """Return the time in which a rank computes nothing, up to the end of all, / that in which it computes."""
    busy = compute_s(timeline, rank)
    return (timeline.end_s - busy) / busy


def exposed_s(timeline: Timeline, rank: int) -> dict[str, float]:
    """Return how long a rank's computing waits for communications, by their kind: of each gap, its part up to the end
    of the last communication that the computing behind it waits for. At the end of the step, what is behind the last
    computing counts, too."""
    found: dict[str, float] = defaultdict(float)
    operations, ends = timeline.graph.operations[rank], timeline.ends[rank]
    idle_since = 0.0
    for start, end, place in _computing(timeline, rank):
        gap_start, idle_since = idle_since, max(idle_since, end)
        others = [one for one in operations[place].after if not _computes(operations[one])]
        last = max(others, key=lambda one: ends[one], default=None)
        if start > gap_start and last is not None and ends[last] > gap_start:
            found[kind_of(operations[last])] += min(start, ends[last]) - gap_start
    behind = [place for place, end in enumerate(ends) if end > idle_since]
    if behind:
        last = max(behind, key=lambda one: ends[one])
        found[kind_of(operations[last])] += ends[last] - idle_since
    return dict(found)


def slack_s(timeline: Timeline, rank: int) -> dict[str, float]:
    """Return the slack of each of a rank's communications, by its name: until the first operation that waits for it
    begins, or until the end of all if none does."""
    operations, starts, ends = timeline.graph.operations[rank], timeline.starts[rank], timeline.ends[rank]
    needed = [timeline.end_s] * len(operations)
    for place, operation in enumerate(operations):
        for before in operation.after:
            needed[before] = min(needed[before], starts[place])
    return {
        operation.name: needed[place] - ends[place]
        for place, operation in enumerate(operations)
        if not _computes(operation)
    }


def _computes(operation: Operation) -> bool:
    """Whether a rank's computing is meant: what only stands for a communication is on a stream of that name."""
    return isinstance(operation, Compute) and operation.stream != COMMUNICATION


def _computing(timeline: Timeline, rank: int) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, place) of a rank's computing in the order of time."""
    spans = [
        (timeline.starts[rank][place], timeline.ends[rank][place], place)
        for place, operation in enumerate(timeline.graph.operations[rank])
        if _computes(operation)
    ]
    yield from sorted(spans)


def scale_factor(one_gpu_s: float, step_s: float, growth: float = 1.0) -> float:
    """Return what part of ideal scaling is reached: the step's time on the smaller layout / that on the larger one, by
    ``growth``, how many times as fast the larger one would be ideally (1: each GPU has as much to do)."""
    return one_gpu_s / growth / step_s


def mfu(flops_per_token: float, tokens_per_s: float, gpus: int, peak_flops_per_s: float) -> float:
    """Return model FLOPs utilisation: FLOPs of forward and backward pass, nothing computed again, / those of the
    hardware."""
    return flops_per_token * tokens_per_s / (gpus * peak_flops_per_s)
