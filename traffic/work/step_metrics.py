"""Numbers of a training step, from when its operations were: on paper or in packets.

``exposed``: time in which a rank computes nothing and a communication of a kind is what its next computing waits for.
``bubble``: time in which it computes nothing / that in which it computes, on whichever of its streams; a host that
issues what others compute is apart. ``slack``: how much later a communication
could have ended without what waits for it, computing before all, beginning later. Experiments and jobs have no other
definitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from traffic.work import words
from traffic.work.closed_forms import kind_of
from traffic.work.list_schedule import Timeline
from traffic.work.operation_names import is_of_communication, pushing_worker
from traffic.work.operations import HOST, CollectiveCall, Compute, Operation, Receive


def compute_s(timeline: Timeline, rank: int) -> float:
    """Return how long a rank computes on at least one stream."""
    found = until = 0.0
    for start, end, _ in _computing(timeline, rank):
        found += max(0.0, end - max(start, until))
        until = max(until, end)
    return found


def bubble(timeline: Timeline, rank: int) -> float:
    """Return the time in which a rank computes nothing, up to the end of all, / that in which it computes."""
    busy = compute_s(timeline, rank)
    return (timeline.end_s - busy) / busy


def exposed_s(timeline: Timeline, rank: int) -> dict[str, float]:
    """Return how long a rank's computing waits for communications, by their kind: of each gap, its part up to the end
    of the last communication that the computing behind it waits for. At the end of the step, what is behind the last
    computing counts, too."""
    found: dict[str, float] = defaultdict(float)
    operations = timeline.graph.operations[rank]
    for place, waited_s in exposed_gaps(timeline, rank):
        found[_kind(operations[place])] += waited_s
    return dict(found)


def exposed_gaps(timeline: Timeline, rank: int) -> Iterator[tuple[int, float]]:
    """Yield the exposed part of each gap in a rank's computing, with the place of the communication that it waits for
    (see :func:`exposed_s`)."""
    operations, ends = timeline.graph.operations[rank], timeline.ends[rank]
    idle_since = 0.0
    waited = _Awaited(timeline, rank)
    for start, end, place in _computing(timeline, rank):
        gap_start, idle_since = idle_since, max(idle_since, end)
        last = waited.last(place)
        if start > gap_start and last is not None and ends[last] > gap_start:
            yield last, min(start, ends[last]) - gap_start
    behind = [place for place, end in enumerate(ends) if end > idle_since and not _computes(operations[place])]
    if behind:
        last = max(behind, key=lambda one: ends[one])
        yield last, ends[last] - idle_since


def computing_places(timeline: Timeline, rank: int) -> list[int]:
    """Return the places of a rank's computing in the order of time; a host's only if there is no other."""
    return [place for _, _, place in _computing(timeline, rank)]


def _kind(operation: Operation) -> str:
    """Return what an operation is for by its name; of one without, what it is."""
    return kind_of(operation) or words.kind_of(operation)


def slack_s(timeline: Timeline, rank: int) -> dict[str, float]:
    """Return the slack of a rank's communications by their names, of those of one name the least: from its end until
    the first computing that waits for it begins, which may have waited for its stream. If none does, until the first
    communication that waits for it begins, or the end of all."""
    operations, starts, ends = timeline.graph.operations[rank], timeline.starts[rank], timeline.ends[rank]
    needed: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for place, operation in enumerate(operations):
        of_kind = needed[not _computes(operation)]
        for before in operation.after:
            of_kind[before] = min(starts[place], of_kind.get(before, starts[place]))
    by_computing, by_others = needed
    found: dict[str, float] = {}
    for place, operation in enumerate(operations):
        if not _computes(operation):
            until = by_computing.get(place, by_others.get(place, timeline.end_s))
            slack = max(0.0, until - ends[place])
            found[operation.name] = min(slack, found.get(operation.name, slack))
    return found


def _computes(operation: Operation) -> bool:
    """Whether a rank's computing is meant, and not what only stands for a communication."""
    return isinstance(operation, Compute) and not is_of_communication(operation.stream)


def _computing(timeline: Timeline, rank: int) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, place) of a rank's computing in the order of time; a host's only if there is no other."""
    operations = timeline.graph.operations[rank]
    places = [place for place, operation in enumerate(operations) if _computes(operation)]
    apart = [place for place in places if operations[place].stream != HOST]
    yield from sorted((timeline.starts[rank][one], timeline.ends[rank][one], one) for one in apart or places)


class _Awaited:
    """Which communication of a rank a place waits for last: by itself, or by its host, which waits for it."""

    def __init__(self, timeline: Timeline, rank: int) -> None:
        self._operations, self._ends = timeline.graph.operations[rank], timeline.ends[rank]
        self._of_host: dict[int, int | None] = {}
        starts = timeline.starts[rank]
        hosts = [place for place, one in enumerate(self._operations) if _computes(one) and one.stream == HOST]
        for place in sorted(hosts, key=lambda one: (starts[one], one)):
            self._of_host[place] = self.last(place)

    def last(self, place: int) -> int | None:
        """Return the place of the communication that ended last of those that a place waits for; None if of none."""
        after = self._operations[place].after
        awaited = [self._of_host.get(one) if _computes(self._operations[one]) else one for one in after]
        return max((one for one in awaited if one is not None), key=lambda one: self._ends[one], default=None)


def waited_for(timeline: Timeline) -> dict[tuple[int, int], float]:
    """Return how long the computing of each rank waited for each other, by (who, for whom): in each gap for the sender
    of the message that came last, or the rank that came last to the collective that ended last."""
    joined = _last_to_join(timeline)
    found: dict[tuple[int, int], float] = defaultdict(float)
    for rank, operations in enumerate(timeline.graph.operations):
        ends, idle_since = timeline.ends[rank], 0.0
        waited = _Awaited(timeline, rank)
        for start, end, place in _computing(timeline, rank):
            gap_start, idle_since = idle_since, max(idle_since, end)
            last = waited.last(place)
            if last is None or min(start, ends[last]) <= gap_start:
                continue
            operation = operations[last]
            whom = operation.peer if isinstance(operation, Receive) else joined.get((rank, last), rank)
            if whom != rank:
                found[rank, whom] += min(start, ends[last]) - gap_start
    return dict(found)


def _last_to_join(timeline: Timeline) -> dict[tuple[int, int], int]:
    """Return which rank was the last to begin each collective, by each of its calls' (rank, place)."""
    calls: dict[tuple[str, int], list[tuple[float, int, int]]] = defaultdict(list)
    for rank, operations in enumerate(timeline.graph.operations):
        number: dict[str, int] = defaultdict(int)
        for place, operation in enumerate(operations):
            if isinstance(operation, CollectiveCall):
                call = operation.group, number[operation.group]
                calls[call].append((timeline.starts[rank][place], rank, place))
                number[operation.group] += 1
    return {(rank, place): max(members)[1] for members in calls.values() for _, rank, place in members}


def staleness(timeline: Timeline, workers: int) -> dict[int, list[int]]:
    """Return, of a parameter server's job, how many pushes of others a worker's gradients of each step missed: those
    that the server of the first part took since this worker's push before, whose answer it computed with. By worker,
    step by step."""
    taken: list[tuple[float, int]] = []
    own: dict[int, list[float]] = defaultdict(list)
    for _, operation, _, end in timeline.spans():
        if isinstance(operation, Receive) and (worker := pushing_worker(operation.name)) is not None:
            taken.append((end, worker))
            own[worker].append(end)
    found = {}
    for worker in range(workers):
        ends = sorted(own[worker])
        windows = zip([0.0, *ends], ends, strict=False)
        found[worker] = [sum(start < at <= end for at, other in taken if other != worker) for start, end in windows]
    return found
