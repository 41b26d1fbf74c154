"""What it cost that something failed which all nodes share: of the times of steps and batches. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.simulation.measured import SpineCost
from fabric.errors import TrafficError

SPINE, STORAGE_LOSS = "spine", "storage_loss"
"""The phases."""
WAITS_S = 0.01
"""A batch that was there by then made nobody wait: it is the time of a read from another batch's end."""


def spine_cost(steps: Sequence[tuple[float, float]], failed_s: float, spines: int, time_s: float) -> SpineCost:
    """Return what a spine's loss cost, from the steps' begins and ends: how much longer the step took in which it was
    lost, and how many times as long those did that began after. Raises TrafficError if there are none of a kind."""
    before = [ended - began for began, ended in steps if ended <= failed_s]
    during = [ended - began for began, ended in steps if began < failed_s < ended]
    after = [ended - began for began, ended in steps if began >= failed_s]
    if not before or not after:
        raise TrafficError(
            f"{SPINE}: {len(before)} steps before the failure and {len(after)} after it; raise spine.time "
            f"({time_s:g} s)"
        )
    usual = statistics.median(before)
    stall_s = max((one - usual for one in during), default=0.0)
    slow = statistics.median(after) / usual
    return SpineCost(spines=spines, stall=max(0.0, stall_s), slow_communication=max(1.0, slow))


# A storage node ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StorageLoss:
    """What a storage node's loss and its return cost a training that reads: how long at least one node waited for its
    batch meanwhile. ``failed_s``, ``out_s``, ``back_s`` and ``whole_s``: when it fell silent, no chain counted on it,
    it was back, and all targets served again, in seconds of the run; ``resync_bytes``: what it was sent."""

    lost_s: float
    resync_s: float
    failed_s: float
    out_s: float
    back_s: float
    whole_s: float
    resync_bytes: int
    failed_reads: int


def waited_s(waits: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float:
    """Return for how long of a time at least one node waited: nodes of a training wait for each other in each step. A
    wait is from when a batch was wanted until it was there; very short ones are none."""
    total_s, until_s = 0.0, from_s
    for began_s, ended_s in sorted(waits):
        if ended_s - began_s < WAITS_S:
            continue
        begin_s, end_s = max(began_s, until_s), min(ended_s, to_s)
        if end_s > begin_s:
            total_s, until_s = total_s + end_s - begin_s, end_s
    return total_s
