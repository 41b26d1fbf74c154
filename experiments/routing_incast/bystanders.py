"""Readers next to an incast: pairs of hosts chosen by which ports their planned path shares with it.

With static routes, the answers of many servers to a client meet at the spine of that client. Two kinds of pairs show
how far its congestion reaches: those *apart* share no port with it as long as routes are static, yet lie where other
routes would lead it; those *crossing* share with it an uplink of a leaf, where nothing but its way to one spine is at
stake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, starmap

from controllers.planning.paths import planned_paths
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


def planned_ports(fabric: Fabric, plan: RoutePlan, pair: Pair) -> Ports:
    """Return the ports that send what a pair's reader reads by a plan, all that may if it hashes."""
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
    hosts = [nic.node for nic in fabric.nics if nic.zone == ZONE]
    leaves = {
        host: fabric.leaf_of(_nic(fabric, host)) for host in hosts if host not in {*incast.clients, *incast.servers}
    }
    used, possible = (
        frozenset().union(*(planned_ports(fabric, plan, pair) for pair in incast.pairs)) for plan in (static, hashed)
    )
    of_pair = {pair: planned_ports(fabric, static, pair) for pair in starmap(Pair, permutations(leaves, 2))}
    pairs = [pair for pair in of_pair if leaves[pair.server] != leaves[pair.reader]]
    fitting: dict[str, list[Pair]] = {CROSSING: [], APART: []}
    for pair in sorted(pairs, key=lambda pair: (-len(of_pair[pair] & possible), pair)):
        ends = {(port.node.role, fabric.peer(port).node.role) for port in of_pair[pair] & used}
        if ends == {(Role.LEAF, Role.SPINE)}:
            fitting[CROSSING].append(pair)
        if not ends and used.isdisjoint(of_pair[Pair(pair.reader, pair.server)]):
            fitting[APART].append(pair)
    chosen: dict[str, list[Pair]] = {APART: [], CROSSING: []}
    taken: set[Port] = set()
    wanted = {APART: apart, CROSSING: crossing}
    for kind, pairs in fitting.items():
        for pair in pairs:
            if len(chosen[kind]) < wanted[kind] and not taken & of_pair[pair]:
                taken |= of_pair[pair]
                chosen[kind].append(pair)
    if faults := [
        f"bystanders.{kind}: {wanted[kind]} wanted, {fabric.name} has room for {len(found)}; lower it"
        for kind, found in chosen.items()
        if len(found) < wanted[kind]
    ]:
        raise ConfigError("bystanders", faults)
    return {kind: tuple(found) for kind, found in chosen.items()}
