"""What the numbers of a run of ``isolation`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("deepest_queue_bytes", "most bytes that a port of a switch had queued in a sample", Better.LESS),
    Measure("slowest_step_s", "time of the slowest step", Better.LESS),
)
