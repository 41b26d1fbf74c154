"""Where the page draws what: a row per level of the graph, hosts under their leaves; for any fabric.

Coordinates: a leaf is 1 wide, y grows upwards. The level of a node is its distance from hosts, as planners count it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.model.identity import node_of_port

HOST_ROLES = ("compute", "storage")
MAX_NAMED_HOSTS = 64
"""NICs up to which each is drawn; beyond, a leaf shows them as one block."""
_ROW_HEIGHT = 1.6
_HOSTS_BELOW = 1.0
_ZONE_GAP = 0.8
Point = tuple[float, float]


@dataclass(frozen=True)
class PageLayout:
    """Where things are. ``of_switch``: by name; ``of_port``: of every port, of NICs beside each other under their leaf.

    ``levels``: of every node, hosts 0; ``grouped``: leaves show one block instead of hosts; ``zones``: from where to
    where each reaches.
    """

    of_switch: Mapping[str, Point]
    of_port: Mapping[str, Point]
    levels: Mapping[str, int]
    grouped: bool
    zones: Mapping[int, tuple[float, float]]


def lay_out(fabric: Mapping[str, Any]) -> PageLayout:
    """Return where to draw the nodes and links of a ``fabric.json``."""
    roles = {str(node["name"]): str(node["role"]) for node in fabric["nodes"]}
    peers = _peers(fabric)
    levels = _levels(roles, peers)
    leaves = [name for name, role in roles.items() if role not in HOST_ROLES and levels[name] == 1]
    zones, columns = _columns(fabric, leaves)
    points = {name: (columns[name], _HOSTS_BELOW) for name in leaves}
    points |= _upper_points(fabric, levels, zones, set(points))
    nics = _nics(fabric, roles)
    of_port = {
        port: points[node] for ports in peers.values() for port in ports if (node := node_of_port(port)) in points
    }
    for switch, hanging in nics.items():
        x, y = points.get(switch, (0.0, 0.0))
        for number, port in enumerate(hanging):
            of_port[port] = (x + 0.86 * ((number + 0.5) / len(hanging) - 0.5), y - _HOSTS_BELOW)
    grouped = sum(map(len, nics.values())) > MAX_NAMED_HOSTS
    return PageLayout(points, of_port, levels, grouped, zones)


def _peers(fabric: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return, by node, its ports with the node at the other end of each."""
    found: dict[str, dict[str, str]] = {str(node["name"]): {} for node in fabric["nodes"]}
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            found[node_of_port(port)][port] = node_of_port(peer)
    return found


def _levels(roles: Mapping[str, str], peers: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Return each node's distance from hosts; what joins zones is above all others, though leaves have links to it."""
    levels = {name: 0 for name, role in roles.items() if role in HOST_ROLES}
    joining = [name for name, role in roles.items() if role == "inter_zone"]
    edge, level = list(levels), 0
    while edge:
        level += 1
        found = dict.fromkeys(peer for node in edge for peer in peers[node].values())
        edge = [peer for peer in found if peer not in levels and peer not in joining]
        levels |= dict.fromkeys(edge, level)
    left = [name for name in roles if name not in levels and name not in joining]
    levels |= dict.fromkeys(left, 1)
    return levels | dict.fromkeys(joining, max(levels.values(), default=0) + 1)


def _columns(
    fabric: Mapping[str, Any], leaves: Sequence[str]
) -> tuple[dict[int, tuple[float, float]], dict[str, float]]:
    """Return from where to where each zone reaches, and the x of each leaf."""
    zone_of = {str(node["name"]): node.get("zone") for node in fabric["nodes"]}
    counts = Counter(_zone(zone_of[name]) for name in leaves)
    spans: dict[int, tuple[float, float]] = {}
    columns: dict[str, float] = {}
    left = 0.0
    for zone in sorted(counts):
        spans[zone] = (left, left + counts[zone])
        of_zone = [name for name in leaves if _zone(zone_of[name]) == zone]
        columns |= {name: left + number + 0.5 for number, name in enumerate(of_zone)}
        left += counts[zone] + _ZONE_GAP
    return spans, columns


def _zone(zone: Any) -> int:
    return -1 if zone is None else int(zone)


def _upper_points(
    fabric: Mapping[str, Any],
    levels: Mapping[str, int],
    zones: Mapping[int, tuple[float, float]],
    placed: set[str],
) -> dict[str, Point]:
    """Return where switches above leaves are: evenly over their zone, or over all if they belong to none."""
    whole = (
        (min(left for left, _ in zones.values()), max(right for _, right in zones.values())) if zones else (0.0, 1.0)
    )
    rows: dict[tuple[int, int], list[str]] = {}
    for node in fabric["nodes"]:
        name = str(node["name"])
        if node["role"] not in HOST_ROLES and name not in placed:
            rows.setdefault((levels[name], _zone(node.get("zone"))), []).append(name)
    points = {}
    for (level, zone), names in rows.items():
        left, right = zones.get(zone, whole)
        if zone not in zones and len(names) < (right - left) / 3:  # A few switches across the middle third.
            left, right = left + (right - left) / 3, right - (right - left) / 3
        for number, name in enumerate(names):
            points[name] = (
                left + (right - left) * (number + 0.5) / len(names),
                _HOSTS_BELOW + _ROW_HEIGHT * (level - 1),
            )
    return points


def _nics(fabric: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts' ports at each switch, compute first."""
    found: dict[str, list[str]] = {}
    for link in fabric["links"]:
        for port, peer in ((link["a"], link["b"]), (link["b"], link["a"])):
            if roles[node_of_port(port)] in HOST_ROLES and roles[node_of_port(peer)] not in HOST_ROLES:
                found.setdefault(node_of_port(peer), []).append(port)
    return {
        switch: sorted(ports, key=lambda port: (roles[node_of_port(port)], port)) for switch, ports in found.items()
    }
