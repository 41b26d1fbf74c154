"""Local repair: how a switch reacts, at once and by itself, when the port that a packet should leave by is dead.

Each route becomes a fast-failover group: the planned port first, then other ports that lead on, then back (a
*bounce*)::

    leaf, up         the next uplinks in a ring                          else drop
    spine, down      parallel links, for other zones other border leaves else bounce
    border leaf, out its other inter-zone links, then any spine          else drop
    inter-zone, in   its other links into the zone                       else bounce

No packet may loop, whatever fails. So a packet that left its planned path carries the state of its search in bits of
its Ethernet source address, which no host reads:

``ring``   byte 1: bit 7 once bounced or diverted; below it 1 + the uplink at which its leaf began. A leaf sends what
           comes back from uplink j on by the next one after j in the ring, and drops it when the ring closes.
``gate``   byte 2: 0x40 + the border leaf at which the search for a way out began; byte 3: the inter-zone link there.
           Spines send it from border leaf to border leaf, these try all their links, and it ends when the ring closes.

``plain`` byte 0: 0x80 once it met a route that the controller planned around failures and that has no local repair.

So every hop of a search makes progress. In the destination's zone the search for an exit is over, and the ring
begins anew. The rules of a search do not depend on destinations: there are few of them, and no failure changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from controllers.planning.plan import Bucket, FailoverGroup, FlowRule, Mark, Priority, Purpose
from fabric.errors import ControllerError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port

PLAIN = Mark(0x82 << 40, 0x1FF << 39)
"""What a route without local repair puts on a packet: it begins anew, as one that nobody has sent back yet."""
ASTRAY = Mark(0x8080 << 32, 0x8080 << 32)
"""Plain, and then sent back or diverted, as happens when a link fails while switches change between routes with local
repair and routes without: the former would send back what the latter send again, and so on."""
_RING_MASK = 0xFF << 32
_GATE_MASK = 0xFF << 24
_SEARCH_MASK = 0xFFFF << 16
_ANY_GATE = Mark(0x40 << 24, 0xC0 << 24)
MAX_UPLINKS = 126
MAX_GATES = 63
MAX_EXITS = 255
Item = TypeVar("Item")


def ring_mark(start: int | None) -> Mark:
    """Return the mark of a search over the uplinks that began at ``start``; None: it was bounced before any began."""
    return Mark((0x80 | (0 if start is None else start + 1)) << 32, _RING_MASK)


def gate_mark(gate: int, exit_: int) -> Mark:
    """Return the mark of a search over a zone's exits that began at a border leaf's inter-zone link."""
    return Mark((0x40 | gate) << 24 | exit_ << 16, _SEARCH_MASK)


def _from_gate(gate: int) -> Mark:
    return Mark((0x40 | gate) << 24, _GATE_MASK)


def ring(items: Sequence[Item], after: int, before: int | None = None) -> list[Item]:
    """Return the items after place ``after``, around the ring, up to place ``before`` (by default up to ``after``)."""
    end = after if before is None else before
    count = (end - after - 1) % len(items)
    return [*items, *items][after + 1 : after + 1 + count]


class Detours:
    """The groups and rules of local repair of one fabric: no failure changes them, so they are worked out once.

    ``groups`` holds those that were asked for, by switch and number.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.groups: dict[tuple[int, int], FailoverGroup] = {}
        self._known: dict[tuple[Callable[[NodeId, int], FailoverGroup], NodeId, int], FailoverGroup] = {}
        self._rules: dict[NodeId, list[FlowRule]] = {}
        _verify_sizes(self)

    @cached_property
    def uplinks(self) -> dict[NodeId, list[int]]:
        """Each leaf's ports towards spines."""
        return {leaf: self._ports(leaf, Role.SPINE) for leaf in self.fabric.with_role(Role.LEAF)}

    @cached_property
    def exits(self) -> dict[NodeId, list[int]]:
        """Each leaf's ports towards inter-zone switches."""
        return {leaf: self._ports(leaf, Role.INTER_ZONE) for leaf in self.fabric.with_role(Role.LEAF)}

    @cached_property
    def gates(self) -> dict[int, list[NodeId]]:
        """The border leaves of each zone."""
        return {
            zone: [leaf for leaf in self.fabric.with_role(Role.LEAF, zone) if self.exits[leaf]]
            for zone in range(self.fabric.zones)
        }

    def _ports(self, node: NodeId, role: Role) -> list[int]:
        return [port.number for port in self.fabric.ports_of[node] if self.fabric.peer(port).node.role is role]

    def _numbers(self, node: NodeId, peer: NodeId) -> list[int]:
        return [port.number for port in self.fabric.ports_between(node, peer)]

    # The groups of routes

    def group_of(self, switch: NodeId, port: int) -> FailoverGroup:
        """Return the group of the routes that leave ``switch`` by ``port``."""
        return self._once(self._route_group, switch, port)

    def to_gate(self, spine: NodeId, port: int) -> FailoverGroup:
        """Return the group of a spine's routes that leave its zone over the border leaf at ``port``."""
        return self._once(self._gate_group, spine, port)

    def _once(self, make: Callable[[NodeId, int], FailoverGroup], switch: NodeId, port: int) -> FailoverGroup:
        key = make, switch, port
        if key not in self._known:
            self._known[key] = make(switch, port)
        return self._known[key]

    def _route_group(self, switch: NodeId, port: int) -> FailoverGroup:
        peer = self.fabric.peer(Port(switch, port)).node
        if switch.role is Role.LEAF:
            return self._up(switch, port) if peer.role is Role.SPINE else self._out(switch, port)
        if switch.role is Role.SPINE:
            return self._kept(switch, [Bucket(port), *self._parallel(switch, peer, port)], bounces=True)
        ports = [p.number for p in self.fabric.ports_of[switch] if self.fabric.peer(p).node.zone == peer.zone]
        buckets = [Bucket(port), *map(Bucket, ring(ports, ports.index(port)))]
        return self._kept(switch, buckets, bounces=True)

    def _gate_group(self, spine: NodeId, port: int) -> FailoverGroup:
        gate = self.fabric.peer(Port(spine, port)).node
        place = self._place(gate)
        left = ring(self._gates_of(spine), place)
        others = [Bucket(bucket.port, gate_mark(place, 0)) for buckets in left for bucket in buckets]
        return self._kept(spine, [Bucket(port), *self._parallel(spine, gate, port), *others], bounces=True)

    def lost(self, spine: NodeId) -> FailoverGroup:
        """Return the group of a spine's routes to what it has no link to: it sends packets back."""
        return self._kept(spine, [], bounces=True)

    def _parallel(self, spine: NodeId, leaf: NodeId, port: int) -> list[Bucket]:
        return [Bucket(number) for number in self._numbers(spine, leaf) if number != port]

    def _up(self, leaf: NodeId, port: int) -> FailoverGroup:
        uplinks = self.uplinks[leaf]
        start = uplinks.index(port)
        mark = ring_mark(start)
        return self._kept(leaf, [Bucket(port), *(Bucket(number, mark) for number in ring(uplinks, start))])

    def _out(self, leaf: NodeId, port: int) -> FailoverGroup:
        start = self.exits[leaf].index(port)
        return self._kept(leaf, [Bucket(port), *self._search_on(leaf, start)])

    def _search_on(self, leaf: NodeId, start: int) -> list[Bucket]:
        """Return how a border leaf begins to search for another way out: by its other exits, then up to a spine."""
        mark = gate_mark(self._place(leaf), start)
        return [Bucket(number, mark) for number in ring(self.exits[leaf], start) + self.uplinks[leaf]]

    def _place(self, leaf: NodeId) -> int:
        assert leaf.zone is not None
        return self.gates[leaf.zone].index(leaf)

    def _kept(self, switch: NodeId, buckets: Sequence[Bucket], bounces: bool = False) -> FailoverGroup:
        group = FailoverGroup(switch.dpid, tuple(buckets), bounces)
        return self.groups.setdefault((switch.dpid, group.number), group)

    # The rules of searches

    def rules(self, switch: NodeId) -> list[FlowRule]:
        """Return a switch's rules for packets that have left their planned way."""
        if switch not in self._rules:
            self._rules[switch] = list(self._new_rules(switch))
        return self._rules[switch]

    def _new_rules(self, switch: NodeId) -> Iterator[FlowRule]:
        yield FlowRule(switch.dpid, Priority.ASTRAY, Purpose.DETOUR, mark=ASTRAY)
        if switch.role is Role.LEAF:
            yield from self._ring_rules(switch)
        if switch.role is Role.LEAF and self.exits[switch]:
            for prefix in self._other_zones(switch):
                yield from self._exit_rules(switch, prefix)
        if switch.role is Role.SPINE:
            for prefix in self._other_zones(switch):
                yield from self._gate_rules(switch, prefix)
        if switch.role is Role.INTER_ZONE:
            yield from self._no_way_back(switch)

    def _other_zones(self, switch: NodeId) -> list[str]:
        return [f"10.{zone}.0.0/16" for zone in range(self.fabric.zones) if zone != switch.zone]

    def _ring_rules(self, leaf: NodeId) -> Iterator[FlowRule]:
        """What comes back to a leaf goes on by the next uplink."""
        uplinks = self.uplinks[leaf]
        buckets = [Bucket(number) for number in uplinks]
        for place, port in enumerate(uplinks):
            first = [Bucket(number, ring_mark(place)) for number in ring(uplinks, place)]
            yield self._search(leaf, Priority.BOUNCED, self._kept(leaf, first), in_port=port, mark=ring_mark(None))
            for start in range(len(uplinks)):
                group = self._kept(leaf, ring(buckets, place, start) if start != place else [])
                yield self._search(leaf, Priority.BOUNCED, group, in_port=port, mark=ring_mark(start))

    def _exit_rules(self, leaf: NodeId, prefix: str) -> Iterator[FlowRule]:
        """What searches for a way out tries a border leaf's links; what an inter-zone switch sent back, the rest."""
        exits, own = self.exits[leaf], self._place(leaf)
        every, uplinks = [Bucket(number) for number in exits], [Bucket(number) for number in self.uplinks[leaf]]
        back, end = self._kept(leaf, every, bounces=True), self._kept(leaf, every)
        yield self._search(leaf, Priority.DETOUR, back, prefix, mark=_ANY_GATE)
        yield self._search(leaf, Priority.DETOUR + 1, end, prefix, mark=_from_gate(own))
        for place, port in enumerate(exits):
            fresh = self._kept(leaf, self._search_on(leaf, place))
            yield self._search(leaf, Priority.DETOUR + 2, fresh, prefix, port)
            on = self._kept(leaf, every[place + 1 :] + uplinks)
            yield self._search(leaf, Priority.DETOUR + 3, on, prefix, port, _ANY_GATE)
            for start in range(len(exits)):
                group = self._kept(leaf, ring(every, place, start) + uplinks)
                yield self._search(leaf, Priority.DETOUR + 4, group, prefix, port, gate_mark(own, start))

    def _gate_rules(self, spine: NodeId, prefix: str) -> Iterator[FlowRule]:
        """What a border leaf sends back to a spine goes to the next border leaf."""
        gates = self._gates_of(spine)
        for place, own in enumerate(gates):
            for start in range(len(gates)):
                left = ring(gates, place, None if start == place else start)
                group = self._kept(spine, [bucket for buckets in left for bucket in buckets])
                for bucket in own:
                    yield self._search(spine, Priority.DETOUR, group, prefix, bucket.port, _from_gate(start))

    def _gates_of(self, spine: NodeId) -> list[list[Bucket]]:
        """Return a spine's ways to each border leaf of its zone."""
        assert spine.zone is not None
        return [[Bucket(number) for number in self._numbers(spine, gate)] for gate in self.gates[spine.zone]]

    def _no_way_back(self, switch: NodeId) -> Iterator[FlowRule]:
        """What a zone sends out of it for itself has nowhere to go but by a plan that says so."""
        for port in self.fabric.ports_of[switch]:
            zone = self.fabric.peer(port).node.zone
            yield FlowRule(
                switch.dpid, Priority.BOUNCED, Purpose.DETOUR, destination=f"10.{zone}.0.0/16", in_port=port.number
            )

    def _search(
        self,
        switch: NodeId,
        priority: int,
        group: FailoverGroup,
        prefix: str | None = None,
        in_port: int | None = None,
        mark: Mark | None = None,
    ) -> FlowRule:
        purpose = Purpose.BOUNCED if priority == Priority.BOUNCED else Purpose.DETOUR
        return FlowRule(
            switch.dpid, priority, purpose, destination=prefix, in_port=in_port, mark=mark, chosen_by=group.number
        )


def _verify_sizes(detours: Detours) -> None:
    """Raise ControllerError if a search does not fit into its bits."""
    largest = (
        ("uplinks of a leaf", max(map(len, detours.uplinks.values()), default=0), MAX_UPLINKS),
        ("border leaves of a zone", max(map(len, detours.gates.values()), default=0), MAX_GATES),
        ("inter-zone links of a leaf", max(map(len, detours.exits.values()), default=0), MAX_EXITS),
    )
    for what, count, limit in largest:
        if count > limit:
            name = detours.fabric.name
            raise ControllerError(
                f"{name}: {count} {what} exceed {limit}, which is the most that fast failover can mark; use reroute"
            )
