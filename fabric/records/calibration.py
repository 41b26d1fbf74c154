"""How fast a kind of link is, and what its lanes get."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinkCalibration:
    """A kind of link, measured at one port: rates in bit/s, ``shares`` as fractions of the link by lane."""

    kind: str
    port: str
    rate_bps: int
    lane_alone_bps: float
    all_lanes_bps: float
    shares: dict[str, float]
    promised_shares: dict[str, float]

    @property
    def rate_error(self) -> float:
        """How far a lane alone is from the link's rate, as a fraction."""
        return self.lane_alone_bps / self.rate_bps - 1

    @property
    def worst_share_error(self) -> float:
        """How far the worst lane is from its share, as a fraction of the link."""
        return max(abs(self.shares[lane] - promised) for lane, promised in self.promised_shares.items())
