"""A step of many equal micro-batches by a part of them: what is played, and what the rest would add.

A pipeline that is full does the same for each micro-batch, or for each group of as many as there are stages if it is
interleaved. So T(m) = T(played) + (m - played) x period, where the period is the time between two forward passes that
begin in the steady part, on the last stage. It is exact for equal times on paper; in packets, playing more shows how
far it holds.

Stages of unequal length need more: the pipeline in front of a slow one fills up first, and then micro-batches may come
in groups. So more are played, and the period is that of the slowest stage over the last of them, as many as
there are stages; it is as long at least as the busiest stage computes. The whole step gets what they deviate from equal
distances, so that it is not too short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traffic.work.list_schedule import Timeline
from traffic.work.operation_names import forward_number

_SAME = 1e-9
"""By so much two times differ by rounding."""


@dataclass(frozen=True)
class SteadyPart:
    """``micro_batches``: of the whole step; ``played``: of these; ``stages``; ``interleaved``; ``uneven``: whether
    stages have unequal layers; ``busiest_s``: how long the busiest stage computes a micro-batch then, if that is known.
    """

    micro_batches: int
    played: int
    stages: int
    interleaved: bool = False
    uneven: bool = False
    busiest_s: float = 0.0

    @property
    def least(self) -> int:
        """How many micro-batches must be played at least, that a steady part is there."""
        groups = 3 if self.uneven else 2
        return min(self.micro_batches, 4 * self.stages if self.interleaved else groups * self.stages + 1)

    def period_s(self, forward_starts: Mapping[int, float]) -> float:
        """Return the time that a micro-batch takes in the steady part. ``forward_starts``: when forward passes of the
        last stage's first chunk began, by micro-batch."""
        numbers = self._numbers()
        first, last = numbers[0], numbers[-1]
        mean_s = (forward_starts[last] - forward_starts[first]) / (last - first)
        latest_s = (forward_starts[last] - forward_starts[numbers[-2]]) / numbers.step
        if self.interleaved and latest_s > mean_s * (1 + _SAME):  # The first group may find links idle.
            mean_s = latest_s
        return max(self.busiest_s, mean_s)

    def _numbers(self) -> range:
        """Return the micro-batches of the steady part whose forward passes are compared."""
        every = self.stages if self.interleaved else 1
        first = self.played - 1 - self.stages if self.uneven and not self.interleaved else self.stages
        count = (self.played - 1 - first) // every
        if count < 1:
            raise ValueError(f"{self.played} micro-batches have no steady part; play {self.least} or more")
        return range(first, first + count * every + 1, every)

    def step_s(self, played_s: float, period_s: float) -> float:
        """Return the time of the whole step."""
        return played_s + (self.micro_batches - self.played) * period_s

    def uneven_step_s(self, played_s: float, starts: Sequence[Mapping[int, float]]) -> float:
        """Return the time of the whole step of stages of unequal length. ``starts``: as for :meth:`period_s`, of ranks
        of all stages, or of those that are known, one of the last stage at the end."""
        numbers = self._numbers()
        known = [one for one in starts if all(number in one for number in numbers)]
        if self.interleaved:  # Chunks of earlier stages begin before there is a steady part.
            known = known[-1:]
        period_s = max(self.period_s(one) for one in known)
        return self.step_s(played_s, period_s) + max(_deviation_s(one, numbers) for one in known)


def whole_step_s(timeline: Timeline, part: SteadyPart, rank: int) -> float:
    """Return the time of the whole step. ``rank``: one of the last stage."""
    if part.played == part.micro_batches:
        return timeline.end_s
    if part.uneven:
        others = [one for one in range(timeline.graph.ranks) if one != rank]
        return part.uneven_step_s(timeline.end_s, [forward_starts(timeline, one) for one in (*others, rank)])
    return part.step_s(timeline.end_s, part.period_s(forward_starts(timeline, rank)))


def _deviation_s(forward_starts: Mapping[int, float], numbers: range) -> float:
    """Return how far micro-batches are from equal distances, at most."""
    first, last = numbers[0], numbers[-1]
    mean_s = (forward_starts[last] - forward_starts[first]) / (last - first)
    return max(abs(forward_starts[one] - forward_starts[first] - (one - first) * mean_s) for one in numbers)


def forward_starts(timeline: Timeline, rank: int) -> dict[int, float]:
    """Return when a rank's first chunk began each micro-batch's forward pass."""
    starts: dict[int, float] = {}
    for place, operation in enumerate(timeline.graph.operations[rank]):
        number = forward_number(operation.name)
        if number is not None and operation.stream == "compute":
            starts.setdefault(number, timeline.starts[rank][place])
    return starts
