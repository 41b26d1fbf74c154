"""When flows end that share links as fluids: each has its max-min fair rate, and what ends frees its share. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from controllers.planning.fairness import EXACTLY, Numbers, Places, Shared, fair_rates_bps

_ALMOST_NOTHING = 1e-9
"""Of a flow's size: what is left of those that end together with another one, but for rounding."""
Followers = Callable[[int, float], Iterable[tuple[int, float]]]
"""Which flows start, and when, once a flow has ended at a time."""


@dataclass(frozen=True)
class Loads:
    """What flows carry, an entry per flow: bits with headers, and their starts in seconds; a start of ``inf`` is that
    of a flow that follows others."""

    bits: Numbers
    starts_s: Numbers


@dataclass(frozen=True)
class Times:
    """When each flow began and ended, in seconds."""

    began_s: Numbers
    ended_s: Numbers


def fluid_ends(shared: Shared, loads: Loads, followers: Followers = lambda *_: (), within: float = EXACTLY) -> Times:
    """Return when each flow begins and ends.

    Rates are found anew whenever flows start or end, each to a fraction ``within``. Flows that end after the first one
    by no more than that part of its duration free their shares together.
    """
    return _Fluids(shared, loads, followers, within).times()


class _Fluids:
    """Flows that are under way, and those that wait for their start."""

    def __init__(self, shared: Shared, loads: Loads, followers: Followers, within: float) -> None:
        self._shared, self._loads = shared, loads
        self._followers, self._within = followers, within
        self._left = loads.bits.astype(np.float64)
        count = len(loads.bits)
        self._times = Times(np.full(count, np.nan), np.full(count, np.nan))
        self._order = np.argsort(loads.starts_s, kind="stable")[: int(np.isfinite(loads.starts_s).sum())]
        self._ordered_s = loads.starts_s[self._order]
        self._started = 0
        self._following: list[tuple[float, int]] = []

    def times(self) -> Times:
        """Let all flows end."""
        now_s, active = 0.0, np.array([], dtype=np.int64)
        while len(active) or np.isfinite(self._next_start_s()):
            rates = fair_rates_bps(self._shared, active, self._within)
            ends_s = now_s + self._left[active] / rates
            then_s = min(self._turn_s(active, ends_s), self._next_start_s())
            self._left[active] -= rates * (then_s - now_s)
            done = (ends_s <= then_s) | (self._left[active] <= _ALMOST_NOTHING * self._loads.bits[active])
            self._end(active[done], np.minimum(ends_s[done], then_s))
            now_s = then_s
            active = np.concatenate([active[~done], self._starting(now_s)])
        return self._times

    def _turn_s(self, active: Places, ends_s: Numbers) -> float:
        """Return until when rates stay if nothing starts: until the first flow ends, and those with it."""
        if not len(active):
            return float("inf")
        first = int(ends_s.argmin())
        limit_s = ends_s[first] + self._within * (ends_s[first] - self._times.began_s[active[first]])
        return float(ends_s[ends_s <= limit_s].max())

    def _next_start_s(self) -> float:
        ordered = self._ordered_s[self._started] if self._started < len(self._order) else float("inf")
        return min(float(ordered), self._following[0][0] if self._following else float("inf"))

    def _starting(self, now_s: float) -> Places:
        """Return the flows that start now."""
        until = int(np.searchsorted(self._ordered_s, now_s, side="right"))
        found = self._order[self._started : until]
        self._times.began_s[found] = self._ordered_s[self._started : until]
        self._started = max(self._started, until)
        others = []
        while self._following and self._following[0][0] <= now_s:
            start_s, flow = heapq.heappop(self._following)
            self._times.began_s[flow] = start_s
            others.append(flow)
        return np.concatenate([found, np.array(others, dtype=np.int64)])

    def _end(self, flows: Places, ends_s: Numbers) -> None:
        self._times.ended_s[flows] = ends_s
        for flow, end_s in zip(flows.tolist(), ends_s.tolist(), strict=True):
            for follower, start_s in self._followers(flow, end_s):
                heapq.heappush(self._following, (start_s, follower))
