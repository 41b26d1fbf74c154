"""What a step's time goes to, by the layers of a graph: computing, and communication that is exposed or hidden (pure).

A layer is what operations have as their name: SimAI's rows, a recorded kernel, or what a generated graph is for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from traffic.work.list_schedule import Timeline
from traffic.work.step_metrics import computing_places, exposed_gaps
from traffic.work.words import kind_of, size_of

UNNAMED = "without a name"
COMPUTE = "compute"


@dataclass(frozen=True)
class LayerTime:
    """What operations of one layer and kind of a rank took in a step, in seconds; kinds are those of
    :func:`traffic.work.words.kind_of`.

    ``computed_s``: of computing, the time of all of its operations. ``exposed_s``: of communication, how long computing
    waited for it (:func:`traffic.work.step_metrics.exposed_s`). ``hidden_s``: of communication, the rest of the time in
    which one of its operations was under way. ``size_bytes``: of all its operations.
    """

    rank: int
    layer: str
    kind: str
    operations: int
    size_bytes: int
    computed_s: float
    exposed_s: float
    hidden_s: float

    @property
    def whole_s(self) -> float:
        """All of it."""
        return self.computed_s + self.exposed_s + self.hidden_s


def layer_times(timeline: Timeline, rank: int) -> list[LayerTime]:
    """Return what a rank's step goes to, by layer and kind in the order of their first operations. A host's computing
    counts if there is no other, and a communication that stands for computing (on its stream) not at all."""
    operations = timeline.graph.operations[rank]
    computing = set(computing_places(timeline, rank))
    exposed: dict[int, float] = defaultdict(float)
    for place, waited_s in exposed_gaps(timeline, rank):
        exposed[place] += waited_s
    places: dict[tuple[str, str], list[int]] = {}
    for place, operation in enumerate(operations):
        if place in computing or kind_of(operation) != COMPUTE:
            places.setdefault((operation.name or UNNAMED, kind_of(operation)), []).append(place)
    found = []
    for (layer, kind), of_layer in places.items():
        spans = [(timeline.starts[rank][place], timeline.ends[rank][place]) for place in of_layer]
        size_bytes = sum(size_of(operations[place]) for place in of_layer)
        if kind == COMPUTE:
            times = (sum(end - start for start, end in spans), 0.0, 0.0)
        else:
            waited_s = sum(exposed[place] for place in of_layer)
            times = (0.0, waited_s, max(0.0, _covered_s(spans) - waited_s))
        found.append(LayerTime(rank, layer, kind, len(of_layer), size_bytes, *times))
    return found


def _covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time in which at least one span is."""
    found, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        found += max(0.0, end - max(start, until))
        until = max(until, end)
    return found
