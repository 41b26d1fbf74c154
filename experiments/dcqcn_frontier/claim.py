"""Whether the paper's claim holds: what each point gets, beside what lanes without congestion control give. Pure.

A point suits a program if it gets what the reference gives, up to a tolerance: of bandwidths at least ``suits``, of the
latency of reads at most 1 / ``suits``. The reference is ``line`` in lanes.

A point that suits both may do so since it hardly acts: thresholds that no queue reaches are not congestion control. One
that works keeps lanes from standing still: at most half as long as without it, in the same queueing.

The claim holds in a queueing if no point with DCQCN suits both programs and works, and the reference gives each program
its share of what it gets alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MEASURES = ("allreduce bandwidth", "read bandwidth", "read p99")
Shares = tuple[float, float, float | None]
"""How much of each measure of a reference something reaches; None: that is not known."""


WORKS = 0.5
"""A set of parameters works if lanes are stalled for at most this part of the time for which they are without it."""


@dataclass(frozen=True)
class Got:
    """What the two programs get in a phase: bytes per second, and seconds. Without ``p99_is_known`` the latter is the
    least that it can be, as reads failed, or 0, as none began; then nobody knows its share of a reference."""

    algbw_Bps: float  # noqa: N815 - bytes, not bits
    read_Bps: float  # noqa: N815
    read_p99_s: float
    p99_is_known: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether both programs got something, and the p99 is known: what others can be compared with."""
        return bool(self.algbw_Bps and self.read_Bps and self.p99_is_known)

    def shares(self, reference: Got) -> Shares:
        """Return how much of each measure of a reference it reaches, more being better of each."""
        return (
            self.algbw_Bps / reference.algbw_Bps,
            self.read_Bps / reference.read_Bps,
            self._share_of_p99(reference),
        )

    def _share_of_p99(self, reference: Got) -> float | None:
        if not (self.p99_is_known and reference.p99_is_known):
            return None
        return reference.read_p99_s / self.read_p99_s if self.read_p99_s else 1.0

    def suits(self, reference: Got, least: float) -> bool:
        """Return whether it reaches ``least`` of every measure of a reference; what is not known does not."""
        share = worst(self.shares(reference))
        return share is not None and share >= least

    def is_beaten_by(self, other: Got) -> bool:
        """Return whether another is as good in both bandwidths, and better in one."""
        mine, others = (self.algbw_Bps, self.read_Bps), (other.algbw_Bps, other.read_Bps)
        return mine != others and all(a <= b for a, b in zip(mine, others, strict=True))


def worst(shares: Shares) -> float | None:
    """Return the least share; None if one of them is not known."""
    known = [share for share in shares if share is not None]
    return min(known) if len(known) == len(shares) else None


def limiting(shares: Shares) -> str:
    """Return the measure that is not known, or else the one with the least share."""
    return MEASURES[shares.index(worst(shares))]


def nearest_of(shares: Mapping[str, Shares]) -> str:
    """Return the name whose worst share is best; those in which one is not known come last."""

    def rank(name: str) -> tuple[float, str]:
        share = worst(shares[name])
        return (-1.0 if share is None else share, name)

    return max(shares, key=rank)


def frontier(found: Mapping[str, Got]) -> tuple[str, ...]:
    """Return those that no other beats in both bandwidths, by read bandwidth."""
    best = [name for name, one in found.items() if not any(one.is_beaten_by(other) for other in found.values())]
    return tuple(sorted(best, key=lambda name: (found[name].read_Bps, name)))


@dataclass(frozen=True)
class Claim:
    """What comes of the claim in a queueing. ``points``: how many points have DCQCN; ``suiting``: those that suit both
    programs, ``working`` those of them that work; ``nearest``: of all that work, or of all if none does, the point
    whose worst measure is best, with its shares; ``reference_shares``: what of its part of what it gets alone each
    program has in the reference."""

    points: int
    suiting: tuple[str, ...]
    working: tuple[str, ...]
    nearest: str
    nearest_shares: Shares
    reference_shares: tuple[float, float]
    least: float

    @property
    def lanes_do(self) -> bool:
        """Whether lanes without congestion control give each program its share."""
        return min(self.reference_shares) >= self.least

    @property
    def holds(self) -> bool:
        """Whether no parameters suit, and lanes without them do."""
        return not self.working and self.lanes_do

    @property
    def limiting(self) -> str:
        """The measure in which the nearest point is furthest behind."""
        return limiting(self.nearest_shares)


def judge(
    with_dcqcn: Mapping[str, Got],
    stalls: Mapping[str, float],
    reference: Got,
    alone: tuple[float, float],
    lanes: Sequence[float],
    least: float,
) -> Claim:
    """Return what comes of the claim, by the points of a queueing.

    ``stalls``: of each point, for what part of the time without congestion control, in the same queueing, lanes are
    stalled; ``reference`` is whole; ``alone``: the bandwidths of HFReduce and of reads without the other, in bytes per
    second, above 0; ``lanes``: the share of a link that the lane of each has while both are full.
    """
    shares = {name: one.shares(reference) for name, one in with_dcqcn.items()}
    acting = [name for name in shares if stalls[name] <= WORKS]
    nearest = nearest_of({name: shares[name] for name in acting or shares})
    given = (reference.algbw_Bps / (alone[0] * lanes[0]), reference.read_Bps / (alone[1] * lanes[1]))
    suiting = tuple(name for name, one in with_dcqcn.items() if one.suits(reference, least))
    working = tuple(name for name in suiting if name in acting)
    return Claim(len(with_dcqcn), suiting, working, nearest, shares[nearest], given, least)
