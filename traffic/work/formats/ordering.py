"""In which order operations stand that wait for each other, and which cannot, since they wait in a circle."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


class CircleError(ValueError):
    """Operations wait for each other. ``places``: a circle, each waiting for the next."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        super().__init__(f"{len(self.places)} operations wait for each other in a circle")


def in_order(waits: Sequence[Collection[int]]) -> list[int]:
    """Return all places, each behind those that it waits for, and otherwise as they stand. Raises CircleError."""
    left = [len(set(of)) for of in waits]
    waiting: list[list[int]] = [[] for _ in waits]
    for place, of in enumerate(waits):
        for other in set(of):
            waiting[other].append(place)
    ready = [place for place, count in enumerate(left) if count == 0]
    found = []
    while ready:
        place = heapq.heappop(ready)
        found.append(place)
        for other in waiting[place]:
            left[other] -= 1
            if left[other] == 0:
                heapq.heappush(ready, other)
    if len(found) < len(waits):
        raise CircleError(_circle(waits, {place for place, count in enumerate(left) if count > 0}))
    return found


def _circle(waits: Sequence[Collection[int]], stuck: Collection[int]) -> list[int]:
    """Return a circle among places each of which waits for another one of them."""
    path: list[int] = []
    seen: dict[int, int] = {}
    place = min(stuck)
    while place not in seen:
        seen[place] = len(path)
        path.append(place)
        place = min(other for other in waits[place] if other in stuck)
    return path[seen[place] :]
