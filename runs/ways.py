"""The paths of flows (lanes of ports) by the routes of a phase, also while adaptive routing moves them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from controllers.client import ControllerEvent
from controllers.planning.paths import all_nics_for, planned_paths
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import Moves
from controllers.routing import Routing
from fabric.delivered import Flow
from fabric.errors import FabricError, UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.inside import cpu_of, to_cpu, to_gpu
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric, Link, Nic, Port
from fabric.stalls.congestion_trees import PortLane
from fabric.stalls.victims import Way
from runs.plans import planned


@dataclass(frozen=True)
class Moved:
    """Adaptive routing's decision at a time that a leaf sends what is for an IP address up by another port."""

    at_s: float
    leaf: NodeId
    ip: str
    port: int


def moves_in(events: Iterable[ControllerEvent], origin: float) -> tuple[Moved, ...]:
    """Return all moves among what happened in a controller, their times in seconds since ``origin``."""
    return tuple(
        Moved(event.at_s - origin, NodeId.parse(leaf), ip, port)
        for event in events
        if event.kind == "moved"
        for leaf, ip, port in event.details["moves"]
    )


@dataclass(frozen=True)
class WayFinder:
    """The ways of flows by a routing policy, with its moves so far, and the lanes of a queueing.

    A flow that hashes decide over may take every way that they may choose. Detours round failed links are not followed.
    """

    fabric: Fabric
    lanes: LanePlan
    routing: Routing
    moves: tuple[Moved, ...] = ()

    def ways(self, flow: Flow, times_s: Sequence[float]) -> list[tuple[Way, ...]]:
        """Return every way that a flow's packets may take at each time. What acknowledges them goes back, and is no
        part of it."""
        made = [bisect_right(self._moved_s, at_s) for at_s in times_s]
        ways = {moves: self._ways(flow, moves) for moves in set(made)}
        return [ways[moves] for moves in made]

    @cached_property
    def _moved_s(self) -> list[float]:
        return [move.at_s for move in self.moves]

    @cached_property
    def _plan(self) -> RoutePlan:
        """The plan that flows begin with, before any moves."""
        return planned(self.fabric, Routing(policy=self.routing.policy))

    def links(self, flow: Flow, from_s: float, until_s: float) -> frozenset[Link]:
        """Return the links that packets of a flow, and what acknowledges them, may cross between two times, by
        whichever NICs its hosts may use; all links if that cannot be told."""
        first, last = bisect_right(self._moved_s, from_s), bisect_right(self._moved_s, until_s)
        if (flow, first, last) not in self._links:
            both = (flow, Flow(flow.service_level, flow.peer, flow.host))
            try:
                ports = {port for moves in range(first, last + 1) for way in both for port in self._ports(way, moves)}
            except (FabricError, ValueError):  # An end is not a host of the fabric, or a way is not in the plan.
                ports = {port for port, _ in self.fabric.every_directed_port()}
            self._links[flow, first, last] = frozenset(map(self.fabric.link_plugged_into, ports))
        return self._links[flow, first, last]

    @cached_property
    def _links(self) -> dict[tuple[Flow, int, int], frozenset[Link]]:
        return {}

    def _ports(self, flow: Flow, moves: int) -> Iterator[Port]:
        """Yield the ports on all ways of a flow after so many moves, by each rail on which its hosts may talk."""
        moved: Moves = {(move.leaf, move.ip): move.port for move in self.moves[:moves]}
        for of_part in part_ports(self.fabric, flow):
            yield from of_part
        ends = [NodeId.parse(name) for name in (flow.host, flow.peer)]
        source, sink = (self.fabric.host_named(end.host.name) for end in ends)
        if source == sink:
            return
        with suppress(UsageError):  # Of no network have both a NIC.
            yield from self._on_ways(nics_of_flow(self.fabric, flow), moved)
        if not any(end.role is Role.GPU for end in ends):
            rails = (self.fabric.nic_pair(source, sink, nic.port.number) for nic in self.fabric.nics_of[source])
            yield from self._on_ways([pair for pair in rails if pair is not None], moved)

    def _on_ways(self, nics: Iterable[tuple[Nic, Nic]], moved: Moves) -> Iterator[Port]:
        for pair in nics:
            for path, _ in planned_paths(self._plan, self.fabric, *pair, moved):
                yield from path

    def _ways(self, flow: Flow, moves: int) -> tuple[Way, ...]:
        """Return the ways of a flow after so many moves."""
        lane = self.lanes.lane_of_label(flow.service_level).name
        moved: Moves = {(move.leaf, move.ip): move.port for move in self.moves[:moves]}
        out, into = part_ports(self.fabric, flow)
        if NodeId.parse(flow.host).host == NodeId.parse(flow.peer).host:
            return (tuple(PortLane(str(port), lane) for port in (*out, *into)),)
        return tuple(
            tuple(PortLane(str(port), lane) for port in (*out, *path, *into))
            for nics in nics_of_flow(self.fabric, flow)
            for path, _ in planned_paths(self._plan, self.fabric, *nics, moved)
        )


def part_ports(fabric: Fabric, flow: Flow) -> tuple[list[Port], list[Port]]:
    """Return the ports by which a flow leaves a part of its node and comes to one of another; none of points."""
    source, sink = (_part(fabric, name) for name in (flow.host, flow.peer))
    out = [] if source is None else [Port(source, 0)]
    if sink is None:
        return out, []
    spot = to_gpu(sink.host, sink.place) if sink.role is Role.GPU else to_cpu(sink.host)
    return out, [Port(*spot)]


def _part(fabric: Fabric, name: str) -> NodeId | None:
    """Return the part of a node that a flow begins or ends in; without saying more, it is the CPU."""
    node = NodeId.parse(name)
    if node.is_inside:
        return node
    return cpu_of(node) if fabric.parts_of(node) else None


def nics_of_flow(fabric: Fabric, flow: Flow) -> list[tuple[Nic, Nic]]:
    """Return the NICs at either end of a flow: storage nodes talk to each other in all of their zones."""
    ends = [NodeId.parse(name) for name in (flow.host, flow.peer)]
    source, sink = (fabric.host_named(end.host.name) for end in ends)
    if any(end.role is Role.GPU for end in ends):
        first, second = (_nic_of(fabric, end) for end in ends)
        return [(first, second)]
    if source.role is not sink.role or source.role is not Role.STORAGE:
        return all_nics_for(fabric, source, sink)
    nics = {nic.zone: nic for nic in reversed(fabric.nics_of[source])}
    in_zones = [(nic, fabric.nic_in_zone(sink, zone)) for zone, nic in sorted(nics.items())]
    return [(nic, peer) for nic, peer in in_zones if peer is not None]


def _nic_of(fabric: Fabric, end: NodeId) -> Nic:
    """Return the NIC by which a part speaks to other nodes."""
    nics = fabric.nics_of[end.host]
    return nics[fabric.inside.nic_of_gpu[end.place]] if fabric.inside and end.role is Role.GPU else nics[0]
