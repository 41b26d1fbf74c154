"""The plan for a fabric as it is now: its policy's routes over the links that are up, and its local repair.

Pure functions. With no link down the static policy gives the static routes. With links down a destination keeps its
planned port wherever that still leads nearer; the others move to the port with the fewest. Packets without a path to
their destination are dropped at the first switch, by a rule that counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Address
from typing import NamedTuple

from controllers.planning.detours import PLAIN, Detours
from controllers.planning.distances import LiveGraph
from controllers.planning.plan import (
    FailoverGroup,
    FlowRule,
    Hashing,
    Mark,
    Parts,
    Priority,
    Purpose,
    RoutePlan,
    SwitchPlan,
)
from controllers.planning.policies import POLICIES
from controllers.planning.policies.policy import AtSwitch, BySource, Chosen, or_list
from controllers.planning.routes import STORAGE_PREFIX, Route, is_zoned, plan_of, static_routes, wiring_faults
from controllers.planning.up_down import UpDownGraph, up_down_routes
from controllers.routing import Repair, Routing
from fabric.errors import ControllerError, TopologyError
from fabric.garbage import uncollected
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Nic, Port

Moves = Mapping[tuple[NodeId, str], int]
"""The uplink that adaptive routing has chosen for a leaf and a destination's address, where it is not the planned."""
_LAST_HOPS = (Purpose.DELIVER, Purpose.LEAVE_ZONE)


def plan_routes(fabric: Fabric, routing: Routing, down: Collection[Link] = (), moves: Moves | None = None) -> RoutePlan:
    """Return the plan of a policy for a fabric of which some links are down.

    Raises TopologyError if the fabric is wrong as wired: a failure is not its fault.
    """
    return Planner(fabric, routing, down).plan(moves)


def all_routes(fabric: Fabric) -> Iterator[Route | FlowRule]:
    """Return the static routes of a fabric, in no order, and the rules beside them: those of zoned fat-trees where it
    is one, else those that go up and then down. Raises TopologyError for zones that have no such routes."""
    return static_routes(fabric) if is_zoned(fabric) else up_down_routes(fabric)


def routing_faults(fabric: Fabric, routing: Routing) -> Iterator[str]:
    """Yield what of a fabric no routes are made for, and the policies of a routing that are not made for it."""
    if routing.repair is Repair.FAST_FAILOVER:
        if fabric.inside is not None:
            text = f"nodes with an inside ({fabric.inside.name}) have blocks of addresses, which it does not know"
            yield f"routing.repair: fast_failover: {text}; use reroute or wait"
        if not is_zoned(fabric):
            text = f"{fabric.name} is not a zoned fat-tree, where switches repair routes by themselves"
            yield f"routing.repair: fast_failover: {text}; use reroute or wait"
    for fault in routing.policy.faults(fabric):
        others = [policy for policy in POLICIES if policy != routing.policy and not any(policy.faults(fabric))]
        yield f"routing.policy: {routing.policy}: {fault}; use {or_list(others)}"
    if is_zoned(fabric):
        yield from wiring_faults(fabric)


def _purpose(graph: LiveGraph, port: Port) -> str:
    """Return what a route is for that leaves a switch by a port."""
    peer = graph.fabric.peer(port).node
    if not peer.is_switch:
        return Purpose.DELIVER
    if peer.role is Role.INTER_ZONE:
        return Purpose.LEAVE_ZONE
    if port.node.role is Role.INTER_ZONE:
        return Purpose.ENTER_ZONE
    return Purpose.UP if graph.is_up(port.node, peer) else Purpose.DOWN


@lru_cache(maxsize=4)
def _detours(fabric: Fabric) -> Detours:
    return Detours(fabric)


class _Destination(NamedTuple):
    """A NIC as every switch sees it: ``place`` is its leaf's among all leaves, ``matched`` what rules match: its
    address or the block of its node's."""

    ip: str
    matched: str
    place: int
    is_storage: bool


class _StaticRoutes:
    """The static routes of a fabric, which all policies begin from: each switch's destinations in order of address,
    with the port to each, and the rules beside them."""

    def __init__(self, fabric: Fabric) -> None:
        self.names = {switch.dpid: switch.name for switch in fabric.switches}
        self.routes: dict[int, list[tuple[_Destination, int]]] = {dpid: [] for dpid in self.names}
        self.others: dict[int, list[FlowRule]] = {dpid: [] for dpid in self.names}
        places = {leaf: place for place, leaf in enumerate(fabric.with_role(Role.LEAF))}
        known = {
            nic.ip: _Destination(nic.ip, fabric.block_of(nic), places[fabric.leaf_at_ip[nic.ip]], _is_storage(nic))
            for nic in sorted(fabric.nics, key=lambda nic: IPv4Address(nic.ip))
        }
        order = {ip: number for number, ip in enumerate(known)}
        for one in all_routes(fabric):
            if isinstance(one, Route):
                self.routes[one.dpid].append((known[one.destination], one.output))
            else:
                self.others[one.dpid].append(one)
        for routes in self.routes.values():
            routes.sort(key=lambda route: order[route[0].ip])


@lru_cache(maxsize=4)
def _static_routes(fabric: Fabric) -> _StaticRoutes:
    return _StaticRoutes(fabric)


@lru_cache(maxsize=4)
def _static_plan(fabric: Fabric) -> RoutePlan:
    return plan_of(fabric, all_routes(fabric))


class _Towards(NamedTuple):
    """What all destinations of a leaf have in common at a switch: the live ``ports`` by which they come nearer.

    ``distance`` is 0 if the switch has no way. ``is_protected``: switches repair ways to this leaf by themselves;
    ``is_regular``: the switch has a regular way; ``may_store``: it has one within the leaf's zone, as storage needs.
    """

    ports: tuple[int, ...]
    distance: int
    is_protected: bool
    is_regular: bool
    may_store: bool
    leaves_zone: bool


class _Way(NamedTuple):
    """What a switch does with some destinations: all that their rules have in common."""

    priority: Priority
    purpose: str
    outputs: tuple[int, ...]
    chosen_by: int | Hashing | None
    distance: int
    writes: Mark | None = None

    def rule(self, dpid: int, ip: str) -> FlowRule:
        """Return a destination's rule."""
        return FlowRule(
            dpid, self.priority, self.purpose, ip, None, None, self.outputs, None, None,
            self.chosen_by, self.distance, self.writes,
        )  # fmt: skip


class Planner:
    """The plans of a policy for a fabric of which some links are down, as adaptive routing moves destinations.

    A switch is planned again only when destinations have been moved there: all else is worked out once.
    """

    def __init__(self, fabric: Fabric, routing: Routing, down: Collection[Link] = ()) -> None:
        faults = list(routing_faults(fabric, routing))
        if faults:
            raise TopologyError(fabric.name, faults)
        self.fabric, self.routing, self.down = fabric, routing, frozenset(down)
        self.cuts = cuts_of(fabric, down)
        self.waits = routing.repair is Repair.WAIT
        graph = LiveGraph if is_zoned(fabric) else UpDownGraph
        self.graph = graph(fabric, () if self.waits else down)
        self.cut_off = {nic.ip for nic in fabric.nics if not self.graph.is_alive(nic.port)}
        self.detours = _detours(fabric) if routing.repair is Repair.FAST_FAILOVER else None
        self._planned: dict[NodeId, tuple[dict[str, int], SwitchPlan]] = {}

    def after(self, down: Collection[Link]) -> Planner:
        """Return the planner for when other links are down; where failures are waited out, switches do as they did."""
        if self.down == frozenset(down):
            return self
        planner = Planner(self.fabric, self.routing, down)
        if self.waits:
            planner._planned = self._planned
        return planner

    def plan(self, moves: Moves | None = None, pause: Callable[[], object] = lambda: None) -> RoutePlan:
        """Return the plan with some destinations moved.

        ``pause`` is called after each switch: large fabrics take seconds, in which others may have something to do.
        """
        with uncollected():
            if self.waits and self.routing.policy.keeps_static_routes:
                return replace(_static_plan(self.fabric), policy=self.routing.policy.name, cuts=self.cuts)
            moved: dict[NodeId, dict[str, int]] = {}
            for (switch, ip), port in (moves or {}).items():
                moved.setdefault(switch, {})[ip] = port
            switches = {one.dpid: self._switch(one, moved.get(one, {}), pause) for one in self.fabric.switches}
        return RoutePlan(self.routing.policy.name, self.static.names, switches, self.cuts)

    @cached_property
    def static(self) -> _StaticRoutes:
        """The static routes."""
        return _static_routes(self.fabric)

    def _switch(self, switch: NodeId, moves: dict[str, int], pause: Callable[[], object]) -> SwitchPlan:
        if switch not in self._planned or self._planned[switch][0] != moves:
            self._planned[switch] = moves, self._new_switch(switch, moves)
            pause()
        return self._planned[switch][1]

    def _new_switch(self, switch: NodeId, moves: dict[str, int]) -> SwitchPlan:
        rules = [*self.static.others[switch.dpid], *_SwitchPlanner(self, switch, moves).rules()]
        if self.detours is None:
            return SwitchPlan.of(switch.name, rules)
        rules += self.detours.rules(switch)
        used = {rule.group for rule in rules if rule.group is not None}
        return SwitchPlan.of(switch.name, rules, (self.detours.groups[switch.dpid, number] for number in used))


class _SwitchPlanner:
    """The routes of one switch in the making."""

    def __init__(self, planner: Planner, switch: NodeId, moves: Mapping[str, int]) -> None:
        self.fabric, self.routing = planner.fabric, planner.routing
        self.planner = planner
        self.switch, self.moves = switch, moves
        self.routes = planner.static.routes[switch.dpid]
        self.purposes = {port.number: _purpose(planner.graph, port) for port in self.fabric.ports_of[switch]}
        leaves = self.fabric.with_role(Role.LEAF)
        self.place = leaves.index(switch) if switch.role is Role.LEAF else None
        self.towards = [self._towards(leaf) for leaf in leaves]
        kinds: dict[_Towards, int] = {}
        self.kinds = [kinds.setdefault(towards, len(kinds)) for towards in self.towards]
        self._known: dict[tuple[int, int, int], _Way] = {}
        self.at = self._choices_of_policy()

    def rules(self) -> Iterator[FlowRule]:
        """Yield the rules of all destinations, and of the ways that hashes choose among."""
        dpid = self.switch.dpid
        sets: set[tuple[tuple[int, ...], bool]] = set()
        for (destination, planned), ports, chosen in zip(self.routes, self.at.nearer, self._chosen(), strict=True):
            if chosen is None:
                yield FlowRule(dpid, self._priority("", plain=True), Purpose.UNREACHABLE, destination.matched)
                continue
            by_source = chosen if isinstance(chosen, BySource) else BySource(chosen, {})
            leaves_zone = self.towards[destination.place].leaves_zone
            way = self._way(destination.place, by_source.port, planned)
            others = {ip: self._way(destination.place, port, planned) for ip, port in by_source.ports.items()}
            if not leaves_zone and any(one.purpose == Purpose.LEAVE_ZONE for one in (way, *others.values())):
                # A way through another zone: for computes only.
                yield FlowRule(dpid, Priority.GUARD, Purpose.STORAGE_GUARD, destination.matched, STORAGE_PREFIX)
            yield way.rule(dpid, destination.matched)
            for ip, other in others.items():
                yield replace(other.rule(dpid, destination.matched), source=ip, priority=Priority.BY_SOURCE)
            if isinstance(way.chosen_by, Hashing):
                sets.add((ports, leaves_zone))
        for ways, leaves_zone in sorted({(self._spread(ports), leaves_zone) for ports, leaves_zone in sets}):
            yield from self._ways(ways, leaves_zone)

    def _towards(self, leaf: NodeId) -> _Towards:
        distances, switch = self.planner.graph.distances(leaf), self.switch
        return _Towards(
            tuple(sorted(port.number for port, _ in distances.nearer(self.planner.graph, switch))),
            distances.all[switch] + 1 if switch in distances.all else 0,
            self.planner.detours is not None and distances.is_regular,
            switch in distances.regular,
            switch in distances.in_zone,
            switch.zone != leaf.zone,
        )

    def _choices(self, destination: _Destination, planned: int) -> tuple[int, ...]:
        """Return the live ports by which a destination comes nearer."""
        if destination.ip in self.planner.cut_off:
            return ()
        if destination.place == self.place:
            return (planned,)
        towards = self.towards[destination.place]
        return towards.ports if towards.may_store or not destination.is_storage else ()

    def _choices_of_policy(self) -> AtSwitch:
        """Return the policy's input. Where a destination was moved, its new port replaces the planned one."""
        nearer = [self._choices(destination, planned) for destination, planned in self.routes]
        preferred = [planned for _, planned in self.routes]
        for number, (destination, _) in enumerate(self.routes if self.moves else ()):
            moved = self.moves.get(destination.ip)
            if moved is not None and moved in nearer[number]:
                preferred[number] = moved
        addresses = [destination.ip for destination, _ in self.routes]
        return AtSwitch(self.fabric, self.switch, addresses, preferred, nearer, self.routing.hash_seed)

    def _chosen(self) -> Sequence[Chosen]:
        """Return the port of each destination as the policy assigns them.

        Raises ControllerError for a port by which a destination does not come nearer.
        """
        policy, chosen = self.routing.policy, self.routing.policy.assign(self.at)
        for one, ports, ip in zip(chosen, self.at.nearer, self.at.destinations, strict=True):
            if isinstance(one, BySource) and self.planner.detours is not None:
                raise ControllerError(
                    f"routing.policy: {policy}: chooses by source, and fast_failover repairs by destination; use "
                    "repair: reroute or wait"
                )
            for port in (one.port, *one.ports.values()) if isinstance(one, BySource) else (one,):
                if port is not None and port not in ports:
                    raise ControllerError(
                        f"routing.policy: {policy}: sends {ip} out of {Port(self.switch, port)}, "
                        f"and it comes nearer only by {', '.join(map(str, ports)) or 'none'}; assign one of these"
                    )
        return chosen

    def _way(self, place: int, port: int, planned: int) -> _Way:
        """Return what is done with the destinations of a leaf that leave by ``port``."""
        key = self.kinds[place], port, planned
        if key not in self._known:
            self._known[key] = self._new_way(self.towards[place], port, planned)
        return self._known[key]

    def _new_way(self, towards: _Towards, port: int, planned: int) -> _Way:
        purpose = self.purposes[port]
        hashes = self.routing.policy.hashing and purpose != Purpose.DELIVER
        several = self._spread(towards.ports) if hashes else ()
        if purpose != Purpose.DELIVER and towards.is_protected:
            return self._protected(towards, port, planned, several, purpose)
        priority = self._priority(purpose, plain=purpose != Purpose.DELIVER)
        if len(several) > 1 and self.planner.detours is None:
            hashing = self._hashing(several, towards.leaves_zone)
            return _Way(priority, purpose, (), hashing, towards.distance)
        writes = PLAIN if priority == Priority.PLAIN else None
        return _Way(priority, purpose, (port,), None, towards.distance, writes)

    def _protected(self, towards: _Towards, port: int, planned: int, several: tuple[int, ...], purpose: str) -> _Way:
        """Return a way with local repair: a group, or a hash over ports with a group each."""
        assert self.planner.detours is not None
        priority = self._priority(purpose, plain=False)
        if towards.is_regular and len(several) > 1:
            hashing = self._hashing(several, towards.leaves_zone)
            return _Way(priority, purpose, (), hashing, towards.distance)
        if towards.is_regular:
            group = self._group(port, towards.leaves_zone)
        elif self.switch.role is Role.SPINE:
            group = self.planner.detours.lost(self.switch)
        else:
            group = self.planner.detours.group_of(self.switch, planned)
        return _Way(priority, purpose, (), group.number, towards.distance)

    def _group(self, port: int, leaves_zone: bool) -> FailoverGroup:
        assert self.planner.detours is not None
        if self.switch.role is Role.SPINE and leaves_zone:
            return self.planner.detours.to_gate(self.switch, port)
        return self.planner.detours.group_of(self.switch, port)

    def _ways(self, several: tuple[int, ...], leaves_zone: bool) -> Iterator[FlowRule]:
        hashing = self._hashing(several, leaves_zone)
        for number, port in enumerate(several):
            group = self._group(port, leaves_zone).number if self.planner.detours else None
            outputs = () if self.planner.detours else (port,)
            yield FlowRule(
                self.switch.dpid,
                Priority.ROUTE,
                Purpose.WAY,
                outputs=outputs,
                chosen_by=group,
                way=(hashing.choice, hashing.code(number)),
            )

    def _spread(self, ports: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ports that a hash chooses among. Raises ControllerError for others than the policy was given."""
        policy, spread = self.routing.policy, self.routing.policy.spread(self.at, ports)
        if not spread or not set(spread) <= set(ports):
            raise ControllerError(
                f"routing.policy: {policy}: spreads flows at {self.switch} over ports "
                f"{', '.join(map(str, spread)) or 'none'} of {', '.join(map(str, ports))}; take some of these"
            )
        return spread

    def _hashing(self, several: tuple[int, ...], leaves_zone: bool) -> Hashing:
        assert self.routing.policy.hashing is not None
        return self.routing.policy.hashing(self.switch.dpid, several, self.routing.hash_seed, leaves_zone)

    def _priority(self, purpose: str, plain: bool) -> Priority:
        """Return a route's priority: last hops act before searches, and plain routes whatever is marked."""
        if self.planner.detours is None:
            return Priority.ROUTE
        if plain:
            return Priority.PLAIN
        return Priority.LAST_HOP if purpose in _LAST_HOPS else Priority.ROUTE


def cuts_of(fabric: Fabric, down: Collection[Link]) -> dict[str, Parts]:
    """Return what failures have cut, the fabric (or one of its networks) or a zone's storage, each with its parts;
    empty if nothing is."""
    graph = LiveGraph(fabric, down)
    cuts = {}
    for number, network in enumerate(fabric.networks):
        what = "fabric" if len(fabric.networks) == 1 else f"network {number}"
        nics = [nic for nic in fabric.nics if fabric.network_of(nic) == number]
        cuts[what] = _parts(graph, graph.parts_of(network), nics)
    for zone in range(fabric.zones) if is_zoned(fabric) else ():  # Elsewhere storage speaks with all of its network.
        nics = [nic for nic in fabric.nics if nic.zone == zone]
        if any(_is_storage(nic) for nic in nics):
            switches = (switch for switch in fabric.switches if switch.zone == zone)
            cuts[f"storage of zone {zone}"] = _parts(graph, graph.parts_of(switches), nics)
    return {what: parts for what, parts in cuts.items() if len(parts) > 1}


def _parts(graph: LiveGraph, switches: Sequence[frozenset[NodeId]], nics: Collection[Nic]) -> Parts:
    """Return the addresses in each part of some switches, largest first; a NIC without its link is alone."""
    alone = [(nic.ip,) for nic in nics if not graph.is_alive(nic.port)]
    joined = (
        tuple(nic.ip for nic in nics if graph.is_alive(nic.port) and graph.fabric.leaf_of(nic) in part)
        for part in switches
    )
    return tuple(sorted((*(part for part in joined if part), *alone), key=lambda part: (-len(part), part)))


def _is_storage(nic: Nic) -> bool:
    return nic.node.role is Role.STORAGE
