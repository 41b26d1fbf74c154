"""The rates that TCP flows should reach on a fabric in order: alone on their paths, and sharing links fairly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.validation.rounds import Path
from controllers.planning.fairness import max_min_bps
from fabric.model.network import Fabric
from traffic.metrics import payload_fraction


def goodput_bps(fabric: Fabric, path: Path) -> float:
    """Return what one flow that has its path to itself delivers: the slowest link's rate, less headers."""
    return min(fabric.link_at[port].rate_bps for port in path) * payload_fraction(fabric.mtu_bytes)


def fair_goodputs_bps(fabric: Fabric, paths: Sequence[Path]) -> list[float]:
    """Return what each flow delivers when all send at once and share every link max-min fairly."""
    return [rate * payload_fraction(fabric.mtu_bytes) for rate in max_min_bps(fabric, paths)]


def busiest_flows(paths: Sequence[Path]) -> int:
    """Return how many flows the busiest link carries."""
    return max(Counter(port for path in paths for port in path).values())
