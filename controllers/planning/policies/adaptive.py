"""Adaptive routing: static routes, of which destinations move from a leaf's deepest uplink to its shallowest.

A real adaptive switch decides for every packet, in hardware, by the depth of its own queues. Here the controller
decides some times a second for whole destinations, by the same depths: it reacts to congestion that lasts, not to
bursts, and it reorders packets only at the moment of a move. When queues begin to differ, it first asks the leaf what
it has sent so far, and decides a period later by what it has sent since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from controllers.planning.policies.policy import AdaptiveConfig, Policy
from controllers.planning.routes import is_zoned
from controllers.planning.up_down import uneven_leaves
from fabric.model.network import Fabric


def decide(
    depths: Mapping[int, int],
    ports: Mapping[str, int],
    carried: Mapping[str, int],
    held: Collection[str],
    config: AdaptiveConfig,
) -> dict[str, int]:
    """Return the uplink that each destination to be moved shall take.

    ``depths`` are the bytes waiting at each uplink of a leaf, ``ports`` the uplink of each destination and ``carried``
    the bytes it was sent lately; ``held`` moved too recently. Nothing moves unless the depths differ by the threshold,
    and only what leaves the new uplink with less than the old one had: one flow that fills a link stays.
    """
    deepest = max(depths, key=lambda port: (depths[port], -port))
    shallowest = min(depths, key=lambda port: (depths[port], port))
    if depths[deepest] - depths[shallowest] < config.threshold:
        return {}
    load: Counter[int] = Counter()
    for ip, port in ports.items():
        load[port] += carried.get(ip, 0)
    moves: dict[str, int] = {}
    movable = [ip for ip, port in ports.items() if port == deepest and ip not in held and carried.get(ip, 0) > 0]
    for ip in sorted(movable, key=lambda ip: (-carried[ip], ip)):
        if len(moves) < config.moves and load[shallowest] + carried[ip] < load[deepest]:
            moves[ip] = shallowest
            load[shallowest] += carried[ip]
            load[deepest] -= carried[ip]
    return moves


def _faults(fabric: Fabric) -> Iterator[str]:
    """Yield why a leaf could not move any destination to any uplink."""
    if not is_zoned(fabric) and (uneven := uneven_leaves(fabric)):
        yield f"{uneven[0]} does not reach all it sends up by each of its uplinks"


ADAPTIVE = Policy("adaptive", "moved away from deep queues", decide=decide, faults=_faults)
