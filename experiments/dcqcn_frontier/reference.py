"""How near is each point to what lanes without congestion control give?

A point suits a program if it gets what the reference gives, up to a tolerance: of bandwidths at least ``suits``, of the
latency of reads at most 1 / ``suits``. The reference is ``line`` in lanes.

A point that suits both may do so since it hardly acts: thresholds that no queue reaches are not congestion control. One
that works keeps lanes from standing still: at most half as long as without it, in the same queueing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.dcqcn_frontier.cases import HFREDUCE, NO_CONTROL, STORAGE, Alone, Setting
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from fabric.metrics import metric_path
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from runs.study import Found, Outcome, Repeats, over_repeats

ALGBW, READ, P99 = (
    metric_path(job, name) for job, name in ((HFREDUCE, "algbw_Bps"), (STORAGE, "read_Bps"), (STORAGE, "read_p99_s"))
)
SHARES = {"allreduce bandwidth": "algbw_share", "read bandwidth": "read_share", "read p99": "p99_share"}
"""How much of each measure of the reference a point reaches, more being better of each; NaN: that is not known."""
WORST, STALLS = "worst_share", "relative_stalls"
"""The least of them, NaN if one is not known; and for what part of the time without congestion control, in the same
queueing, lanes are stalled."""
MOST_STALLS = 0.5
"""A point works if that is at most so much."""
AnyFound = Found[Setting, DcqcnFrontierConfig]
AnyOutcome = Outcome[Setting]


def together(found: AnyFound) -> list[AnyOutcome]:
    """Return the outcomes of the points at which both programs play."""
    return [one for one in found.outcomes if not isinstance(one.case, Alone)]


def alone_Bps(found: AnyFound) -> tuple[float, float]:  # noqa: N802 - bytes, not bits
    """Return the bandwidths of HFReduce alone and of reads alone."""
    return found.of(f"{HFREDUCE}_alone")[ALGBW], found.of(f"{STORAGE}_alone")[READ]


def without_control(found: AnyFound, queueing: Queueing) -> AnyOutcome | None:
    """Return the outcome without congestion control in a queueing; None if that was not played."""
    wanted = (NO_CONTROL, queueing)
    return next((one for one in together(found) if (one.case.control, one.case.queueing) == wanted), None)


def reference_of(found: AnyFound) -> AnyOutcome | None:
    """Return the outcome without congestion control in lossless lanes; None unless both programs moved data there and
    alone, and the p99 is known."""
    base = without_control(found, Queueing.LOSSLESS_LANES)
    is_whole = base is not None and base[ALGBW] and base[READ] and P99 in base.values and all(alone_Bps(found))
    return base if is_whole else None


def beside_reference(found: AnyFound, one: AnyOutcome) -> Mapping[str, float]:
    """Return how much of the reference a point reaches, and of the stalls without congestion control."""
    line, base = without_control(found, one.case.queueing), reference_of(found)
    if isinstance(one.case, Alone):
        return {}
    stalls = {STALLS: one["stalled_s"] / line["stalled_s"]} if line is not None and line["stalled_s"] else {}
    if base is None:
        return stalls
    shares = [one[ALGBW] / base[ALGBW], one[READ] / base[READ], base[P99] / one[P99] if one[P99] else 1.0]
    return {**stalls, **dict(zip(SHARES.values(), shares, strict=True)), WORST: float(np.min(shares))}


@dataclass(frozen=True)
class Kind(Repeats[Setting]):
    """What came of a congestion control in a queueing, with each of its sets of parameters; ``least``: the share of
    all measures with which one suits both programs."""

    least: float

    @property
    def suiting(self) -> list[AnyOutcome]:
        """Those that suit both programs."""
        return [one for one in self.outcomes if one[WORST] >= self.least]

    @property
    def working(self) -> list[AnyOutcome]:
        """Those of them that work."""
        return [one for one in self.suiting if one[STALLS] <= MOST_STALLS]

    def nearest(self, words: str, works: bool = False) -> AnyOutcome:
        """Return the one whose worst share is best; of equal ones the last by ``words``. ``works``: of those that work,
        if any does."""
        chosen = [one for one in self.outcomes if one[STALLS] <= MOST_STALLS] if works else []
        return max(chosen or self.outcomes, key=lambda one: (np.nan_to_num(one[WORST], nan=-1), one.case.format(words)))


def kinds_of(found: AnyFound, with_dcqcn: bool = False) -> list[Kind]:
    """Return the outcomes of each kind, or of those with DCQCN; none without a reference."""
    points = [one for one in together(found) if one.case.profile or not with_dcqcn]
    groups = over_repeats(points, "{control}, {queueing}") if reference_of(found) else []
    return [Kind(group.outcomes, found.config.suits) for group in groups]


def lanes_do(found: AnyFound) -> bool:
    """Return whether lanes without congestion control give each program its share of what it gets alone."""
    base, lanes = reference_of(found), plan_lanes(found.config.queues, Queueing.LOSSLESS_LANES)
    assert base is not None, "asked only beside one"
    of_hfreduce, of_reads = alone_Bps(found)
    parts = ((base[ALGBW], of_hfreduce, ServiceLevel.HFREDUCE), (base[READ], of_reads, ServiceLevel.STORAGE))
    return all(rate / (alone * lanes.lane_of(level).share) >= found.config.suits for rate, alone, level in parts)


def limiting(one: AnyOutcome) -> str:
    """Return the measure that is not known of a point, or else the one with the least share."""
    return list(SHARES)[int(np.argmin([one[share] for share in SHARES.values()]))]
