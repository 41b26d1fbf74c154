"""A replayed year as numbers: goodput day by day, which cuts hit which job, how far compression makes cuts overlap.

Pure functions of steps, of when links were down and of the replay's days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Spans = npt.NDArray[np.float64]
"""Begins and ends of something, shape (n, 2), in seconds."""
_EARTH_DAY_S = 86_400.0


def spans(rows: Sequence[tuple[float, float]]) -> Spans:
    """Return begins and ends as an array."""
    return np.array(rows, np.float64).reshape(-1, 2)


def work_done(steps: Spans, edges_s: Floats) -> Floats:
    """Return how many steps were done in each stretch between two edges; a step counts evenly over its time."""
    if not len(steps):
        return np.zeros(len(edges_s) - 1)
    began, ended = steps[:, :1], steps[:, 1:]
    done: Floats = np.clip((edges_s[None, :] - began) / (ended - began), 0, 1).sum(axis=0)
    return np.diff(done)


def rate_per_s(steps: Spans, from_s: float, to_s: float) -> float:
    """Return the steps done a second in a stretch of time."""
    return float(work_done(steps, np.array([from_s, to_s]))[0]) / (to_s - from_s)


def lost_fraction(got: float, undisturbed: float) -> float:
    """Return what part of the undisturbed is missing; negative if more was got."""
    return 1 - got / undisturbed


def hits(steps: Spans, cuts: Spans, slowest_s: float) -> npt.NDArray[np.bool_]:
    """Return which cuts a job felt: under way in a step that took longer than any without cuts; shape (cuts,)."""
    slow = steps[steps[:, 1] - steps[:, 0] > slowest_s]
    if not len(slow):
        return np.zeros(len(cuts), np.bool_)
    overlap = (slow[None, :, 0] < cuts[:, 1:]) & (slow[None, :, 1] > cuts[:, :1])
    felt: npt.NDArray[np.bool_] = np.any(overlap, axis=1)
    return felt


def overlapping_fraction(cuts: Spans) -> float:
    """Return what part of the cuts share some of their time with another; 0 without cuts."""
    if not len(cuts):
        return 0.0
    overlap = (cuts[:, None, 0] < cuts[None, :, 1]) & (cuts[:, None, 1] > cuts[None, :, 0])
    return float((overlap.sum(axis=1) > 1).mean())


def overlapping_fraction_in_days(cuts_a_day: Sequence[int], duration_s: float) -> float:
    """Return the same as expected for cuts at any times of whole days: compressed a year has far more of it."""
    total = sum(cuts_a_day)
    if not total:
        return 0.0
    alone = max(0.0, 1 - 2 * duration_s / _EARTH_DAY_S)
    return sum(count * (1 - alone ** (count - 1)) for count in cuts_a_day) / total


@dataclass(frozen=True)
class LostWork:
    """What jobs that failed would have to do again: each, on average, half of the time between two checkpoints."""

    failures: int
    checkpoint_interval_s: float

    @property
    def expected_s(self) -> float:
        """Expected lost work in job-seconds."""
        return self.failures * self.checkpoint_interval_s / 2

    @property
    def most_s(self) -> float:
        """The most that it can be."""
        return self.failures * self.checkpoint_interval_s
