"""What the numbers of a run of ``shared_cluster`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("played_s", "time that the job's programs ran in the phase"),
    Measure("slowdown", "speed of the job alone over its speed beside the others", Better.LESS),
)
