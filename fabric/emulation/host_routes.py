"""The NIC by which a host with several sends: pure functions of the fabric.

A program that does not say by which address it speaks sends by the first NIC that reaches the destination. One that
does (``bind``, ``iperf3 -B``), and whatever answers, sends by the NIC of that address: where two NICs of a host reach
the same destination, rules for each source address see to it.
"""

from __future__ import annotations

from collections import defaultdict

from fabric.model.identity import NodeId
from fabric.model.network import ADDRESSES, Fabric, Nic


def routes_by_destination(fabric: Fabric, host: NodeId) -> list[tuple[str, Nic]]:
    """Return networks (``10.1.0.0/16``), each with the NIC by which the host sends there, in order.

    A host with one NIC sends everything by it. Destinations of a /16 that are not all reached by the same NIC have
    routes of their own.
    """
    nics = fabric.nics_of[host]
    if len(nics) == 1:
        return [(str(ADDRESSES), nics[0])]
    blocks: dict[str, dict[str, Nic]] = defaultdict(dict)
    for other in fabric.nics:
        first = next((nic for nic in nics if fabric.reaches(nic, other)), None)
        if first is not None:
            blocks[_block(other.ip)][other.ip] = first
    routes = []
    for block, found in sorted(blocks.items(), key=lambda one: int(one[0].split(".")[1])):
        if len(set(found.values())) == 1:
            routes.append((block, next(iter(found.values()))))
        else:
            routes += [(f"{ip}/32", nic) for ip, nic in found.items()]
    return routes


def goes_by_source(fabric: Fabric, host: NodeId) -> bool:
    """Return whether two of a host's NICs reach the same destination, so that the source address must decide."""
    networks = [fabric.network_of(nic) for nic in fabric.nics_of[host]]
    zones = [nic.zone for nic in fabric.nics_of[host]]
    return len(set(zip(networks, zones, strict=True))) < len(networks)


def _block(ip: str) -> str:
    _, second, *_ = ip.split(".")
    return f"10.{second}.0.0/16"
