"""A step of many equal micro-batches by a part of them: what is played, and what the rest would add.

A pipeline that is full does the same for each micro-batch, or for each group of as many as there are stages if it is
interleaved. So T(m) = T(played) + (m - played) x period, where the period is the time between two forward passes that
begin in the steady part, on the last stage. It is exact for equal times on paper; in packets, playing more shows how
far it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traffic.work.list_schedule import Timeline


@dataclass(frozen=True)
class SteadyPart:
    """``micro_batches``: of the whole step; ``played``: of these; ``stages``; ``interleaved``."""

    micro_batches: int
    played: int
    stages: int
    interleaved: bool = False

    @property
    def least(self) -> int:
        """How many micro-batches must be played at least, that a steady part is there."""
        return min(self.micro_batches, 4 * self.stages if self.interleaved else 2 * self.stages + 1)

    def period_s(self, forward_starts: Mapping[int, float]) -> float:
        """Return the time that a micro-batch takes in the steady part. ``forward_starts``: when forward passes of the
        last stage's first chunk began, by micro-batch."""
        every = self.stages if self.interleaved else 1
        first = self.stages
        count = (self.played - 1 - first) // every
        if count < 1:
            raise ValueError(f"{self.played} micro-batches have no steady part; play {self.least} or more")
        last = first + count * every
        return (forward_starts[last] - forward_starts[first]) / (last - first)

    def step_s(self, played_s: float, period_s: float) -> float:
        """Return the time of the whole step."""
        return played_s + (self.micro_batches - self.played) * period_s


def whole_step_s(timeline: Timeline, part: SteadyPart, rank: int) -> float:
    """Return the time of the whole step. ``rank``: one of the last stage."""
    if part.played == part.micro_batches:
        return timeline.end_s
    return part.step_s(timeline.end_s, part.period_s(forward_starts(timeline, rank)))


def forward_starts(timeline: Timeline, rank: int) -> dict[int, float]:
    """Return when a rank's first chunk began each micro-batch's forward pass."""
    starts: dict[int, float] = {}
    for place, operation in enumerate(timeline.graph.operations[rank]):
        number = forward_number(operation.name)
        if number is not None and operation.stream == "compute":
            starts.setdefault(number, timeline.starts[rank][place])
    return starts


def forward_number(name: str) -> int | None:
    """Return the micro-batch of a piece of computing by its name, if that is a forward pass of a rank's first chunk."""
    kind, _, rest = name.partition(" ")
    return int(rest.split(".")[0]) if kind == "forward" and rest.endswith(".0") else None
