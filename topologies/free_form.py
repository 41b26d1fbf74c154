"""Any fabric, link by link: for what no other builder makes.

Every link is ``a-b`` or has keys of its own; a number of parallel links is ``count``. Names say what nodes are: hosts
``z0h000`` and ``st000``, leaves ``z0l00``, spines ``z0s00``, cores ``c00``, inter-zone switches ``ix0``; or nodes have
names of the user's own (:mod:`topologies.own_names`). Hosts hang on leaves; their NICs are numbered in the order of
their links. What is above what follows from the links. Spines are not needed: a leaf may be alone, or joined to leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fabric.config import Strict
from fabric.errors import TopologyError
from fabric.model.identity import MAX_HOSTS_PER_GROUP, MAX_ZONES, NodeId, Role, nic_ip
from fabric.model.network import Fabric, FabricBuilder, Tier
from topologies.keys import (
    MAX_NICS,
    MAX_SWITCH_PORTS,
    Delay,
    Outline,
    Ports,
    Rate,
    TopologySpec,
    nanoseconds,
    size_faults,
)
from topologies.own_names import assigned


class LinkSpec(Strict):
    """A link, or several parallel ones."""

    a: str = Field(description="Node at one end.")
    b: str = Field(description="Node at the other end.")
    count: Ports = Field(default=1, description="Parallel links between the two.")
    rate: Rate | None = Field(
        default=None, description="Rate of the link. Without it, that of hosts' links or of uplinks."
    )
    delay: Delay | None = Field(default=None, description="Propagation delay. Without it, `link_delay`.")


class FreeFormSpec(TopologySpec):
    """The keys of a YAML file. ``nic_rate`` is of hosts' links, ``uplink_rate`` of all others."""

    builder: Literal["free_form"] = Field(description="How the fabric is built: link by link.")
    links: Annotated[list[LinkSpec], Field(min_length=1)] = Field(description="The links between nodes.")
    nodes: dict[str, str] = Field(
        default_factory=dict,
        description="What nodes are if names do not say: `host`, `storage` or `switch`, or which node (`z0h003`).",
    )
    switch_ports: Ports | None = Field(
        default=None, description="Ports of every switch. Without it, as many as the busiest uses."
    )

    @field_validator("links", mode="before")
    @classmethod
    def _split(cls, links: object) -> object:
        """Read ``a-b``, and containerlab's ``endpoints``, as a link between the two."""
        if not isinstance(links, list):
            return links
        return [_ends(link) if isinstance(link, str) else _from_endpoints(link) for link in links]


def _ends(link: str) -> dict[str, str]:
    if link.count("-") > 1:
        a, b = link.split("-", 1)
        raise ValueError(f"{link!r} has more than one '-'; write it as {{a: {a}, b: {b}}}, or where its names end")
    return dict(zip("ab", (end.strip() for end in link.split("-")), strict=False))


def _from_endpoints(link: object) -> object:
    """Return a link with ``endpoints: [client1:eth1, leaf1:e1-1]`` as one with ``a`` and ``b``; others as they are.

    What ports are called there is not kept: they are numbered in the order of links, which ours always are.
    """
    if not isinstance(link, dict) or "endpoints" not in link:
        return link
    ends = link["endpoints"]
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        raise ValueError(f"endpoints: {ends!r} are not two ends, such as [client1:eth1, leaf1:e1-1]")
    if "a" in link or "b" in link:
        raise ValueError(f"endpoints: {ends!r} and a or b say twice what it joins; leave either out")
    rest = {key: value for key, value in link.items() if key != "endpoints"}
    return dict(zip("ab", (end.partition(":")[0] for end in ends), strict=True)) | rest


def build(spec: FreeFormSpec) -> Fabric:
    """Return the fabric. Raises TopologyError with every fault."""
    named = assigned(spec.name, [(link.a, link.b) for link in spec.links], spec.nodes)
    ends = [(named[link.a], named[link.b]) for link in spec.links]
    used: Counter[NodeId] = Counter()
    for (a, b), link in zip(ends, spec.links, strict=True):
        used.update({a: link.count})
        used.update({b: link.count})
    too_large = size_faults({}, sum(link.count for link in spec.links))
    faults = [*too_large, *_node_faults(named, used), *_zone_faults(named), *_link_faults(spec, ends)]
    if faults:
        raise TopologyError(spec.name, faults)
    ports = spec.switch_ports or max((count for node, count in used.items() if node.is_switch), default=1)
    leaves = [node for node in used if node.role is Role.LEAF]
    zones = len({leaf.zone for leaf in leaves}) or 1
    hosts = sum(link.count for pair, link in zip(ends, spec.links, strict=True) if _tier(*pair) is Tier.ACCESS)
    above = sum(used[leaf] for leaf in leaves) - hosts
    access_ports = len(leaves) * ports - above
    builder = FabricBuilder(spec.name, zones, spec.mtu, access_ports, ports, spec.reference_nic_rate, spec.inside)
    for node in named.values():
        builder.add_node(node)
    for (a, b), link in zip(ends, spec.links, strict=True):
        for _ in range(link.count):
            _connect(builder, spec, a, b, link, zones)
    return builder.build({node: name for name, node in named.items() if name != node.name})


def outline(spec: FreeFormSpec) -> Outline:
    """Return how large the fabric is, by building it. Raises TopologyError."""
    fabric = build(spec)
    return Outline(len(fabric.hosts), len(fabric.switches), fabric.nic_rate_bps)


def _node_faults(named: dict[str, NodeId], used: Counter[NodeId]) -> Iterator[str]:
    """Yield nodes that two names mean, numbers beyond what addresses and DPIDs hold, and that there is no host."""
    names: dict[NodeId, list[str]] = {}
    for name, node in named.items():
        names.setdefault(node, []).append(name)
    for node, found in names.items():
        if len(found) > 1:
            yield f"nodes: {' and '.join(found)} are both {node}; give each its own"
        if node.index >= MAX_HOSTS_PER_GROUP:
            yield f"node {found[0]}: number {node.index} exceeds {MAX_HOSTS_PER_GROUP - 1}; use a lower one"
        limit, what = (MAX_SWITCH_PORTS, "ports") if node.is_switch else (MAX_NICS, "NICs")
        if used[node] > limit:
            yield f"node {found[0]}: {used[node]} {what} exceed {limit}; use fewer links"
    if all(node.is_switch for node in names):
        yield "links: no link has a host; add one to a leaf, e.g. z0h000-z0l00"


def _zone_faults(named: dict[str, NodeId]) -> Iterator[str]:
    """Yield zones that are not numbered from 0, or have no leaf."""
    leaves = {node.zone for node in named.values() if node.role is Role.LEAF}
    zones = sorted({node.zone for node in named.values() if node.zone is not None})
    if not leaves or (leaves == set(zones) == set(range(len(zones))) and len(zones) <= MAX_ZONES):
        return  # Without any leaf, what hosts hang on is wrong.
    for name, node in named.items():
        if node.zone is not None and node.zone not in leaves:
            yield f"node {name}: zone {node.zone} has no leaf; add z{node.zone}l00, or name it of a zone that has one"
            return
    yield f"zones: {', '.join(map(str, zones))}; number them from 0 to at most {MAX_ZONES - 1}, and leave none out"


def _link_faults(spec: FreeFormSpec, ends: list[tuple[NodeId, NodeId]]) -> Iterator[str]:
    """Yield links of a node to itself and between hosts, and in several zones those of NICs that would share an
    address."""
    zones = {node.zone for pair in ends for node in pair if node.role is Role.LEAF}
    seen: Counter[tuple[Role, int | None, int]] = Counter()
    for (a, b), link in zip(ends, spec.links, strict=True):
        host, other = (a, b) if not a.is_switch else (b, a)
        text = f"link {link.a}-{link.b}"
        if a == b:
            yield f"{text}: joins {link.a} to itself; name the node at its other end"
            continue
        if host.is_switch:
            continue
        if not other.is_switch:
            yield f"{text}: joins two hosts; put a switch between them, with a link to each"
        seen[host.role, other.zone, host.index] += link.count
        if len(zones) > 1 and seen[host.role, other.zone, host.index] > 1:
            one = f"of several zones, NICs in one need hosts of different numbers; {host.index} is taken in it"
            yield f"{text}: {one}"


def _connect(builder: FabricBuilder, spec: FreeFormSpec, a: NodeId, b: NodeId, link: LinkSpec, zones: int) -> None:
    tier = _tier(a, b)
    rate = link.rate or (spec.nic_rate if tier is Tier.ACCESS else spec.uplink_rate)
    delay_ns = nanoseconds(spec.link_delay if link.delay is None else link.delay)
    host, leaf = (a, b) if b.is_switch else (b, a)
    address = None
    if not host.is_switch:
        number = builder.links_of(host) if zones == 1 else leaf.zone or 0
        address = nic_ip(host, number, spec.block if host.role is Role.COMPUTE else 1)
    builder.connect(a, b, rate, tier, delay_ns, address)


def _tier(a: NodeId, b: NodeId) -> Tier:
    if not (a.is_switch and b.is_switch):
        return Tier.ACCESS
    return Tier.INTER_ZONE if Role.INTER_ZONE in (a.role, b.role) else Tier.UPLINK
