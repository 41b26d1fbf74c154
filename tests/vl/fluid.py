"""DCQCN's fluid model at rest: N flows that share a link evenly, and the queue that marks them as often as it takes.

Zhu et al. (SIGCOMM 2015), equations 5 to 9, as Zhu et al., "ECN or Delay" (CoNEXT 2016), section 3, solve them: all
derivatives are 0 and all flows have the rate C / N. Hyper increase is not in the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from traffic.dcqcn import Parameters


@dataclass(frozen=True)
class FixedPoint:
    """How probable a mark is, what waits in the queue (bytes), and alpha."""

    probability: float
    queue_bytes: float
    alpha: float


def fixed_point(flows: int, rate_bps: float, frame_bytes: int, parameters: Parameters) -> FixedPoint:
    """Return where ``flows`` flows rest on a link; beyond ``pmax`` that is at ``kmax``, above which all is marked."""
    frames_per_s = rate_bps / (8 * frame_bytes * flows)
    low, high = 1e-9, 0.5
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _pull_bps(middle, frames_per_s, frame_bytes, parameters) > 0 else (low, middle)
    marking = parameters.marking
    alpha = 1 - (1 - low) ** (parameters.alpha_period_s * frames_per_s)
    waiting = marking.kmin + min(1.0, low / marking.pmax) * (marking.kmax - marking.kmin)
    return FixedPoint(low, waiting, alpha)


def _pull_bps(probability: float, frames_per_s: float, frame_bytes: int, parameters: Parameters) -> float:
    """Return by how much more the target rises in a second than it is lowered, at the gap between target and rate which
    keeps the rate where it is."""
    kept = 1 - probability
    interval_s, fast = parameters.cnp_interval_s, parameters.fast_stages
    cut = (1 - kept ** (interval_s * frames_per_s)) / interval_s
    alpha = 1 - kept ** (parameters.alpha_period_s * frames_per_s)
    stages = [parameters.increase_period_s * frames_per_s, parameters.increase_bytes / frame_bytes]
    per_s = [frames_per_s * probability / (kept**-frames - 1) for frames in stages]
    rate_bps = frames_per_s * 8 * frame_bytes
    gap_bps = rate_bps * alpha * cut / sum(per_s)
    steps_per_s = sum(kept ** (fast * frames) * often for frames, often in zip(stages, per_s, strict=True))
    return float(parameters.additive_step_bps * steps_per_s - gap_bps * cut)
