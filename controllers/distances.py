"""How far every switch is from a leaf over the links that are alive, and over which ports it comes nearer.

A destination's measure counts levels, not hops, so that what a level's switches choose among is equally far::

    0  its leaf          3  inter-zone switches          4  border leaves of other zones
    1  spines            (with a way into the zone)      5  spines of other zones
    2  leaves of its zone                                6  leaves of other zones

A switch that has lost its regular way is one further than its nearest neighbour, whatever that is: a leaf may then
pass packets between spines. In the destination's zone such ways stay inside the zone as long as there is one. Packets
only ever go to a neighbour that is strictly nearer, so no plan loops.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from fabric.identity import NodeId, Role
from fabric.model import Fabric, Link, Port


class LiveGraph:
    """A fabric's switches and the links between them that are alive."""

    def __init__(self, fabric: Fabric, down: Collection[Link] = ()) -> None:
        self.fabric = fabric
        self.down = frozenset(down)
        self.ports: dict[NodeId, list[tuple[Port, NodeId]]] = {
            switch: [(port, fabric.peer(port).node) for port in fabric.ports_of[switch] if self._joins_switches(port)]
            for switch in fabric.switches
        }
        self._known: dict[NodeId, Distances] = {}

    def _joins_switches(self, port: Port) -> bool:
        return self.fabric.peer(port).node.is_switch and self.is_alive(port)

    def is_alive(self, port: Port) -> bool:
        """Whether the link plugged into a port is up."""
        return self.fabric.link_at[port] not in self.down

    def neighbours(self, switch: NodeId) -> Iterable[NodeId]:
        """Return the switches at the other ends, as often as there are links."""
        return (peer for _, peer in self.ports[switch])

    def distances(self, leaf: NodeId) -> Distances:
        """Return how far everything is from a leaf."""
        if leaf not in self._known:
            self._known[leaf] = Distances.of(self, leaf)
        return self._known[leaf]

    def parts_of(self, switches: Iterable[NodeId]) -> list[set[NodeId]]:
        """Return the parts into which failures have cut some switches, largest first."""
        left = set(switches)
        found = []
        for start in sorted(left):
            if start in left:
                part = self._joined(start, left)
                left -= part
                found.append(part)
        return sorted(found, key=lambda part: (-len(part), min(part)))

    def _joined(self, start: NodeId, among: set[NodeId]) -> set[NodeId]:
        part, edge = {start}, [start]
        while edge:
            for peer in self.neighbours(edge.pop()):
                if peer in among and peer not in part:
                    part.add(peer)
                    edge.append(peer)
        return part


@dataclass(frozen=True)
class Distances:
    """How far each switch is from ``leaf``: ``regular`` by levels, ``in_zone`` within its zone, ``all`` at all.

    Switches without a way are in none.
    """

    leaf: NodeId
    regular: dict[NodeId, int]
    in_zone: dict[NodeId, int]
    all: dict[NodeId, int]

    @classmethod
    def of(cls, graph: LiveGraph, leaf: NodeId) -> Distances:
        """Return the distances from a leaf."""
        regular = _levels(graph, leaf)
        zone = {node: level for node, level in regular.items() if node.zone == leaf.zone}
        in_zone = _filled(graph, zone, lambda node: node.zone == leaf.zone)
        return cls(leaf, regular, in_zone, _filled(graph, {**regular, **in_zone}, lambda node: True))

    @cached_property
    def is_regular(self) -> bool:
        """Whether no leaf and no inter-zone switch is left to a way that is not regular."""
        return all(node in self.regular for node in self.all if node.role is Role.LEAF)

    def nearer(self, graph: LiveGraph, switch: NodeId) -> list[tuple[Port, NodeId]]:
        """Return the live ports of a switch to what is nearer, each with whom it leads to; none if it has no way."""
        if switch in self.regular:
            own = self.regular[switch]
            return [(port, peer) for port, peer in graph.ports[switch] if self.regular.get(peer, own) < own]
        reach = self.in_zone if switch in self.in_zone else self.all
        own = reach.get(switch, 0)
        return [(port, peer) for port, peer in graph.ports[switch] if reach.get(peer) == own - 1]


def _levels(graph: LiveGraph, leaf: NodeId) -> dict[NodeId, int]:
    """Return the level of each switch that has a regular way to ``leaf``."""
    fabric, levels = graph.fabric, {leaf: 0}

    def add(level: int, switches: Iterable[NodeId], below: Callable[[NodeId], bool]) -> None:
        found = [switch for switch in switches if switch not in levels and any(map(below, graph.neighbours(switch)))]
        levels.update((switch, level) for switch in found)

    def at(*wanted: int) -> Callable[[NodeId], bool]:
        return lambda node: levels.get(node) in wanted

    add(1, fabric.with_role(Role.SPINE, leaf.zone), at(0))
    add(2, fabric.with_role(Role.LEAF, leaf.zone), at(1))
    add(3, fabric.with_role(Role.INTER_ZONE), at(0, 2))
    others = [switch for switch in fabric.switches if switch.zone not in (None, leaf.zone)]
    leaves = [switch for switch in others if switch.role is Role.LEAF]
    add(4, leaves, at(3))
    add(5, [switch for switch in others if switch.role is Role.SPINE], at(4))
    add(6, leaves, at(5))
    return levels


def _filled(graph: LiveGraph, known: dict[NodeId, int], may: Callable[[NodeId], bool]) -> dict[NodeId, int]:
    """Return ``known`` distances with those of all others that have a way over switches that it ``may`` take."""
    distances = dict(known)
    edge = [(distance, node) for node, distance in known.items()]
    heapq.heapify(edge)
    while edge:
        distance, node = heapq.heappop(edge)
        if distance > distances[node]:
            continue
        for peer in graph.neighbours(node):
            if may(peer) and distances.get(peer, distance + 2) > distance + 1 and peer not in known:
                distances[peer] = distance + 1
                heapq.heappush(edge, (distance + 1, peer))
    return distances
