"""Which guest plays which part of a fabric, where several play one run.

A guest goes on while others do by as much as the least delay of a link between them, so parts are cut along such links,
and where few of them are: leaves stay with their hosts, side by side with those of their pod or zone; and where each
part has as much to do: the packets that are expected where all hosts send to all alike, by all shortest ways.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Link, Port


@dataclass(frozen=True)
class Partition:
    """A fabric in parts: the number of each node's guest, of ``guests``."""

    fabric: Fabric
    guests: int
    guest_of_node: Mapping[NodeId, int]

    def guest_of(self, node: NodeId) -> int:
        """Return the guest of a node, or of the node that it is a part of."""
        return self.guest_of_node[node.host]

    def hosts_of(self, guest: int) -> tuple[NodeId, ...]:
        """Return a guest's hosts, in the fabric's order."""
        return tuple(host for host in self.fabric.hosts if self.guest_of_node[host] == guest)

    def switches_of(self, guest: int) -> tuple[NodeId, ...]:
        """Return a guest's switches, in the fabric's order."""
        return tuple(switch for switch in self.fabric.switches if self.guest_of_node[switch] == guest)

    def links_within(self, guest: int) -> Iterator[Link]:
        """Yield the links of which a guest has both ends, those inside nodes included."""
        for link in (*self.fabric.links, *self.fabric.inner_links):
            if all(self.guest_of(port.node) == guest for port in link.ports):
                yield link

    @cached_property
    def crossing(self) -> tuple[Link, ...]:
        """The links whose ends are in different guests."""
        return tuple(link for link in self.fabric.links if self.guest_of(link.a.node) != self.guest_of(link.b.node))

    @cached_property
    def crossing_ports(self) -> frozenset[Port]:
        """The ends of these links."""
        return frozenset(port for link in self.crossing for port in link.ports)

    @property
    def lookahead_ns(self) -> int:
        """By how much one guest may be ahead of another; 0 for a single guest."""
        return min((link.delay_ns for link in self.crossing), default=0)


def partition(fabric: Fabric, guests: int) -> Partition:
    """Return a fabric in as many parts, with equally many packets expected in each as far as leaves allow.

    Raises UsageError if it has fewer hosts than that, or if a link between parts has no delay.
    """
    packets = expected_packets(fabric)
    guest_of = _place_hosts(fabric, guests, packets)
    _place_switches(fabric, guest_of, packets)
    found = Partition(fabric, guests, guest_of)
    if undelayed := [link for link in found.crossing if link.delay_ns == 0]:
        raise UsageError(
            f"--guests {guests}: the link {undelayed[0]} would cross from one guest to another and has no delay; they "
            "would have to wait for each other at every moment: set topology.link_delay, such as to 1 us, or omit "
            "--guests"
        )
    return found


def expected_packets(fabric: Fabric) -> dict[NodeId, float]:
    """The traffic that each node sends, receives and forwards, in bit/s, if every NIC sends at its rate, to all others
    in proportion to theirs, by all shortest ways alike."""
    sent: Counter[NodeId] = Counter()
    packets: dict[NodeId, float] = dict.fromkeys(fabric.nodes, 0.0)
    for nic in fabric.nics:
        rate_bps = fabric.link_at[nic.port].rate_bps
        sent[fabric.leaf_of(nic)] += rate_bps
        packets[nic.node] += 2 * rate_bps
    ways = {node: [other for other in _other_ends(fabric, node) if other.is_switch] for node in fabric.switches}
    for leaf, received in sent.items():
        share = received / sent.total()
        for switch, passed in _passed_on_to(leaf, sent, ways).items():
            packets[switch] += passed * share
    return packets


def _passed_on_to(
    leaf: NodeId, sent: Mapping[NodeId, int], ways: Mapping[NodeId, Sequence[NodeId]]
) -> dict[NodeId, float]:
    """The traffic from all leaves to one that each switch forwards, in bit/s."""
    steps, order = {leaf: 0}, [leaf]
    for switch in order:
        for other in ways[switch]:
            if other not in steps:
                steps[other] = steps[switch] + 1
                order.append(other)
    passed = {switch: float(sent.get(switch, 0)) for switch in order}
    for switch in reversed(order):
        nearer = [other for other in ways[switch] if steps[other] < steps[switch]]
        for other in nearer:
            passed[other] += passed[switch] / len(nearer)
    return passed


def _place_hosts(fabric: Fabric, guests: int, packets: Mapping[NodeId, float]) -> dict[NodeId, int]:
    """Return the guest of each host: those of the same leaves together, unless that leaves a guest without hosts; where
    most have one leaf, the others are where the least is expected."""
    leaves = {host: frozenset(map(fabric.leaf_of, nics)) for host, nics in fabric.nics_of.items()}
    if len(leaves) < guests:
        raise UsageError(f"--guests {guests}: {fabric.name} has only {len(leaves)} hosts; use fewer guests")
    single = [host for host in fabric.hosts if len(leaves[host]) == 1]
    together: dict[frozenset[NodeId], list[NodeId]] = {}
    for host in sorted(single, key=lambda one: min(leaves[one])) or fabric.hosts:
        together.setdefault(leaves[host], []).append(host)
    by_leaf = _in_rows([*together.values()], guests, packets)
    if len(set(by_leaf.values())) < guests:
        return _in_rows([[host] for host in fabric.hosts], guests, packets)
    guest_of_leaf = {leaf: guest for host, guest in by_leaf.items() for leaf in leaves[host]}
    loads = _loads(by_leaf, packets)
    for host in fabric.hosts:
        if host not in by_leaf:
            near = {guest_of_leaf[leaf] for leaf in leaves[host] if leaf in guest_of_leaf} or set(range(guests))
            by_leaf[host] = min(near, key=lambda guest: (loads[guest], guest))
            loads[by_leaf[host]] += packets[host]
    return by_leaf


def _in_rows(groups: Sequence[Sequence[NodeId]], guests: int, packets: Mapping[NodeId, float]) -> dict[NodeId, int]:
    """Return a guest for each host, one after the other, as much to each as is expected, and those of a group to the
    same."""
    loads = [sum(packets[host] for host in group) for group in groups]
    share, before = sum(loads) / guests, 0.0
    placed: dict[NodeId, int] = {}
    for group, load in zip(groups, loads, strict=True):
        placed |= dict.fromkeys(group, min(guests - 1, int((before + load / 2) / share)))
        before += load
    return placed


def _loads(guest_of: Mapping[NodeId, int], packets: Mapping[NodeId, float]) -> defaultdict[int, float]:
    """The traffic expected in each guest, in bit/s."""
    loads: defaultdict[int, float] = defaultdict(float)
    for node, guest in guest_of.items():
        loads[guest] += packets[node]
    return loads


def _place_switches(fabric: Fabric, guest_of: dict[NodeId, int], packets: Mapping[NodeId, float]) -> None:
    """Put every leaf with its hosts, and every other switch, those with the most to do first, into the guest with the
    least to do that it has links to; of several with as little, where most of its links lead.

    Switches that have no way to a host carry nothing; they are in the first guest.
    """
    left = list(fabric.switches)
    while left:
        ready = [switch for switch in left if any(other in guest_of for other in fabric.neighbours[switch])]
        if not ready:
            guest_of.update(dict.fromkeys(left, 0))
            return
        loads = _loads(guest_of, packets)
        for switch in sorted(ready, key=lambda one: (-packets[one], one)):
            links = Counter(guest_of[other] for other in _other_ends(fabric, switch) if other in guest_of)
            hosts = Counter(guest_of[other] for other in _other_ends(fabric, switch) if not other.is_switch)
            if hosts:
                guest_of[switch] = min(hosts, key=lambda guest: (-hosts[guest], loads[guest], guest))
            else:
                guest_of[switch] = min(links, key=lambda guest: (loads[guest], -links[guest], guest))
            loads[guest_of[switch]] += packets[switch]
        left = [switch for switch in left if switch not in guest_of]


def _other_ends(fabric: Fabric, switch: NodeId) -> Iterator[NodeId]:
    return (fabric.peer(port).node for port in fabric.ports_of[switch])
