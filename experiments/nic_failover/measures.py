"""What the numbers of a run of ``nic_failover`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("left_fraction", "bandwidth after the cut, over that with all links", Better.MORE),
    Measure(
        "theory_left_fraction", "share of a host's NICs that are left: what bandwidth remains if all carry the same"
    ),
    Measure("again_after_s", "from the cut to when the job goes on", Better.LESS),
)
