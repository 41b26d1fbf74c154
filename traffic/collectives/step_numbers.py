"""What steps of a collective come to: medians over rows of the table ``steps``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.measures import Better, Measure
from traffic.collectives.bandwidth import with_bandwidths
from traffic.measures import JobRows

if TYPE_CHECKING:
    import pandas as pd

STEPS = (
    Measure(
        "algbw_Bps", "bytes of a collective over the time of a step, median over steps", Better.MORE, is_of_many=True
    ),
    Measure(
        "busbw_Bps",
        "algbw times the factor of nccl-tests for the collective, median over steps",
        Better.MORE,
        is_of_many=True,
    ),
    Measure(
        "step_s", "time of a step until its last rank had its result, median over steps", Better.LESS, is_of_many=True
    ),
    Measure("steps", "steps that ended", Better.MORE),
)
TIME = Measure("size_<bytes>.time_s", "time of a collective of this size, out of place, mean", Better.LESS)
BUSBW = Measure("size_<bytes>.busbw_Bps", "its algbw times the factor of nccl-tests", Better.MORE, is_of_many=True)
IN_PLACE = Measure("size_<bytes>.in_place.time_s", "time of a collective of this size, in place, mean", Better.LESS)


def times_by_size(steps: pd.DataFrame) -> dict[int, float]:
    """Return how many seconds the steps of each size took on average, from the smallest size on, as nccl-tests does."""
    means = (steps["ended_s"] - steps["started_s"]).groupby(steps["size_bytes"]).mean()
    return {int(size): float(time_s) for size, time_s in means.items()}  # type: ignore[call-overload] # A number.


def collective_medians(steps: pd.DataFrame) -> dict[str, float]:
    """Return the medians over rows of ``steps``: algbw and busbw in bytes/s, and how long a step took in seconds."""
    medians = with_bandwidths(steps)[["algbw", "busbw", "time_s"]].median()
    named = {"algbw_Bps": "algbw", "busbw_Bps": "busbw", "step_s": "time_s"}
    return {name: float(medians[column]) for name, column in named.items()}


def collective_numbers(steps: pd.DataFrame) -> dict[str, float]:
    """Return those medians, and how many steps there were; nothing if none ended."""
    return {} if steps.empty else {**collective_medians(steps), "steps": float(len(steps))}


def algbw_in(steps: pd.DataFrame, from_s: float, until_s: float) -> float:
    """Return the bytes per second of steps over their time in a stretch; 0: none lies there.

    A step that reaches over an edge counts by the part of its time inside: where a step takes as long as the stretch,
    none need begin in it.
    """
    overlap_s = (steps["ended_s"].clip(upper=until_s) - steps["started_s"].clip(lower=from_s)).clip(lower=0)
    taken_s = steps["ended_s"] - steps["started_s"]
    counted = float(overlap_s.sum())
    return float((steps["size_bytes"] * overlap_s / taken_s).sum()) / counted if counted else 0.0


def of_steps(rows: JobRows) -> dict[str, float]:
    """Return the numbers of a collective, see :func:`collective_numbers`."""
    return collective_numbers(rows.table("steps"))
