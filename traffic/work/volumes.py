"""How much a step of a graph computes and sends, and between whom (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from traffic.work.graph import WorkGraph
from traffic.work.operations import HOST, NO_STREAM, CollectiveCall, Compute, FileRead, FileWrite, Send
from traffic.work.schedules import ScheduleChoice

Pair = tuple[int, int]


def sent_between(graph: WorkGraph, choice: ScheduleChoice) -> Counter[Pair]:
    """Return how many bytes a step sends from each rank to each other, of those that send any."""
    found: Counter[Pair] = Counter()
    calls: Counter[tuple[CollectiveCall, int]] = Counter()
    for rank, _, one in graph.all_operations():
        if isinstance(one, Send) and one.peer != rank:
            found[rank, one.peer] += one.size_bytes
        elif isinstance(one, CollectiveCall):
            members = graph.members(one.group)
            if one.sent_bytes:
                found.update({(rank, to): size for to, size in zip(members, one.sent_bytes, strict=True) if to != rank})
            elif rank == members[0]:
                calls[_alike(one), 0] += 1
    for (call, _), count in calls.items():
        for pair, share in _flows(call, graph, choice):
            found[pair] += round(share * call.size_bytes) * count
    return Counter({pair: size for pair, size in found.items() if size})


def _alike(call: CollectiveCall) -> CollectiveCall:
    """Return what calls that send the same have in common."""
    return CollectiveCall(
        collective=call.collective,
        size_bytes=call.size_bytes,
        group=call.group,
        root=call.root,
        algorithm=call.algorithm,
        dtype=call.dtype,
    )


def _flows(call: CollectiveCall, graph: WorkGraph, choice: ScheduleChoice) -> Iterator[tuple[Pair, float]]:
    """Yield who sends to whom in a call, as multiples of its size."""
    members = graph.members(call.group)
    if len(members) > 1:
        planned = choice.planned(call, members)
        for source, target, share in planned.flows:
            yield (planned.ranks[source], planned.ranks[target]), share


def computed_s(graph: WorkGraph) -> list[float]:
    """Return how long each rank computes in a step, all streams together, of a graph with durations."""
    return [
        sum(one.duration_s or 0.0 for one in operations if isinstance(one, Compute)) for operations in graph.operations
    ]


def busiest_s(graph: WorkGraph) -> list[float]:
    """Return how long each rank computes on the stream on which it computes longest, of a graph with durations, but for
    the stream of its host: as long at most as a step takes."""
    found = []
    for operations in graph.operations:
        of_stream: dict[str, float] = defaultdict(float)
        for one in operations:
            if isinstance(one, Compute) and one.stream == NO_STREAM:  # Each beside all others.
                of_stream[NO_STREAM] = max(of_stream[NO_STREAM], one.duration_s or 0.0)
            elif isinstance(one, Compute) and one.stream != HOST:
                of_stream[one.stream] += one.duration_s or 0.0
        found.append(max(of_stream.values(), default=0.0))
    return found


class Moved(NamedTuple):
    """What a rank reads and writes of files in a step."""

    read_bytes: int
    written_bytes: int


def moved_by_files(graph: WorkGraph) -> dict[int, Moved]:
    """Return what each rank with files moves."""
    found: dict[int, Moved] = {}
    for rank, _, one in graph.all_operations():
        if isinstance(one, FileRead | FileWrite):
            before = found.get(rank, Moved(0, 0))
            is_read = isinstance(one, FileRead)
            found[rank] = Moved(
                before.read_bytes + (one.size_bytes if is_read else 0),
                before.written_bytes + (0 if is_read else one.size_bytes),
            )
    return found
