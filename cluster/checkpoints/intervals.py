"""How often to write a checkpoint: closed forms, for failures that come at random with a mean time between them.

Names are those of the papers: ``stall_s`` is how long steps stand still for a checkpoint (C, delta), ``mtbf_s`` the
mean time between failures of the job (M), ``restart_s`` what a failure costs until steps go on from a checkpoint (R).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def youngs_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Return Young's first-order optimum (CACM 1974): sqrt(2 C M)."""
    return math.sqrt(2 * stall_s * mtbf_s)


def dalys_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order optimum (FGCS 2006, equation 37): steps between two checkpoints; M itself where a
    checkpoint takes 2 M or more."""
    if stall_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stall_s / (2 * mtbf_s)
    return math.sqrt(2 * stall_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s


def availability_interval_s(stall_s: float, fault_s: float, restart_s: float) -> float:
    """Return the interval with the highest availability by arXiv 2410.18124: Ts + sqrt(2 (Tf + Tr) Ts + Ts^2), where Tf
    is the time between faults and Tr that of a restart; the checkpoint itself is in it."""
    return stall_s + math.sqrt(2 * (fault_s + restart_s) * stall_s + stall_s**2)


def expected_slowdown(interval_s: float, stall_s: float, mtbf_s: float, restart_s: float) -> float:
    """Return how many times its work a job takes on average, with checkpoints every ``interval_s`` of work: Daly's
    complete model, in which a restart may fail, too. Infinite where it would take longer than numbers go."""
    exponent = (interval_s + stall_s) / mtbf_s
    if restart_s / mtbf_s + exponent > 700:
        return math.inf
    return mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent) / interval_s


def stall_for(interval_s: float, mtbf_s: float) -> float:
    """Return the stall for which an interval is Young's optimum, in seconds."""
    return interval_s**2 / (2 * mtbf_s)


@dataclass(frozen=True)
class IntervalCost:
    """What an interval costs: the part of the time that is not a kept step."""

    interval_s: float
    wasted: float


def sweep(intervals_s: Sequence[float], stall_s: float, mtbf_s: float, restart_s: float) -> tuple[IntervalCost, ...]:
    """Return what each interval costs on average."""
    return tuple(IntervalCost(one, 1 - 1 / expected_slowdown(one, stall_s, mtbf_s, restart_s)) for one in intervals_s)
