"""What a failure costs a job that begins again: five parts, whichever source its moments are from.

::

    steps of a checkpoint   more steps   failure   told to stop   no rank left   nodes given   ranks have met
    |<------- lost ------------------->|<detection>|<--- stop --->|<--- wait ---->|<-- start -->|

They are all of the time from the last step that a checkpoint kept until steps are made again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostParts:
    """The parts, in seconds; NaN from one on that never ended."""

    lost_s: float
    detection_s: float
    stop_s: float
    wait_s: float
    start_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.lost_s + self.detection_s + self.stop_s + self.wait_s + self.start_s


def cost_parts(
    kept_s: float, failed_s: float, told_s: float, left_s: float, given_s: float, *, met_s: float | None = None
) -> CostParts:
    """Return the parts by their moments, all by one clock.

    ``kept_s``: when the last step was complete that a checkpoint kept. A job may keep steps after the failure, as where
    rank 0 is elsewhere: then none is lost, and detection counts from there. ``met_s``: when ranks had met; None where
    no source knows: then they count as such once they have their nodes.
    """
    lost_s, detection_s = max(0.0, failed_s - kept_s), told_s - max(failed_s, kept_s)
    start_s = 0.0 if met_s is None else met_s - given_s
    return CostParts(lost_s, detection_s, left_s - told_s, given_s - left_s, start_s)
