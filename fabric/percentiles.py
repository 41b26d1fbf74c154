"""Percentiles: one definition for all that the project reports.

A percentile is the smallest value that so many percent of all values do not exceed: nearest rank, so it is a value
that was observed, and nothing is interpolated.

Percentiles of the time that operations take are over all that began, not over those that completed: the slowest of a
congested fabric are among those that did not.

- One that was cut off, as its load ended while it was under way, would have taken longer than the time it had. It
  counts as one of those that did: its weight goes to all that took longer, in equal parts (Kaplan and Meier,
  "Nonparametric Estimation from Incomplete Observations", 1958; the redistribution to the right of Efron, 1967).
- One that failed or was refused never completed, and ranks after all that did.

If a percentile's rank falls on one without an end, its value is not known: it is at least what is given.

A median of a few numbers, such as those of seeds, of repeats or of steps, is the usual one (of an even count the mean
of both in the middle), not a percentile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabric.metrics import least_name

Numbers = npt.ArrayLike
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Percentile:
    """A completion time in seconds. ``is_known`` False: it is at least this, and nobody knows by how much more."""

    value_s: float
    is_known: bool = True

    def named(self, name: str) -> dict[str, float]:
        """Return it as a metric of this name, ``p99_s``, or of that of its bound, ``p99_at_least_s``."""
        return {name if self.is_known else least_name(name): self.value_s}


def nearest_ranks(values: Numbers, *percents: float) -> list[float]:
    """Return some percentiles, such as 99.9, of values that are all known, shape (n,), in their unit.

    Raises ValueError if there are none.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not ordered.size:
        raise ValueError("no values have no percentiles; check that there are any")
    # Whole hundredths of a percent, for 99.9 % of 1000 is 999.0000000000001 in floating point, the next value.
    return [float(ordered[max(0, -(-round(100 * one) * ordered.size // 10_000) - 1)]) for one in percents]


def percentiles(
    completed_s: Numbers, cut_off_s: Numbers, never_s: Numbers, percents: Sequence[float]
) -> list[Percentile]:
    """Return some percentiles of the time that operations take (see the module's text).

    ``completed_s``: what those took that completed; ``cut_off_s`` and ``never_s``: the time that others had, shape (n,)
    each. Raises ValueError if there are none at all.
    """
    completed, cut_off, never = (np.sort(np.asarray(one, np.float64)) for one in (completed_s, cut_off_s, never_s))
    times = np.concatenate([completed, cut_off])
    is_completed = np.repeat([True, False], [completed.size, cut_off.size])
    order = np.lexsort((~is_completed, times))  # Of equal times, those that completed first.
    times, is_completed = times[order], is_completed[order]
    total = times.size + never.size
    if not total:
        raise ValueError("no operations have no percentiles; check that the phase began any")
    gone = _gone(is_completed, never.size)
    has_rank = np.concatenate([is_completed, np.ones(never.size, bool)])
    longest_s = float(times[-1]) if times.size else 0.0
    found = []
    for wanted in percents:
        reached = np.flatnonzero(has_rank & (gone * 1000 >= wanted * 10 - _ROUNDING))
        place = int(reached[0]) if reached.size else total
        if place < times.size:
            found.append(Percentile(float(times[place])))
        else:
            had_s = float(never[place - times.size]) if place < total else 0.0
            found.append(Percentile(max(longest_s, had_s), is_known=False))
    return found


_ROUNDING = 1e-6
"""Of per mille: ranks are sums and products of fractions."""


def _gone(is_completed: npt.NDArray[np.bool_], never: int) -> Values:
    """Return what part of all operations has ended by each of them, in the order of their times, then by each of those
    that never do: the product-limit estimate."""
    at_risk = is_completed.size + never - np.arange(is_completed.size)
    left = np.cumprod(np.where(is_completed, 1 - 1 / at_risk, 1.0))
    last = left[-1] if left.size else 1.0
    return np.asarray(1 - np.concatenate([left, last * np.arange(never - 1, -1, -1) / max(1, never)]), np.float64)
