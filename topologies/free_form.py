"""Any fabric, link by link: for what no other builder makes.

Every link is ``a-b`` or has keys of its own; a number of parallel links is ``count``. Names say what nodes are: hosts
``z0h000`` and ``st000``, leaves ``z0l00``, spines ``z0s00``, cores ``c00``, inter-zone switches ``ix0``. Hosts hang on
leaves; their NICs are numbered in the order of their links. What is above what follows from the links.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fabric.config import Strict
from fabric.errors import TopologyError
from fabric.model.identity import NodeId, Role, nic_ip
from fabric.model.network import Fabric, FabricBuilder, Tier
from topologies.keys import Delay, Positive, Rate, TopologySpec, nanoseconds


class LinkSpec(Strict):
    """A link, or ``count`` parallel ones. Without ``rate`` and ``delay``: those of all."""

    a: str
    b: str
    count: Positive = 1
    rate: Rate | None = None
    delay: Delay | None = None


class FreeFormSpec(TopologySpec):
    """The keys of a YAML file. ``nic_rate`` is of hosts' links, ``uplink_rate`` of all others."""

    builder: Literal["free_form"]
    links: Annotated[list[LinkSpec], Field(min_length=1)]
    switch_ports: Positive | None = None
    """Ports of every switch; by default as many as the busiest uses."""

    @field_validator("links", mode="before")
    @classmethod
    def _split(cls, links: object) -> object:
        """Read ``a-b`` as a link between the two."""
        if not isinstance(links, list):
            return links
        return [dict(zip("ab", link.split("-", 1), strict=False)) if isinstance(link, str) else link for link in links]


def build(spec: FreeFormSpec) -> Fabric:
    """Return the fabric. Raises TopologyError with every fault."""
    ends = [(_named(spec, link.a), _named(spec, link.b)) for link in spec.links]
    nodes = dict.fromkeys(node for pair in ends for node in pair)
    used = Counter(node for (a, b), link in zip(ends, spec.links, strict=True) for node in (a, b) * link.count)
    ports = spec.switch_ports or max((count for node, count in used.items() if node.is_switch), default=1)
    leaves = [node for node in nodes if node.role is Role.LEAF]
    zones = len({leaf.zone for leaf in leaves}) or 1
    hosts = sum(link.count for pair, link in zip(ends, spec.links, strict=True) if _tier(*pair) is Tier.ACCESS)
    above = sum(used[leaf] for leaf in leaves) - hosts
    access_ports = len(leaves) * ports - above
    builder = FabricBuilder(spec.name, zones, spec.mtu, access_ports, ports, spec.reference_nic_rate, spec.inside)
    for node in nodes:
        builder.add_node(node)
    for (a, b), link in zip(ends, spec.links, strict=True):
        for _ in range(link.count):
            _connect(builder, spec, a, b, link, zones)
    return builder.build()


def _named(spec: FreeFormSpec, name: str) -> NodeId:
    try:
        return NodeId.parse(name)
    except ValueError as error:
        raise TopologyError(spec.name, [f"links: {error}"]) from error


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
