"""What runs of different seeds say together: the median of a number, and an interval for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
LEAST_FOR_CONFIDENCE = 6
"""Of fewer values, not even all of them span an interval of :data:`CONFIDENCE`: the true median lies outside the least
and the largest of n values with a probability of 2 / 2^n."""
_RESAMPLES = 9_999
_BATCH = 500
_SEED = 1
"""So that the same runs give the same interval."""


@dataclass(frozen=True)
class Estimate:
    """A number over runs: ``values`` of them have it. ``low`` and ``high``: the 95 % interval of the median by the
    percentile bootstrap; None if there is one value."""

    median: float
    low: float | None
    high: float | None
    values: int


def estimate(values: Sequence[float]) -> Estimate:
    """Return what values say together. Raises ValueError if there are none."""
    if not len(values):
        raise ValueError("no values: a median needs at least one")
    return estimate_columns(np.asarray(values, dtype=float)[:, np.newaxis])[0]


def is_median_known(values: Sequence[float], are_known: Sequence[bool]) -> bool:
    """Return whether the median over runs is known, though some of them know only the least that their values can be:
    it is if it stays the same however large those are."""
    largest = [value if is_known else np.inf for value, is_known in zip(values, are_known, strict=True)]
    return bool(np.median(values) == np.median(largest))


def estimate_columns(table: npt.NDArray[np.float64]) -> list[Estimate]:
    """Return what each column of a table (runs x numbers, none of them missing) says over its rows, of which there is
    one or more."""
    count = len(table)
    medians = np.median(table, axis=0)
    if count == 1:
        return [Estimate(float(median), None, None, 1) for median in medians]
    from scipy.stats import bootstrap  # It takes a second to load.

    interval = bootstrap(
        (table,),
        np.median,
        axis=0,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        batch=_BATCH,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return [
        Estimate(float(median), float(low), float(high), count)
        for median, low, high in zip(medians, interval.low, interval.high, strict=True)
    ]
