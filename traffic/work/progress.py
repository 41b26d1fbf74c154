"""When the operations of a rank may start: their dependencies, streams and groups, without clocks and connections.

What plays a graph and what checks one go by the same rules, those of :mod:`traffic.work.operations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from traffic.work.operations import NO_STREAM, CollectiveCall, Operation

NOTHING: tuple[int, ...] = ()


@dataclass(frozen=True)
class RankOrder:
    """What the operations of a rank wait for, by their places: the same in every step.

    ``waits``: how many others each waits for; ``after_end`` and ``after_start``: who waits for its end, or its start;
    ``stream``: the number of its stream, or -1; ``streams``: how many there are.
    """

    waits: Sequence[int]
    after_end: Sequence[Sequence[int]]
    after_start: Sequence[Sequence[int]]
    stream: Sequence[int]
    streams: int

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> RankOrder:
        """Return it of operations whose dependencies are among them. The calls of a group follow one another."""
        waits = [0] * len(operations)
        ends: list[list[int] | None] = [None] * len(operations)
        starts: list[list[int] | None] = [None] * len(operations)
        numbers: dict[str, int] = {NO_STREAM: -1}
        last_of_group: dict[str, int] = {}
        stream = []
        for place, operation in enumerate(operations):
            stream.append(numbers.setdefault(operation.stream, len(numbers) - 1))
            if operation.after:
                waits[place] += _follow(ends, operation.after, place)
            if operation.after_start:
                waits[place] += _follow(starts, operation.after_start, place)
            if isinstance(operation, CollectiveCall):
                before = last_of_group.get(operation.group)
                if before is not None:
                    waits[place] += _follow(ends, (before,), place)
                last_of_group[operation.group] = place
        return cls(waits, _followers(ends), _followers(starts), stream, len(numbers) - 1)


def _follow(followers: list[list[int] | None], others: Iterable[int], place: int) -> int:
    """Note that a place follows others; return how many."""
    count = 0
    for count, other in enumerate(others, start=1):  # noqa: B007 - it is used after the loop.
        known = followers[other]
        if known is None:
            followers[other] = [place]
        else:
            known.append(place)
    return count


def _followers(found: list[list[int] | None]) -> list[Sequence[int]]:
    return [NOTHING if one is None else one for one in found]


class RankProgress:
    """How far a rank is in a step. Whoever plays it starts what :meth:`begin` and :meth:`end` return, in that order.

    Of several operations that could start on a free stream, the first in the list does; those that one call of
    :meth:`end` sets free are looked at together. ``now``: the time that the caller says it is; ``ready_s`` keeps when
    each waited for no other operation.
    """

    def __init__(self, order: RankOrder) -> None:
        self.order = order
        self.left = len(order.waits)
        """How many operations have not ended."""
        self.now = 0.0
        self.ready_s = [0.0] * len(order.waits)
        self._waits = list(order.waits)
        self._ready: list[list[int]] = [[] for _ in range(order.streams)]
        self.holder = [-1] * order.streams
        """By the number of a stream: the place of the operation that has it, or -1."""

    def begin(self) -> list[int]:
        """Return the places of the operations that start first."""
        return self._started([place for place, count in enumerate(self._waits) if not count], set())

    def end(self, places: Iterable[int]) -> list[int]:
        """Take it that operations have ended, at one time; return the places of those that start now."""
        waits, order = self._waits, self.order
        ready: list[int] = []
        freed: set[int] = set()
        for place in places:
            self.left -= 1
            stream = order.stream[place]
            if stream >= 0:
                self.holder[stream] = -1
                freed.add(stream)
            for follower in order.after_end[place]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        return self._started(ready, freed)

    def _started(self, ready: list[int], freed: set[int]) -> list[int]:
        """Return which of operations that wait for no other start, and of those that wait for a stream set free; and
        what these starts set free in turn."""
        waits, order, holder, now, ready_s = self._waits, self.order, self.holder, self.now, self.ready_s
        found: list[int] = []
        while ready or freed:
            started = []
            for place in ready:
                ready_s[place] = now
                stream = order.stream[place]
                if stream < 0:
                    started.append(place)
                else:
                    heappush(self._ready[stream], place)
                    freed.add(stream)
            for stream in freed:
                if holder[stream] < 0 and self._ready[stream]:
                    holder[stream] = heappop(self._ready[stream])
                    started.append(holder[stream])
            ready, freed = [], set()
            for place in started:
                for follower in order.after_start[place]:
                    waits[follower] -= 1
                    if not waits[follower]:
                        ready.append(follower)
            found += started
        return found
