"""Max-min fair rates of flows that share links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fabric.model.network import Fabric, Port


def max_min_bps(fabric: Fabric, paths: Sequence[Sequence[Port]]) -> list[float]:
    """Return what each flow has of its links, in bit/s with headers, when all send at once and share every link max-min
    fairly.

    Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all rise together; who meets a full link stays.
    """
    left = {port: float(fabric.link_at[port].rate_bps) for path in paths for port in path}
    rates = [0.0] * len(paths)
    rising = set(range(len(paths)))
    while rising:
        users = Counter(port for flow in rising for port in paths[flow])
        step = min(left[port] / count for port, count in users.items())
        for port, count in users.items():
            left[port] -= step * count
        full = {port for port in users if left[port] <= 1e-9 * fabric.link_at[port].rate_bps}
        for flow in rising:
            rates[flow] += step
        rising = {flow for flow in rising if full.isdisjoint(paths[flow])}
    return rates
