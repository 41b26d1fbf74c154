"""Plays a graph on paper: communications take given durations, and everything else follows from the contract in
:mod:`traffic.work.operations`. What packets reach can then stand beside it.

A message has ended at its receiver so long after its send began as its duration says, and at its sender likewise. A
collective begins once it has begun on all its ranks, and ends on all at once. A rank is in it, and holds the stream,
from its own start on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from traffic.work.graph import WorkGraph
from traffic.work.operations import ANY, CollectiveCall, Compute, Operation, Receive, Send
from traffic.work.progress import RankOrder, RankProgress

Duration = Callable[[Sequence[Operation], Sequence[int]], float]
"""(operations, ranks) -> seconds: of a send, with sender and receiver; of a collective, that of each rank of the group,
with these; of a file's read or write, with its rank."""
Place = tuple[int, int]
_SHOWN = 5


class _Message(NamedTuple):
    """A message on its way: those that are equal keep their order."""

    sender: int
    receiver: int
    tag: int


class ScheduleError(ValueError):
    """A graph cannot be played to its end."""


@dataclass(frozen=True)
class Timeline:
    """When operations were, in seconds since the start: ``starts[rank][place]`` and ``ends[rank][place]``."""

    graph: WorkGraph
    starts: tuple[tuple[float, ...], ...]
    ends: tuple[tuple[float, ...], ...]

    @property
    def end_s(self) -> float:
        """When the last one ended."""
        return max((max(ends) for ends in self.ends if ends), default=0.0)

    def spans(self) -> Iterator[tuple[int, Operation, float, float]]:
        """Yield (rank, operation, start, end)."""
        for rank, place, operation in self.graph.all_operations():
            yield rank, operation, self.starts[rank][place], self.ends[rank][place]


def list_schedule(graph: WorkGraph, duration: Duration) -> Timeline:
    """Return when each operation is. Raises ScheduleError if some never begin or never end, with the first of them, and
    if computing has no duration."""
    return _Player(graph, duration).played()


class _Player:
    """Carries one graph out, moment by moment."""

    def __init__(self, graph: WorkGraph, duration: Duration) -> None:
        self._graph = graph
        self._duration = duration
        self._starts: list[list[float | None]] = [[None] * len(one) for one in graph.operations]
        self._ends: list[list[float | None]] = [[None] * len(one) for one in graph.operations]
        self._events: list[tuple[float, int, Place | _Message]] = []
        self._ranks = [RankProgress(RankOrder.of(one)) for one in graph.operations]
        self._ended_calls: list[dict[str, int]] = [defaultdict(int) for _ in graph.operations]
        self._called: dict[tuple[str, int], list[Place]] = defaultdict(list)
        self._messages = _Messages()
        self._written = 0

    def played(self) -> Timeline:
        """Play, and return when all was."""
        for rank, progress in enumerate(self._ranks):
            self._start(rank, progress.begin(), 0.0)
        while self._events:
            now = self._events[0][0]
            ended: dict[int, list[int]] = {}
            while self._events and self._events[0][0] == now:
                _, _, what = heapq.heappop(self._events)
                if isinstance(what, _Message):
                    self._match(self._messages.arrived(what), now)
                    continue
                rank, place = what
                self._ends[rank][place] = now
                operation = self._graph.operations[rank][place]
                if isinstance(operation, CollectiveCall):
                    self._ended_calls[rank][operation.group] += 1
                ended.setdefault(rank, []).append(place)
            for rank, places in ended.items():
                self._start(rank, self._ranks[rank].end(places), now)
        return self._timeline()

    def _start(self, rank: int, places: Sequence[int], now: float) -> None:
        for place in places:
            self._starts[rank][place] = now
        for place in places:
            self._begin(rank, place, now)

    def _begin(self, rank: int, place: int, now: float) -> None:
        operation = self._graph.operations[rank][place]
        if isinstance(operation, Compute):
            self._end_at(now + self._of_compute(rank, place, operation), (rank, place))
        elif isinstance(operation, CollectiveCall):
            self._join(rank, place, operation, now)
        elif isinstance(operation, Send):
            end = now + self._duration((operation,), (rank, operation.peer))
            self._end_at(end, (rank, place))
            message = _Message(rank, operation.peer, operation.tag)
            self._push(self._messages.in_order(message, end), message)
        elif isinstance(operation, Receive):
            self._match(self._messages.asked((rank, place), operation), now)
        else:
            self._end_at(now + self._duration((operation,), (rank,)), (rank, place))

    def _of_compute(self, rank: int, place: int, operation: Compute) -> float:
        if operation.duration_s is None:
            raise ScheduleError(
                f"rank {rank}: operation {place} ({operation.name or 'computing'}) has {operation.flops:,.0f} FLOPs "
                "and no duration; give FLOP/s (WorkGraph.timed)"
            )
        return operation.duration_s

    def _join(self, rank: int, place: int, operation: CollectiveCall, now: float) -> None:
        members = self._graph.members(operation.group)
        call = (operation.group, self._ended_calls[rank][operation.group])
        here = self._called[call]
        here.append((rank, place))
        if len(here) == len(members):
            of_rank = {one: self._graph.operations[one][where] for one, where in here}
            end = now + self._duration([of_rank[one] for one in members], members)
            for one in here:
                self._end_at(end, one)
            del self._called[call]

    def _match(self, receive: Place | None, now: float) -> None:
        if receive:
            self._end_at(now, receive)

    def _end_at(self, at: float, place: Place) -> None:
        self._push(at, place)

    def _push(self, at: float, what: Place | _Message) -> None:
        self._written += 1
        heapq.heappush(self._events, (at, self._written, what))

    def _timeline(self) -> Timeline:
        left = [
            f"rank {rank}: operation {place} ({operation.name or type(operation).__name__}) "
            f"{'never ends' if self._starts[rank][place] is not None else 'never begins'}"
            for rank, place, operation in self._graph.all_operations()
            if self._ends[rank][place] is None
        ]
        if left:
            more = f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            raise ScheduleError(f"{self._graph.name}: {'; '.join(left[:_SHOWN])}{more}; check what they wait for")
        return Timeline(self._graph, _whole(self._starts), _whole(self._ends))


def _whole(times: list[list[float | None]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(one for one in rank if one is not None) for rank in times)


class _Messages:
    """Messages that have come and receives that wait, in order."""

    def __init__(self) -> None:
        self._last: dict[_Message, float] = {}
        self._here: dict[int, dict[_Message, deque[int]]] = defaultdict(dict)
        self._asked: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self._count = 0

    def in_order(self, message: _Message, at: float) -> float:
        """Return when a message comes that would alone come ``at``: not before an earlier one of its kind."""
        self._last[message] = max(at, self._last.get(message, at))
        return self._last[message]

    def arrived(self, message: _Message) -> Place | None:
        """Note a message, and return the receive that it meets: of those that would take it, the first."""
        keys = [(message.receiver, peer, tag) for peer in (message.sender, ANY) for tag in (message.tag, ANY)]
        waiting = [self._asked[key] for key in keys if self._asked.get(key)]
        if waiting:
            return message.receiver, min(waiting, key=lambda queue: queue[0]).popleft()
        self._count += 1
        self._here[message.receiver].setdefault(message, deque()).append(self._count)
        return None

    def asked(self, place: Place, receive: Receive) -> Place | None:
        """Note a receive, and return it if it meets a message: of those that it would take, the first that came."""
        here = self._here[place[0]]
        if ANY in (receive.peer, receive.tag):
            found = [one for one in here if _takes(receive, one)]
        else:
            exact = _Message(receive.peer, place[0], receive.tag)
            found = [exact] if exact in here else []
        if not found:
            self._asked[place[0], receive.peer, receive.tag].append(place[1])
            return None
        first = min(found, key=lambda one: here[one][0])
        here[first].popleft()
        if not here[first]:
            del here[first]
        return place


def _takes(receive: Receive, message: _Message) -> bool:
    return receive.peer in (ANY, message.sender) and receive.tag in (ANY, message.tag)
