"""The plan for a fabric as it is now: its policy's routes over the links that are alive, and its local repair.

Pure functions. With no link down the static policy gives the static routes. With links down a destination keeps its
planned port wherever that still leads nearer; the others go to the port that carries least. Whoever has no way to a
destination drops its packets, at the first switch, by a rule that counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from controllers.detours import Detours
from controllers.distances import Distances, LiveGraph
from controllers.ecmp import hashing_of
from controllers.plan import FlowRule, Group, Hashing, Parts, Priority, Purpose, RoutePlan, table_miss
from controllers.routes import STORAGE_PREFIX, plan_static_routes
from controllers.routing import Policy, Repair, Routing
from fabric.identity import NodeId, Role
from fabric.model import Fabric, Link, Nic

Moves = Mapping[tuple[NodeId, str], int]
"""The uplink that adaptive routing has chosen for a leaf and a destination's address, where it is not the planned."""
_PURPOSES = {
    (Role.LEAF, Role.SPINE): Purpose.UP,
    (Role.LEAF, Role.INTER_ZONE): Purpose.LEAVE_ZONE,
    (Role.SPINE, Role.LEAF): Purpose.DOWN,
    (Role.INTER_ZONE, Role.LEAF): Purpose.ENTER_ZONE,
}
_LAST_HOPS = (Purpose.DELIVER, Purpose.LEAVE_ZONE)


def plan_routes(fabric: Fabric, routing: Routing, down: Collection[Link] = (), moves: Moves | None = None) -> RoutePlan:
    """Return the plan of a policy for a fabric of which some links are down.

    Raises TopologyError if the fabric is wrong as wired: failures are no fault of it.
    """
    static = _static_plan(fabric)
    cuts = cuts_of(fabric, down)
    waits = routing.repair is Repair.WAIT
    if waits and routing.policy is Policy.STATIC:
        return replace(static, cuts=cuts)
    planner = _Planner(fabric, routing, () if waits else down, moves or {}, static)
    rules = list(planner.rules())
    groups = planner.detours.groups if planner.detours else ()
    return RoutePlan.of(routing.policy.value, static.names, rules, groups, cuts)


@lru_cache(maxsize=4)
def _static_plan(fabric: Fabric) -> RoutePlan:
    return plan_static_routes(fabric)


class _Planner:
    """One plan in the making."""

    def __init__(
        self, fabric: Fabric, routing: Routing, down: Collection[Link], moves: Moves, static: RoutePlan
    ) -> None:
        self.fabric = fabric
        self.routing = routing
        self.moves = moves
        self.static = static
        self.graph = LiveGraph(fabric, down)
        self.detours = Detours(fabric) if routing.repair is Repair.FAST_FAILOVER else None
        self._nearer: dict[tuple[NodeId, NodeId], tuple[int, ...]] = {}
        self.peer_roles = {
            switch: {port.number: fabric.peer(port).node.role for port in fabric.ports_of[switch]}
            for switch in fabric.switches
        }

    def rules(self) -> Iterator[FlowRule]:
        """Yield every rule of every switch."""
        for switch in self.fabric.switches:
            yield table_miss(switch.dpid)
            yield from (rule for rule in self.static.rules[switch.dpid] if rule.purpose == Purpose.STORAGE_GUARD)
            yield from self._routes(switch)
        if self.detours is not None:
            yield from self.detours.rules()

    # One switch

    def _routes(self, switch: NodeId) -> Iterator[FlowRule]:
        planned = [rule for rule in self.static.rules[switch.dpid] if rule.outputs]
        choices = {_ip(rule): self._choices(switch, rule) for rule in planned}
        ports = self._chosen(switch, planned, choices)
        sets: set[tuple[tuple[int, ...], bool]] = set()
        for rule in planned:
            ip = _ip(rule)
            if ip not in ports:
                yield self._no_way(switch, rule)
                continue
            several = choices[ip] if self.routing.policy is Policy.ECMP else ()
            if len(several) > 1:
                sets.add((several, self._leaves_zone(switch, ip)))
            yield from self._ways_out(switch, rule, ports[ip], several)
        for ways, leaves_zone in sorted(sets):
            yield from self._ways(switch, ways, leaves_zone)

    def _choices(self, switch: NodeId, rule: FlowRule) -> tuple[int, ...]:
        """Return the live ports by which a destination comes nearer."""
        nic = self.fabric.nic_at_ip[_ip(rule)]
        if not self.graph.is_alive(nic.port):
            return ()
        distances = self._distances(nic)
        if distances.leaf == switch:
            return rule.outputs
        if _is_storage(nic) and switch not in distances.in_zone:
            return ()
        place = switch, distances.leaf
        if place not in self._nearer:
            self._nearer[place] = tuple(sorted(port.number for port, _ in distances.nearer(self.graph, switch)))
        return self._nearer[place]

    def _distances(self, nic: Nic) -> Distances:
        return self.graph.distances(self.fabric.leaf_of(nic))

    def _chosen(
        self, switch: NodeId, planned: list[FlowRule], choices: Mapping[str, tuple[int, ...]]
    ) -> dict[str, int]:
        """Return a port for each destination that has one: the planned where it may be, else the least loaded."""
        wanted = {_ip(rule): self.moves.get((switch, _ip(rule)), rule.outputs[0]) for rule in planned}
        planned_port = {_ip(rule): rule.outputs[0] for rule in planned}
        chosen = {}
        for ip, port in wanted.items():
            if port in choices[ip]:
                chosen[ip] = port
            elif planned_port[ip] in choices[ip]:
                chosen[ip] = planned_port[ip]
        load = Counter(chosen.values())
        for ip, ports in choices.items():
            if ip not in chosen and ports:
                chosen[ip] = min(ports, key=lambda port: (load[port], port))
                load[chosen[ip]] += 1
        return chosen

    # One destination at one switch

    def _ways_out(self, switch: NodeId, rule: FlowRule, port: int, several: tuple[int, ...]) -> Iterator[FlowRule]:
        ip = _ip(rule)
        nic = self.fabric.nic_at_ip[ip]
        distances = self._distances(nic)
        role = self.peer_roles[switch][port]
        purpose = _PURPOSES.get((switch.role, role), Purpose.DELIVER)
        distance = distances.all[switch] + 1
        if purpose == Purpose.LEAVE_ZONE and distances.leaf.zone == switch.zone:
            # A way through another zone: for computes only.
            yield FlowRule(switch.dpid, Priority.GUARD, Purpose.STORAGE_GUARD, ip, STORAGE_PREFIX)
        if purpose != Purpose.DELIVER and self.detours is not None and distances.is_regular:
            yield self._protected(switch, rule, port, several, purpose, distance)
        else:
            several = several if self.detours is None else ()
            priority = self._priority(purpose, plain=purpose != Purpose.DELIVER)
            if len(several) > 1:
                hashing = self._hashing(switch, several, self._leaves_zone(switch, ip))
                yield FlowRule(switch.dpid, priority, purpose, ip, hashing=hashing, distance=distance)
            else:
                yield FlowRule(switch.dpid, priority, purpose, ip, outputs=(port,), distance=distance)

    def _protected(
        self, switch: NodeId, rule: FlowRule, port: int, several: tuple[int, ...], purpose: str, distance: int
    ) -> FlowRule:
        """Return a destination's rule with local repair: a group, or a hash over ports with a group each."""
        assert self.detours is not None
        ip = _ip(rule)
        distances = self._distances(self.fabric.nic_at_ip[ip])
        regular = distances.regular
        priority = self._priority(purpose, plain=False)
        if switch in regular and len(several) > 1:
            hashing = self._hashing(switch, several, self._leaves_zone(switch, ip))
            return FlowRule(switch.dpid, priority, purpose, ip, hashing=hashing, distance=distance)
        if switch in regular:
            group = self._group(switch, port, self._leaves_zone(switch, ip))
        elif switch.role is Role.SPINE:
            group = self.detours.lost(switch)
        else:
            group = self.detours.group_of(switch, rule.outputs[0])
        return FlowRule(switch.dpid, priority, purpose, ip, group=group.number, distance=distance)

    def _group(self, switch: NodeId, port: int, leaves_zone: bool) -> Group:
        assert self.detours is not None
        if switch.role is Role.SPINE and leaves_zone:
            return self.detours.to_gate(switch, port)
        return self.detours.group_of(switch, port)

    def _ways(self, switch: NodeId, several: tuple[int, ...], leaves_zone: bool) -> Iterator[FlowRule]:
        choice = self._hashing(switch, several, leaves_zone).choice
        for number, port in enumerate(several):
            group = self._group(switch, port, leaves_zone).number if self.detours else None
            outputs = () if self.detours else (port,)
            yield FlowRule(switch.dpid, Priority.ROUTE, Purpose.WAY, outputs=outputs, group=group, way=(choice, number))

    def _hashing(self, switch: NodeId, several: tuple[int, ...], leaves_zone: bool) -> Hashing:
        return hashing_of(switch.dpid, several, self.routing.hash_seed, leaves_zone)

    def _leaves_zone(self, switch: NodeId, ip: str) -> bool:
        return switch.zone != self.fabric.nic_at_ip[ip].zone

    def _no_way(self, switch: NodeId, rule: FlowRule) -> FlowRule:
        """Return the rule that drops packets to what ``switch`` has no way to."""
        return FlowRule(switch.dpid, self._priority("", plain=True), Purpose.UNREACHABLE, _ip(rule))

    def _priority(self, purpose: str, plain: bool) -> int:
        """Return a route's priority: last hops act before searches, and plain routes whatever is marked."""
        if self.detours is None:
            return Priority.ROUTE
        if plain:
            return Priority.PLAIN
        return Priority.LAST_HOP if purpose in _LAST_HOPS else Priority.ROUTE


def cuts_of(fabric: Fabric, down: Collection[Link]) -> dict[str, Parts]:
    """Return what failures have cut, the fabric or a zone's storage, each with its parts; empty if nothing is."""
    graph = LiveGraph(fabric, down)
    cuts = {"fabric": _parts(graph, graph.parts_of(fabric.switches), fabric.nics)}
    for zone in range(fabric.zones):
        nics = [nic for nic in fabric.nics if nic.zone == zone]
        if any(_is_storage(nic) for nic in nics):
            switches = (switch for switch in fabric.switches if switch.zone == zone)
            cuts[f"storage of zone {zone}"] = _parts(graph, graph.parts_of(switches), nics)
    return {what: parts for what, parts in cuts.items() if len(parts) > 1}


def _parts(graph: LiveGraph, switches: list[set[NodeId]], nics: Collection[Nic]) -> Parts:
    """Return the addresses in each part of some switches, largest first; a NIC without its link is alone."""
    alone = [(nic.ip,) for nic in nics if not graph.is_alive(nic.port)]
    joined = (
        tuple(nic.ip for nic in nics if graph.is_alive(nic.port) and graph.fabric.leaf_of(nic) in part)
        for part in switches
    )
    return tuple(sorted((*(part for part in joined if part), *alone), key=lambda part: (-len(part), part)))


def _ip(rule: FlowRule) -> str:
    assert rule.destination is not None, "static routes have destinations"
    return rule.destination


def _is_storage(nic: Nic) -> bool:
    return nic.node.role is Role.STORAGE
