"""Which guest plays which part of a fabric, where several play one run.

A guest goes on while others do by as much as the least delay of a link between them, so parts are cut along such links,
and where few of them are: leaves stay with their hosts, and side by side with those of their zone.
"""

from __future__ import annotations

from collections import Counter
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
    """Return a fabric in as many parts, with equally many hosts as far as leaves allow.

    Raises UsageError if it has fewer hosts than that, or if a link between parts has no delay.
    """
    guest_of = _place_hosts(fabric, guests)
    _place_switches(fabric, guest_of)
    found = Partition(fabric, guests, guest_of)
    if undelayed := [link for link in found.crossing if link.delay_ns == 0]:
        raise UsageError(
            f"--guests {guests}: the link {undelayed[0]} would cross from one guest to another and has no delay; they "
            "would have to wait for each other at every moment: set topology.link_delay, such as to 1 us, or omit "
            "--guests"
        )
    return found


def _place_hosts(fabric: Fabric, guests: int) -> dict[NodeId, int]:
    """Return the guest of each host: those of one leaf together, unless that leaves a guest without hosts; those with
    NICs in several guests where the fewest are."""
    leaves = {host: frozenset(map(fabric.leaf_of, nics)) for host, nics in fabric.nics_of.items()}
    if len(leaves) < guests:
        raise UsageError(f"--guests {guests}: {fabric.name} has only {len(leaves)} hosts; use fewer guests")
    single = [host for host in fabric.hosts if len(leaves[host]) == 1]
    by_leaf = _in_rows([[host for host in single if leaves[host] == {leaf}] for leaf in fabric.switches], guests)
    if len(set(by_leaf.values())) < guests:
        return _in_rows([[host] for host in fabric.hosts], guests)
    guest_of_leaf = {leaf: guest for host, guest in by_leaf.items() for leaf in leaves[host]}
    for host in fabric.hosts:
        if host not in by_leaf:
            taken = Counter(by_leaf.values())
            near = {guest_of_leaf[leaf] for leaf in leaves[host] if leaf in guest_of_leaf} or set(range(guests))
            by_leaf[host] = min(near, key=lambda guest: (taken[guest], guest))
    return by_leaf


def _in_rows(groups: Sequence[Sequence[NodeId]], guests: int) -> dict[NodeId, int]:
    """Return a guest for each host, one after the other, equally many to each, and those of a group to the same."""
    share = sum(map(len, groups)) / guests
    placed: dict[NodeId, int] = {}
    for group in groups:
        middle = len(placed) + len(group) / 2
        placed |= {host: min(guests - 1, int(middle / share)) for host in group}
    return placed


def _place_switches(fabric: Fabric, guest_of: dict[NodeId, int]) -> None:
    """Put every switch where most of its links lead; of several with as many, where the fewest of its kind are.

    Switches that have no way to a host carry nothing; they are in the first guest.
    """
    left = list(fabric.switches)
    while left:
        ready = [switch for switch in left if any(other in guest_of for other in fabric.neighbours[switch])]
        if not ready:
            guest_of.update(dict.fromkeys(left, 0))
            return
        for switch in ready:
            links = Counter(guest_of[other] for other in _other_ends(fabric, switch) if other in guest_of)
            most = max(links.values())
            taken = Counter(guest for node, guest in guest_of.items() if node.role is switch.role)
            guest_of[switch] = min((guest for guest in links if links[guest] == most), key=lambda g: (taken[g], g))
        left = [switch for switch in left if switch not in guest_of]


def _other_ends(fabric: Fabric, switch: NodeId) -> Iterator[NodeId]:
    return (fabric.peer(port).node for port in fabric.ports_of[switch])
