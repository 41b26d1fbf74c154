"""Readers next to an incast: pairs of hosts chosen by which ports their planned path shares with it.

With static routes, the answers of many servers to a client meet at the spine of that client. Two kinds of pairs show
how far its congestion reaches: those *apart* share no port with it as long as routes are static, yet lie where other
routes would lead it; those *crossing* share with it an uplink of a leaf, where nothing but its way to one spine is at
stake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from controllers.planning.paths import planned_path, planned_paths
from controllers.planning.plan import RoutePlan
from fabric.errors import ConfigError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port

APART, CROSSING = "apart", "crossing"
ZONE = 0
Ports = frozenset[Port]


@dataclass(frozen=True, order=True)
class Pair:
    """A host that reads and the one that serves it."""

    server: NodeId
    reader: NodeId


@dataclass(frozen=True)
class Incast:
    """Who reads, each of all servers at once; all in one zone."""

    clients: tuple[NodeId, ...]
    servers: tuple[NodeId, ...]

    @classmethod
    def of(cls, fabric: Fabric, clients: int, servers: int | None) -> Incast:
        """Return the incast of the zone's last computes, away from packed storage, and first storage nodes (None: all).

        Raises ConfigError if there are not so many.
        """
        computes = fabric.with_role(Role.COMPUTE, ZONE)
        found = cls(computes[-clients:], fabric.storages[:servers])
        faults = []
        if len(found.clients) < clients:
            faults.append(f"incast.clients: {clients} exceed the {len(computes)} compute nodes of zone {ZONE}")
        if len(found.servers) < max(2, servers or 0):
            have = f"the topology has {len(fabric.storages)} storage nodes"
            faults.append(f"incast.servers: {max(2, servers or 0)} are needed, {have}; give it more")
        if faults:
            raise ConfigError("incast", faults)
        return found

    @property
    def pairs(self) -> Iterator[Pair]:
        """Every server with every client."""
        return (Pair(server, client) for client in self.clients for server in self.servers)


def static_ports(fabric: Fabric, plan: RoutePlan, pair: Pair) -> Ports:
    """Return the ports that send what a pair's reader reads, by a plan that does not hash."""
    return frozenset(planned_path(plan, fabric, _nic(fabric, pair.server), _nic(fabric, pair.reader)))


def possible_ports(fabric: Fabric, plan: RoutePlan, pair: Pair) -> Ports:
    """Return the ports that may send what a pair's reader reads, by a plan that hashes."""
    paths = planned_paths(plan, fabric, _nic(fabric, pair.server), _nic(fabric, pair.reader))
    return frozenset(port for path, _ in paths for port in path)


def _nic(fabric: Fabric, host: NodeId) -> Nic:
    nic = fabric.nic_in_zone(host, ZONE)
    assert nic is not None  # Only hosts of this zone are chosen.
    return nic


def choose_bystanders(
    fabric: Fabric, static: RoutePlan, hashed: RoutePlan, incast: Incast, apart: int, crossing: int
) -> dict[str, tuple[Pair, ...]]:
    """Return the pairs of each kind, which share no port with one another and no host with the incast.

    Every path crosses a spine. Pairs apart, and what their readers send back, share no port with the incast by
    ``static``; those are taken first that share most with where ``hashed`` may lead it. Pairs crossing share uplinks of
    leaves with it, and no other port. Raises ConfigError if there are fewer than wanted.
    """
    choice = _Choice(fabric, static, hashed, incast)
    chosen = {CROSSING: choice.take(choice.crosses, crossing), APART: choice.take(choice.is_apart, apart)}
    faults = [
        f"bystanders.{kind}: {wanted} wanted, {fabric.name} has room for {len(chosen[kind])}; lower it"
        for kind, wanted in ((APART, apart), (CROSSING, crossing))
        if len(chosen[kind]) < wanted
    ]
    if faults:
        raise ConfigError("bystanders", faults)
    return {APART: chosen[APART], CROSSING: chosen[CROSSING]}


class _Choice:
    """What the incast uses, what it might use, and what is left for others."""

    def __init__(self, fabric: Fabric, static: RoutePlan, hashed: RoutePlan, incast: Incast) -> None:
        self._fabric = fabric
        self._plan = static
        self._used: Ports = frozenset().union(*(static_ports(fabric, static, pair) for pair in incast.pairs))
        self._possible: Ports = frozenset().union(*(possible_ports(fabric, hashed, pair) for pair in incast.pairs))
        hosts = [nic.node for nic in fabric.nics if nic.zone == ZONE]
        self._free = [host for host in hosts if host not in {*incast.clients, *incast.servers}]
        self._taken: set[Port] = set()

    def take(self, fits: Callable[[Pair], bool], count: int) -> tuple[Pair, ...]:
        """Return up to ``count`` pairs that fit, those first which share most with where the incast might be led."""
        apart = (Pair(*hosts) for hosts in permutations(self._free, 2) if self._crosses_spine(hosts))
        pairs = [pair for pair in apart if fits(pair)]
        found: list[Pair] = []
        for pair in sorted(pairs, key=lambda pair: (-len(self._ports(pair) & self._possible), pair)):
            ports = self._ports(pair)
            if len(found) < count and not self._taken & ports:
                self._taken |= ports
                found.append(pair)
        return tuple(found)

    def _ports(self, pair: Pair) -> Ports:
        return static_ports(self._fabric, self._plan, pair)

    def _crosses_spine(self, hosts: Sequence[NodeId]) -> bool:
        leaves = {self._fabric.leaf_of(_nic(self._fabric, host)) for host in hosts}
        return len(leaves) == 2

    def is_apart(self, pair: Pair) -> bool:
        """Whether neither what is read nor what acknowledges it shares a port with the incast."""
        back = self._ports(Pair(pair.reader, pair.server))
        return self._used.isdisjoint(self._ports(pair) | back)

    def crosses(self, pair: Pair) -> bool:
        """Whether a pair shares uplinks of leaves with the incast, and no other port."""
        shared = self._ports(pair) & self._used
        return bool(shared) and all(_is_uplink(self._fabric, port) for port in shared)


def _is_uplink(fabric: Fabric, port: Port) -> bool:
    return port.node.role is Role.LEAF and fabric.peer(port).node.role is Role.SPINE


def tiers(fabric: Fabric, clients: Collection[NodeId]) -> dict[Port, str]:
    """Return what kind each port is: by what it sends from and to, those to clients of the incast apart."""
    found = {}
    for port, _ in fabric.directed_ports():
        peer = fabric.peer(port).node
        if not peer.is_switch:
            found[port] = TO_CLIENT if peer in clients else TO_OTHERS
        elif not port.node.is_switch:
            found[port] = FROM_HOSTS
        else:
            found[port] = _SWITCH_TIERS.get((port.node.role, peer.role), OTHER)
    return found


TO_CLIENT, TO_OTHERS, FROM_HOSTS = "leaf → client", "leaf → other hosts", "host → leaf"
UP, DOWN, OTHER = "leaf → spine", "spine → leaf", "inter-zone"
TIERS = (TO_CLIENT, DOWN, UP, TO_OTHERS, OTHER)
"""Of switches, from the client backwards."""
_SWITCH_TIERS = {(Role.LEAF, Role.SPINE): UP, (Role.SPINE, Role.LEAF): DOWN}
