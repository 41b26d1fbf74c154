"""Static, destination-based routes of a zoned fat-tree, as InfiniBand's d-mod-k: pure functions of the fabric.

Every destination has one preferred spine in each zone, which all source leaves of the zone share, so traffic to one
destination meets early and no packet is reordered. Packets go up at most once and down at most once in each zone::

    same zone     leaf -> spine of d -> leaf of d
    other zone    leaf -> spine of d -> border leaf -> inter-zone switch -> border leaf -> spine of d -> leaf of d

A border leaf (one with inter-zone links) leaves the zone by its own links, and an inter-zone switch enters by a link of
the destination's own leaf where the balance allows it: shortest paths, as a subnet manager takes. There is no loop,
because no rule goes up again after it went down in the same zone, and none leaves the zone of its destination.

At every switch the links that a choice is made over carry the same number of destinations within one; where the
preferences of d would break this, the fewest destinations move.

Storage NICs are reachable in their own zone only. Border leaves and inter-zone switches drop what a storage NIC sends
to another zone, so storage traffic never uses an inter-zone link.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from controllers.planning.plan import FlowRule, Priority, Purpose, RoutePlan, table_miss
from fabric.errors import TopologyError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Nic, Port, Tier

STATIC = "static"
STORAGE_PREFIX = "10.128.0.0/9"
"""Every storage NIC's address, and no other's (see fabric.model.identity)."""

Choice = TypeVar("Choice", int, Port)


class Route(NamedTuple):
    """A destination's port at a switch, and what the rule is for."""

    dpid: int
    destination: str
    output: int
    purpose: str

    def rule(self, matched: str | None = None) -> FlowRule:
        """Return the rule that says so; ``matched``: the block of addresses that it is for, by default the one."""
        destination = matched or self.destination
        return FlowRule(self.dpid, Priority.ROUTE, self.purpose, destination=destination, outputs=(self.output,))


def plan_static_routes(fabric: Fabric) -> RoutePlan:
    """Return the static routes between all NICs that may reach each other; errors as static_routes'."""
    return plan_of(fabric, static_routes(fabric))


def plan_of(fabric: Fabric, routes: Iterable[Route | FlowRule]) -> RoutePlan:
    """Return static routes, and the rules beside them, as a plan."""
    names = {switch.dpid: switch.name for switch in fabric.switches}
    blocks = {nic.ip: fabric.block_of(nic) for nic in fabric.nics}
    rules = (one.rule(blocks[one.destination]) if isinstance(one, Route) else one for one in routes)
    return RoutePlan.of(STATIC, names, rules)


def static_routes(fabric: Fabric) -> Iterator[Route | FlowRule]:
    """Return the static routes in no order, and the rules beside them: what misses, and what guards zones.

    Raises TopologyError with every fault of :func:`wiring_faults`.
    """
    faults = list(wiring_faults(fabric))
    if faults:
        raise TopologyError(fabric.name, faults)
    return _StaticPlanner(fabric).routes()


def spread(preferred: Sequence[Choice | None], choices: Sequence[Choice], turn: int = 0) -> list[Choice]:
    """Return a choice for each item: each taken equally often within one, the fewest items moved from ``preferred``.

    Items with no preference, or whose preferred choice is full, take turns over what is left; late items move first.
    ``turn`` says at which choice the remainder starts when no preference decides.
    """
    if not preferred:
        return []  # Also where there is nothing to choose from: a zone of one leaf has no spines.
    room = _quotas(preferred, choices, turn)
    kept: list[Choice | None] = []
    for choice in preferred:
        keeps = choice is not None and room.get(choice, 0) > 0
        if choice is not None and keeps:
            room[choice] -= 1
        kept.append(choice if keeps else None)
    left = (choice for level in range(max(room.values())) for choice in choices if room[choice] > level)
    return [next(left) if choice is None else choice for choice in kept]


def _quotas(preferred: Sequence[Choice | None], choices: Sequence[Choice], turn: int) -> dict[Choice, int]:
    """Return how many items each choice shall take; the most wanted take the remainder."""
    base, remainder = divmod(len(preferred), len(choices))
    wanted = Counter(preferred)
    places = range(len(choices))
    most_wanted = sorted(places, key=lambda place: (-wanted[choices[place]], (place - turn) % len(choices)))
    return {choices[place]: base + (rank < remainder) for rank, place in enumerate(most_wanted)}


@dataclass(frozen=True, slots=True)
class _Target:
    """A destination as one zone sees it: ``gate`` is the leaf where its packets leave the zone's spines.

    That is its own leaf, or the border leaf of its chosen exit. ``parallel`` picks among parallel links with ``spine``.
    """

    ip: str
    zone: int
    gate: NodeId
    spine: NodeId
    parallel: int


class _StaticPlanner:
    """The choices of one plan, each made once and shared by all the switches that follow it."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.links = _links_by_peer(fabric)

    def routes(self) -> Iterator[Route | FlowRule]:
        """Yield every route and rule of every switch."""
        for switch in self.fabric.switches:
            yield table_miss(switch.dpid)
        for zone in range(self.fabric.zones):
            targets = self._targets(zone)
            for leaf in self.fabric.with_role(Role.LEAF, zone):
                yield from self._leaf_rules(leaf, targets)
            for spine in self.fabric.with_role(Role.SPINE, zone):
                yield from self._spine_rules(spine, targets)
        for switch in self.fabric.with_role(Role.INTER_ZONE):
            yield from self._inter_zone_rules(switch)

    # What is chosen once for the whole fabric

    @cached_property
    def nics(self) -> dict[int, list[Nic]]:
        """The NICs of each zone, leaf by leaf, so that neighbours in the list share a leaf."""
        nics: dict[int, list[Nic]] = {zone: [] for zone in range(self.fabric.zones)}
        for leaf in self.fabric.with_role(Role.LEAF):
            nics[_zone_of(leaf)] += self.fabric.nics_on_leaf(leaf)
        return nics

    @cached_property
    def computes(self) -> dict[int, list[Nic]]:
        """The NICs of each zone that other zones may reach."""
        return {zone: [nic for nic in nics if nic.node.role is Role.COMPUTE] for zone, nics in self.nics.items()}

    @cached_property
    def exits(self) -> dict[int, list[Port]]:
        """The ports of each zone's leaves on inter-zone links."""
        exits: dict[int, list[Port]] = {zone: [] for zone in range(self.fabric.zones)}
        for link in self.fabric.links_of_tier(Tier.INTER_ZONE):
            port = next(port for port in link.ports if port.node.role is Role.LEAF)
            exits[_zone_of(port.node)].append(port)
        return exits

    @cached_property
    def entry(self) -> dict[str, Port]:
        """The inter-zone switch's port by which packets should enter the zone of each compute NIC."""
        chosen: dict[str, Port] = {}
        for zone, nics in self.computes.items():
            ports = [self.fabric.peer(port) for port in self.exits[zone]]
            if ports:
                wanted = self._direct(nics, ports)
                chosen.update(zip((nic.ip for nic in nics), spread(wanted, ports), strict=True))
        return chosen

    def _direct(self, nics: Sequence[Nic], ports: Sequence[Port]) -> list[Port | None]:
        """Return for each NIC a port of ``ports`` that faces its own leaf, in turns, or None if there is none."""
        facing: dict[NodeId, list[Port]] = defaultdict(list)
        for port in ports:
            facing[self.fabric.peer(port).node].append(port)
        seen: Counter[NodeId] = Counter()
        direct: list[Port | None] = []
        for nic in nics:
            leaf = self.fabric.leaf_of(nic)
            own = facing.get(leaf)
            direct.append(own[seen[leaf] % len(own)] if own else None)
            seen[leaf] += 1
        return direct

    def _remote_exits(self, zone: int) -> list[tuple[Nic, Port]]:
        """Return every NIC of other zones with the exit chosen for it, on the inter-zone switch of its entry."""
        by_switch: dict[NodeId, list[Nic]] = defaultdict(list)
        for other, nics in self.computes.items():
            for nic in nics if other != zone else []:
                by_switch[self.entry[nic.ip].node].append(nic)
        chosen: list[tuple[Nic, Port]] = []
        for switch, nics in sorted(by_switch.items()):
            ports = [port for port in self.exits[zone] if self.fabric.peer(port).node == switch]
            chosen += zip(nics, spread([None] * len(nics), ports), strict=True)
        return chosen

    # What is chosen once for a zone

    def _targets(self, zone: int) -> list[_Target]:
        """Return what the zone's leaves and spines can reach, each with its preferred spine."""
        local = [(nic, self.fabric.leaf_of(nic)) for nic in self.nics[zone]]
        remote = [(nic, port.node) for nic, port in self._remote_exits(zone)]
        spines = _SpineChooser(self.fabric.with_role(Role.SPINE, zone))
        return [
            _Target(nic.ip, nic.zone, gate, *spines.choose(gate, (nic.node.role, nic.zone == zone)))
            for nic, gate in local + remote
        ]

    def _leaf_rules(self, leaf: NodeId, targets: Sequence[_Target]) -> Iterator[Route | FlowRule]:
        zone = _zone_of(leaf)
        own_exits = [port for port in self.exits[zone] if port.node == leaf]
        yield from (
            _route(leaf, nic.ip, self.fabric.peer(nic.port).number, Purpose.DELIVER)
            for nic in self.fabric.nics_on_leaf(leaf)
        )
        if own_exits:
            yield from self._exit_rules(leaf, own_exits, [target for target in targets if target.zone != zone])
            yield from self._leaf_guards(leaf)
            targets = [target for target in targets if target.zone == zone]
        yield from self._up_rules(leaf, [target for target in targets if target.gate != leaf])

    def _up_rules(self, leaf: NodeId, targets: Sequence[_Target]) -> Iterator[Route]:
        uplinks = {peer: ports for peer, ports in self.links[leaf].items() if peer.role is Role.SPINE}
        wanted = [uplinks[target.spine][target.parallel % len(uplinks[target.spine])] for target in targets]
        ports = sorted(port for found in uplinks.values() for port in found)
        for target, port in zip(targets, spread(wanted, ports, turn=leaf.index), strict=True):
            yield _route(leaf, target.ip, port, Purpose.UP)

    def _exit_rules(self, leaf: NodeId, exits: Sequence[Port], targets: Sequence[_Target]) -> Iterator[Route]:
        """Yield how a border leaf leaves its zone: by its own links, to the switch of the entry where it has one."""
        to_switch: dict[NodeId, list[int]] = defaultdict(list)
        for port in exits:
            to_switch[self.fabric.peer(port).node].append(port.number)
        # Targets of which this leaf is the gate carry the whole zone's traffic: they come first, so they move last.
        first = sorted(targets, key=lambda target: target.gate != leaf)
        wanted: list[int | None] = []
        for turn, target in enumerate(first):
            ports = to_switch.get(self.entry[target.ip].node)
            wanted.append(ports[turn % len(ports)] if ports else None)
        numbers = spread(wanted, [port.number for port in exits])
        for target, number in zip(first, numbers, strict=True):
            yield _route(leaf, target.ip, number, Purpose.LEAVE_ZONE)

    def _leaf_guards(self, leaf: NodeId) -> Iterator[FlowRule]:
        for zone in range(self.fabric.zones):
            if zone != leaf.zone:
                yield _guard(leaf, f"10.{zone}.0.0/16")

    def _spine_rules(self, spine: NodeId, targets: Sequence[_Target]) -> Iterator[Route]:
        by_gate: dict[NodeId, list[_Target]] = defaultdict(list)
        for target in targets:
            by_gate[target.gate].append(target)
        for gate, found in by_gate.items():
            ports = self.links[spine][gate]
            wanted = [ports[t.parallel % len(ports)] if t.spine == spine else None for t in found]
            for target, port in zip(found, spread(wanted, ports), strict=True):
                yield _route(spine, target.ip, port, Purpose.DOWN)

    def _inter_zone_rules(self, switch: NodeId) -> Iterator[Route | FlowRule]:
        yield _guard(switch)
        for zone, nics in self.computes.items():
            ports = [port for port in self.fabric.ports_of[switch] if self.fabric.peer(port).node.zone == zone]
            # NICs whose entry is here are those that the other zones' spines send here: they move last.
            first = sorted(nics, key=lambda nic: self.entry[nic.ip].node != switch)
            wanted = [
                self.entry[nic.ip] if self.entry[nic.ip].node == switch else direct
                for nic, direct in zip(first, self._direct(first, ports), strict=True)
            ]
            for nic, port in zip(first, spread(wanted, ports), strict=True):
                yield _route(switch, nic.ip, port.number, Purpose.ENTER_ZONE)


class _SpineChooser:
    """Gives each target of a zone its preferred spine and the turn among parallel links to it.

    A gate's targets are dealt evenly over the spines, so its downlinks balance; among equals, the spine with fewest
    targets of the same kind, then fewest of all, is taken.
    """

    def __init__(self, spines: Sequence[NodeId]) -> None:
        self.spines = spines
        self.of_gate: dict[NodeId, list[int]] = defaultdict(lambda: [0] * len(spines))
        self.of_kind: dict[tuple[Role, bool], list[int]] = defaultdict(lambda: [0] * len(spines))
        self.of_all = [0] * len(spines)

    def choose(self, gate: NodeId, kind: tuple[Role, bool]) -> tuple[NodeId, int]:
        """Return the spine of the next target and its turn among the parallel links between that spine and the gate.

        A zone of one leaf needs no spine, and all its targets are at that leaf.
        """
        if not self.spines:
            return gate, 0
        gate_load, kind_load = self.of_gate[gate], self.of_kind[kind]
        place = min(range(len(self.spines)), key=lambda at: (gate_load[at], kind_load[at], self.of_all[at]))
        turn = gate_load[place] + gate.index
        for load in (gate_load, kind_load, self.of_all):
            load[place] += 1
        return self.spines[place], turn


def _route(switch: NodeId, destination: str, output: int, purpose: str) -> Route:
    return Route(switch.dpid, destination, output, purpose)


def _guard(switch: NodeId, destination: str | None = None) -> FlowRule:
    return FlowRule(switch.dpid, Priority.GUARD, Purpose.STORAGE_GUARD, destination=destination, source=STORAGE_PREFIX)


def _zone_of(leaf: NodeId) -> int:
    assert leaf.zone is not None, "leaves and spines belong to a zone"
    return leaf.zone


def _links_by_peer(fabric: Fabric) -> dict[NodeId, dict[NodeId, list[int]]]:
    """Return each switch's port numbers towards each of its neighbours, in order."""
    links: dict[NodeId, dict[NodeId, list[int]]] = {switch: defaultdict(list) for switch in fabric.switches}
    for switch in fabric.switches:
        for port in fabric.ports_of[switch]:
            links[switch][fabric.peer(port).node].append(port.number)
    return links


def is_zoned(fabric: Fabric) -> bool:
    """Return whether these routes are made for a fabric: its zones are joined by inter-zone switches, or it is one zone
    that has spines, in which every leaf has a link to every spine, and leaves and spines have no others."""
    if fabric.zones > 1 or fabric.with_role(Role.INTER_ZONE):
        return True
    spines = frozenset(fabric.with_role(Role.SPINE))
    leaves = frozenset(fabric.with_role(Role.LEAF))
    if not spines or fabric.with_role(Role.CORE):
        return False
    joined = {
        switch: frozenset(peer for peer in fabric.neighbours[switch] if peer.is_switch) for switch in leaves | spines
    }
    return all(joined[leaf] == spines for leaf in leaves) and all(joined[spine] == leaves for spine in spines)


def wiring_faults(fabric: Fabric) -> Iterator[str]:
    """Yield what keeps static routes from a fabric: a leaf that misses a spine of its zone, a zone that misses an
    inter-zone switch, and links that these routes would never use."""
    links = _links_by_peer(fabric)
    for core in fabric.with_role(Role.CORE):
        yield f"core switch {core}: zones are joined by inter-zone switches only; name it ix0, or make it one zone"
    for link in fabric.links:
        if link.tier is not Tier.ACCESS and not _is_used(link):
            which = "leaves to spines of their zone and to inter-zone switches"
            yield f"link {link}: with inter-zone switches or several zones, links join {which}; remove it"
    for leaf in fabric.with_role(Role.LEAF):
        for spine in fabric.with_role(Role.SPINE, leaf.zone):
            if spine not in links[leaf]:
                yield f"leaf {leaf}: has no link to {spine}; static routes need one to every spine of its zone"
    for zone in range(fabric.zones):
        leaves = fabric.with_role(Role.LEAF, zone)
        if len(leaves) > 1 and not fabric.with_role(Role.SPINE, zone):
            yield f"zone {zone}: no spine joins its {len(leaves)} leaves; add z{zone}s00 with a link to each of them"
    for switch in fabric.with_role(Role.INTER_ZONE):
        for zone in sorted(set(range(fabric.zones)) - {peer.zone for peer in links[switch]}):
            yield f"inter-zone switch {switch}: has no link into zone {zone}; static routes need one into every zone"
    if fabric.zones > 1 and not fabric.with_role(Role.INTER_ZONE):
        yield f"inter_zone: no switch joins the {fabric.zones} zones; add inter-zone switches and links"


def _is_used(link: Link) -> bool:
    """Whether static routes have a use for a link between switches."""
    ends = [port.node for port in link.ports]
    roles = {node.role for node in ends}
    if roles == {Role.LEAF, Role.SPINE}:
        return ends[0].zone == ends[1].zone
    return roles == {Role.LEAF, Role.INTER_ZONE}
