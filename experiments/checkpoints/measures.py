"""What the numbers of a run of ``checkpoints`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("step_alone_s", "time of a step without a checkpoint, median", Better.LESS),
    Measure("lost_s", "time that a checkpoint costs training, mean over checkpoints", Better.LESS),
    Measure("met_steps", "steps during which a checkpoint was written"),
    Measure("lost_fraction", "share of training's time that checkpoints cost while they are written", Better.LESS),
    Measure("step_beside_s", "time of a step during which a checkpoint was written, mean", Better.LESS),
    Measure("slowdown", "that time over the one of a step without a checkpoint", Better.LESS),
)
