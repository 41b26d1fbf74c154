"""Which NICs of its hosts a job uses: the one place where that is decided (pure).

By default a job uses all that reach each other. What depends on one path, such as a probe, names its NIC itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fabric.errors import TopologyError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port

Rails = dict[NodeId, tuple[Nic, ...]]
"""The NICs of each host of a job, in the order in which they meet those of the others."""


def rails_in_common(fabric: Fabric, hosts: Iterable[NodeId], zone: int | None = None) -> Rails:
    """Return the NICs by which each host takes part in what all do together, in ``zone`` if that is given.

    Of one network that is all that a host has in it. Of several networks, such as planes, in which all have NICs, it is
    equally many of each, so that those of the same place reach each other. A node with an inside has one, its CPU's:
    its GPUs have their own (:meth:`Fabric.address_inside`). Raises TopologyError if there is no such network.
    """
    chosen = list(dict.fromkeys(hosts))
    found: dict[int, dict[NodeId, list[Nic]]] = {}
    for host in chosen:
        for nic in _usable(fabric, host, zone):
            found.setdefault(fabric.network_of(nic), {}).setdefault(host, []).append(nic)
    shared = [nics for _, nics in sorted(found.items()) if len(nics) == len(chosen)]
    if not shared:
        where = "" if zone is None else f" in zone {zone}"
        raise TopologyError(fabric.name, [f"no network has a NIC{where} of each of {len(chosen)} hosts; choose others"])
    if len(shared) == 1:
        return {host: tuple(shared[0][host]) for host in chosen}
    counts = [min(map(len, nics.values())) for nics in shared]
    return {
        host: tuple(nic for nics, count in zip(shared, counts, strict=True) for nic in nics[host][:count])
        for host in chosen
    }


def _usable(fabric: Fabric, host: NodeId, zone: int | None) -> list[Nic]:
    """Return a host's NICs that may share its load: of one zone, since a storage node speaks in each of its own."""
    nics = fabric.nics_of[host]
    wanted = nics[0].zone if zone is None else zone
    in_zone = [nic for nic in nics if nic.zone == wanted]
    return in_zone[:1] if host in fabric.hosts_with_inside else in_zone


def most_nics(rails: Rails) -> int:
    """Return how many NICs the host with the most has; 0 of no hosts."""
    return max(map(len, rails.values()), default=0)


def met_nics(here: tuple[Nic, ...], there: tuple[Nic, ...]) -> list[tuple[Nic, Nic]]:
    """Return the pairs of NICs over which two hosts divide what they send each other: each NIC is in one at least."""
    count = max(len(here), len(there))
    return [(here[place % len(here)], there[place % len(there)]) for place in range(count)]


def nic_pairs(fabric: Fabric, source: NodeId, destination: NodeId) -> list[tuple[Nic, Nic]]:
    """Return the pairs of NICs over which two hosts divide what they send each other; none if none reach each other.
    The first is that of :meth:`Fabric.nic_pair`, unless they have several networks in common."""
    first = fabric.nic_pair(source, destination)
    if first is None:
        return []
    is_storage = Role.STORAGE in (source.role, destination.role)
    try:
        rails = rails_in_common(fabric, (source, destination), first[0].zone if is_storage else None)
    except TopologyError:  # Of several zones and networks they have a pair, but not in those of their first NICs.
        return [first]
    return met_nics(rails[source], rails[destination])


def dealt_nics(fabric: Fabric, flows: Sequence[tuple[NodeId, NodeId, int]]) -> list[tuple[Nic, Nic]]:
    """Return the NICs between which each flow goes, of (source, destination, bytes), between hosts that reach each
    other: where these have several, those that carry least of the flows before it."""
    sent, received = Counter[Port](), Counter[Port]()
    found = []
    for source, destination, size_bytes in flows:
        pairs = nic_pairs(fabric, source, destination)
        one, other = min(pairs, key=lambda pair: sent[pair[0].port] + received[pair[1].port])
        sent[one.port] += size_bytes
        received[other.port] += size_bytes
        found.append((one, other))
    return found
