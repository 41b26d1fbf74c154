"""Liveness of nodes: when each was heard, by a clock that stands still while the scheduler hears nobody. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DEAF_BEATS = 2
"""After so many heartbeats of which none was heard, of all nodes, it is the scheduler that does not hear: its program
stood still, or its host is cut off."""


@dataclass
class Deadline:
    """Until when nodes may say something, by the clock of :class:`Liveness`, which had stood still for ``missed_s`` by
    then. ``since_s``: when they were told to (``time.monotonic()``)."""

    since_s: float
    until_s: float
    missed_s: float


class Liveness:
    """When each node was heard. Silence counts only while somebody is heard: a scheduler that was away for minutes
    takes nobody out for that.

    All ``now_s`` are ``time.monotonic()``; ``beat_s``: how often each node is to be heard.
    """

    def __init__(self, names: Iterable[str], beat_s: float, now_s: float) -> None:
        self._deaf_after_s = DEAF_BEATS * beat_s
        self.missed_s = 0.0
        """For how long nobody was heard, so far."""
        self.last_s = now_s
        """When somebody was heard last."""
        self._at_s = dict.fromkeys(names, self.clock_s(now_s))
        self._wall_s = dict.fromkeys(self._at_s, now_s)
        self._hears_s: dict[str, float] = {}
        """When each node heard the scheduler last, as it told."""
        self._out_s: dict[str, float] = {}
        self.in_touch: set[str] = set()
        """The nodes that were heard since nobody was, or since counting began: what the others have sent may still be
        on its way, since TCP tries again after seconds once it has lost a few times."""

    def __contains__(self, node: object) -> bool:
        return node in self._at_s

    def __iter__(self) -> Iterator[str]:
        return iter(self._at_s)

    def __getitem__(self, node: str) -> float:
        """When a node was heard last, or counts as heard."""
        return self._wall_s[node]

    def begin(self, now_s: float) -> None:
        """Count from now on, as if all had been heard."""
        self.last_s = now_s
        self.in_touch.clear()
        self._at_s = dict.fromkeys(self._at_s, self.clock_s(now_s))
        self._wall_s = dict.fromkeys(self._at_s, now_s)

    def clock_s(self, now_s: float) -> float:
        """Return the time by a clock that stands still while nobody is heard."""
        return min(now_s, self.last_s + self._deaf_after_s) - self.missed_s

    def hear(self, node: str, now_s: float) -> None:
        """Note that a node is heard."""
        missed_s = now_s - self.last_s - self._deaf_after_s
        if missed_s > 0:
            self.missed_s += missed_s
            self.in_touch.clear()
        self.in_touch.add(node)
        self.last_s = now_s
        self._at_s[node] = self.clock_s(now_s)
        self._wall_s[node] = now_s

    def silent_s(self, node: str, now_s: float) -> float:
        """Return for how long a node has not been heard, in seconds of the clock."""
        return self.clock_s(now_s) - self._at_s[node]

    def deadline(self, now_s: float, wait_s: float) -> Deadline:
        """Return the end of a wait that begins now."""
        return Deadline(now_s, self.clock_s(now_s) + wait_s, self.missed_s)

    def is_over(self, deadline: Deadline, now_s: float, wait_s: float) -> bool:
        """Return whether a wait is over, and somebody was heard in it. One in which the scheduler itself did not hear
        for a while begins again, with ``wait_s``: agents dial again, and have to be told again."""
        if self.missed_s > deadline.missed_s:
            deadline.missed_s = self.missed_s
            deadline.until_s = self.clock_s(now_s) + wait_s
        return self.clock_s(now_s) >= deadline.until_s and self.last_s > deadline.since_s

    def told(self, node: str, now_s: float, unheard_s: float) -> None:
        """Note that a node says for how long it has not heard the scheduler."""
        self._hears_s[node] = now_s - unheard_s

    def hears_since(self, node: str, since_s: float) -> bool:
        """Return whether a node has told that it has heard the scheduler since a time."""
        return self._hears_s.get(node, -math.inf) >= since_s

    def take_out(self, node: str, now_s: float) -> None:
        """Note that a node is taken out."""
        self._out_s[node] = now_s

    def hears_again(self, node: str) -> bool:
        """Return whether a node has heard the scheduler since it was taken out: one that only speaks is not back."""
        return self._hears_s.get(node, -math.inf) > self._out_s.get(node, -math.inf)
