"""How far every switch is from a leaf over the links that are up, and which ports lead nearer.

Distances to a destination count levels, not hops, so that all choices of a switch are at equal distance::

    0  its leaf          3  inter-zone switches          4  border leaves of other zones
    1  spines            (with a way into the zone)      5  spines of other zones
    2  leaves of its zone                                6  leaves of other zones

A switch that has lost its regular path is one further than its nearest neighbour, whatever that is: a leaf may then
pass packets between spines. In the destination's zone such ways stay inside the zone as long as there is one. Packets
only ever go to a neighbour that is strictly nearer, so no plan loops.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from fabric.model.graph import networks_of
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Port


class LiveGraph:
    """A fabric's switches and the links between them that are alive: ``ports`` of each that lead to other switches,
    with whom they lead to, and who its ``neighbours`` are."""

    def __init__(self, fabric: Fabric, down: Collection[Link] = ()) -> None:
        self.fabric = fabric
        self._dead = frozenset(port for link in down for port in link.ports)
        self.ports: dict[NodeId, list[tuple[Port, NodeId]]] = {
            switch: [(port, fabric.peer(port).node) for port in fabric.ports_of[switch] if self._joins_switches(port)]
            for switch in fabric.switches
        }
        self.neighbours = {switch: frozenset(peer for _, peer in ports) for switch, ports in self.ports.items()}
        self._known: dict[NodeId, Distances] = {}

    def _joins_switches(self, port: Port) -> bool:
        return self.fabric.peer(port).node.is_switch and self.is_alive(port)

    def is_alive(self, port: Port) -> bool:
        """Whether the link plugged into a port is up."""
        return port not in self._dead

    def is_up(self, switch: NodeId, peer: NodeId) -> bool:
        """Return whether a link from ``switch`` to ``peer`` leads up."""
        levels = self.fabric.levels
        return (levels[switch], switch) < (levels[peer], peer)

    @cached_property
    def levels(self) -> dict[tuple[Role, int | None], list[NodeId]]:
        """The switches of each role and zone."""
        found: dict[tuple[Role, int | None], list[NodeId]] = defaultdict(list)
        for switch in self.fabric.switches:
            found[switch.role, switch.zone].append(switch)
        return found

    def distances(self, leaf: NodeId) -> Distances:
        """Return how far everything is from a leaf."""
        if leaf not in self._known:
            self._known[leaf] = self.new_distances(leaf)
        return self._known[leaf]

    def new_distances(self, leaf: NodeId) -> Distances:
        """Work out how far everything is from a leaf."""
        return Distances.of(self, leaf)

    def parts_of(self, switches: Iterable[NodeId]) -> list[frozenset[NodeId]]:
        """Return the parts into which failures have cut some switches, largest first."""
        return sorted(networks_of(switches, self.neighbours), key=lambda part: (-len(part), min(part)))


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
        in_zone = filled(graph, zone, lambda node: node.zone == leaf.zone)
        return cls(leaf, regular, in_zone, filled(graph, {**regular, **in_zone}, lambda node: True))

    @cached_property
    def is_regular(self) -> bool:
        """Whether no leaf is left to a way that is not regular.

        Only then can switches repair by themselves. An inter-zone switch that has lost all its links into the leaf's
        zone does not count: nobody who has a regular way sends to it, and what still comes it sends back.
        """
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
    levels = {leaf: 0}
    others = [zone for zone in range(graph.fabric.zones) if zone != leaf.zone]

    def add(level: int, role: Role, zones: Iterable[int | None], *below: Collection[NodeId]) -> list[NodeId]:
        """Add the switches of a role and zones that have a link to one of those below."""
        under: set[NodeId] = set().union(*below)
        switches = (switch for zone in zones for switch in graph.levels[role, zone])
        found = [one for one in switches if one not in levels and not graph.neighbours[one].isdisjoint(under)]
        levels.update((switch, level) for switch in found)
        return found

    spines = add(1, Role.SPINE, [leaf.zone], [leaf])
    leaves = add(2, Role.LEAF, [leaf.zone], spines)
    joining = add(3, Role.INTER_ZONE, [None], [leaf], leaves)
    border = add(4, Role.LEAF, others, joining)
    far_spines = add(5, Role.SPINE, others, border)
    add(6, Role.LEAF, others, far_spines)
    return levels


def filled(graph: LiveGraph, known: dict[NodeId, int], may: Callable[[NodeId], bool]) -> dict[NodeId, int]:
    """Return ``known`` distances with those of all others that have a way over switches that it ``may`` take."""
    distances = dict(known)
    missing = [switch for switch in graph.fabric.switches if switch not in known and may(switch)]
    beside = {peer for switch in missing for peer in graph.neighbours[switch] if peer in known}
    edge = [(known[node], node) for node in beside]
    heapq.heapify(edge)
    while edge:
        distance, node = heapq.heappop(edge)
        if distance > distances[node]:
            continue
        for peer in graph.neighbours[node]:
            if may(peer) and distances.get(peer, distance + 2) > distance + 1 and peer not in known:
                distances[peer] = distance + 1
                heapq.heappush(edge, (distance + 1, peer))
    return distances
