"""What steps of a collective come to: medians over rows of the table ``steps``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.measures import Better, Measure
from traffic.collectives.bandwidth import with_bandwidths
from traffic.measures import JobRows

if TYPE_CHECKING:
    import pandas as pd

STEPS = (
    Measure("algbw_Bps", "bytes of a collective over the time of a step, median over steps", Better.MORE),
    Measure("busbw_Bps", "algbw times the factor of nccl-tests for the collective, median over steps", Better.MORE),
    Measure("step_s", "time of a step until its last rank had its result, median over steps", Better.LESS),
    Measure("steps", "steps that ended", Better.MORE),
)


def collective_medians(steps: pd.DataFrame) -> dict[str, float]:
    """Return the medians over rows of ``steps``: algbw and busbw in bytes/s, and how long a step took in seconds."""
    medians = with_bandwidths(steps)[["algbw", "busbw", "time_s"]].median()
    named = {"algbw_Bps": "algbw", "busbw_Bps": "busbw", "step_s": "time_s"}
    return {name: float(medians[column]) for name, column in named.items()}


def of_steps(rows: JobRows) -> dict[str, float]:
    """Return the numbers of a collective: medians over its steps, and how many there were; nothing if none ended."""
    steps = rows.table("steps")
    return {} if steps.empty else {**collective_medians(steps), "steps": float(len(steps))}
