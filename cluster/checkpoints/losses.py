"""What checkpoints cost training on the same nodes: steps that go on beside them, and those that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from fabric.measures import Better, Measure

if TYPE_CHECKING:
    import pandas as pd

Spans = Sequence[tuple[float, float]]
"""From when to when, in seconds of the run."""
LOSSES = (
    Measure("step_alone_s", "time of a step without a checkpoint, median", Better.LESS, is_of_many=True),
    Measure("lost_s", "time that a checkpoint costs training, mean over checkpoints", Better.LESS),
    Measure("met_steps", "steps during which a checkpoint was written"),
    Measure("lost_fraction", "share of training's time that checkpoints cost while they are written", Better.LESS),
    Measure("step_beside_s", "time of a step during which a checkpoint was written, mean", Better.LESS),
    Measure("slowdown", "that time over the one of a step without a checkpoint", Better.LESS),
)


def spans(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return from when to when all did each step, or each checkpoint."""
    found = rows.groupby("step").agg({"started_s": "min", "ended_s": "max"})
    return [*zip(found["started_s"].tolist(), found["ended_s"].tolist(), strict=True)]


def losses(step_s: float, steps: Spans, written: Spans) -> dict[str, float]:
    """Return the time that steps lose to checkpoints: of each step against ``step_s``, a step alone, and of all steps
    as a fraction of the time in which checkpoints are written."""
    met_s = [end - start for start, end in steps if any(start < until and end > since for since, until in written)]
    lost_s = sum(one - step_s for one in met_s) / max(1, len(written))
    written_s = sum(until - since for since, until in written)
    found = {"step_alone_s": step_s, "lost_s": lost_s, "met_steps": float(len(met_s))}
    found["lost_fraction"] = max(lost_s, 0.0) * len(written) / written_s if written_s else 0.0
    return {**found, "step_beside_s": mean(met_s), "slowdown": mean(met_s) / step_s} if met_s else found


def gaps(steps: Spans, written: Spans) -> list[float]:
    """Return from the end of the last step before each checkpoint to the start of the first one after it; nothing of
    one before or behind which there is none."""
    found = []
    for since, until in written:
        before = [end for _, end in steps if end <= since]
        after = [start for start, _ in steps if start >= until]
        if before and after:
            found.append(min(after) - max(before))
    return found
