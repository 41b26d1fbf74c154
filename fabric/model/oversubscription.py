"""Oversubscription: by how much more can come from below than goes up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port, Tier


def oversubscription_by_tier(fabric: Fabric) -> dict[str, float]:
    """Return the rate that comes from below over the rate that goes up, at the worst switch of each role that has links
    up, by the role's name in lower case, leaves first; of leaves it is that of their NICs."""
    down, up = leaf_rates(fabric, Tier.ACCESS), leaf_rates(fabric, Tier.UPLINK)
    found: dict[str, list[float]] = {Role.LEAF.name.lower(): [down[leaf] / rate for leaf, rate in up.items()]}
    for switch in fabric.switches:
        if switch.role is not Role.LEAF and (above := fabric.uplinks_of(switch)):
            below = [port for port in fabric.ports_of[switch] if _comes_from_below(fabric, port)]
            ratio = _rate_bps(fabric, below) / _rate_bps(fabric, above)
            found.setdefault(switch.role.name.lower(), []).append(ratio)
    return {role: max(ratios) for role, ratios in found.items() if ratios}


def _comes_from_below(fabric: Fabric, port: Port) -> bool:
    return fabric.levels[fabric.peer(port).node] < fabric.levels[port.node]


def _rate_bps(fabric: Fabric, ports: Iterable[Port]) -> int:
    return sum(fabric.link_at[port].rate_bps for port in ports)


def leaf_rates(fabric: Fabric, tier: Tier) -> dict[NodeId, int]:
    """Return the rate of all links of a tier at each leaf that has some, in bit/s."""
    rates: dict[NodeId, int] = defaultdict(int)
    for link in fabric.links_of_tier(tier):
        for port in link.ports:
            if port.node.role is Role.LEAF:
                rates[port.node] += link.rate_bps
    return rates


def oversubscription_words(by_tier: Mapping[str, float]) -> str:
    """Return that of the worst tier in words, and then those of others."""
    if not by_tier:
        return "none: leaves have no uplinks"
    worst = max(by_tier, key=by_tier.__getitem__)
    others = "".join(f"; {value:.3g} : 1 at the worst {role}" for role, value in by_tier.items() if role != worst)
    return f"{by_tier[worst]:.3g} : 1 at the worst {worst}{others}"
