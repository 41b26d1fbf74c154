"""Fire-Flyer 2's network: zones, each a two-layer fat-tree, joined by a few links through inter-zone switches.

::

               ix0                ix1               inter-zone switches
              /   \\              /   \\
    zone 0   s s s s   (spines)  s s s s   zone 1
             |X|X|X|             |X|X|X|
             l l l l   (leaves)  l l l l
             h h h st            h h h st           st000 has a NIC in every zone

Reproduces arXiv 2408.14158v2, section III-B. With Z zones of L leaves and S spines, U parallel uplinks from each leaf
to each spine, C compute and T storage nodes, W inter-zone switches and K inter-zone links per zone:

- switches: Z (L + S) + W
- NICs: C + Z T
- links: (C + Z T) + Z L S U + Z K

Compute nodes are split over the zones as evenly as possible, and dealt round-robin over a zone's leaves. Storage nodes
have a NIC in every zone and are dealt over the leaves in the same way (``spread``), starting at the leaf where compute
left off, or fill leaf after leaf (``packed``). Inter-zone links take leaf ports, spread over the emptiest leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from fabric.config import Strict
from fabric.errors import TopologyError
from fabric.model.identity import MAX_HOSTS_PER_GROUP, MAX_ZONES, NodeId, Role, nic_ip
from fabric.model.network import Fabric, FabricBuilder, Tier
from topologies.keys import Count, Delay, Outline, Ports, Positive, Rate, TopologySpec, nanoseconds, size_faults


class Placement(str, Enum):
    """Placement of storage nodes: dealt evenly over the leaves, or leaf after leaf."""

    SPREAD = "spread"
    PACKED = "packed"


class InterZoneSpec(Strict):
    """How zones are joined."""

    switches: Count = Field(default=0, description="Switches between zones.")
    links_per_zone: Count = Field(
        default=0, description="Links from each zone to these switches, from the emptiest leaves."
    )
    rate: Rate = Field(description="Rate of each of these links.")
    delay: Delay = Field(default=0.0, description="Propagation delay of each of these links.")


class ZonedFatTreeSpec(TopologySpec):
    """The keys of a YAML file. Counts without "per zone" are of the whole fabric."""

    builder: Literal["zoned_fat_tree"] = Field(
        description="How the fabric is built: zones, each a two-layer fat-tree, as in Fire-Flyer 2."
    )
    zones: Annotated[int, Field(ge=1, le=MAX_ZONES)] = Field(description="Zones.")
    leaves_per_zone: Positive = Field(description="Leaf switches per zone.")
    spines_per_zone: Positive = Field(description="Spine switches per zone.")
    switch_ports: Ports = Field(description="Ports of every switch; a design that needs more is refused.")
    uplinks_per_spine: Positive = Field(
        default=1, description="Parallel links from each leaf to each spine of its zone."
    )
    compute: Count = Field(description="Compute nodes in all, divided over the zones.")
    storage: Count = Field(description="Storage nodes in all, each with a NIC in every zone.")
    placement: Annotated[Placement, Field(strict=False)] = Field(
        default=Placement.SPREAD, description="Where storage nodes are: dealt evenly over leaves, or leaf after leaf."
    )
    inter_zone: InterZoneSpec | None = Field(
        default=None, description="Links and switches between zones. Without it, zones are not connected."
    )

    @property
    def uplinks(self) -> int:
        """Uplinks of a leaf."""
        return self.spines_per_zone * self.uplinks_per_spine

    @property
    def downlinks(self) -> int:
        """Ports of a leaf that face hosts."""
        return self.switch_ports - self.uplinks

    @property
    def inter_zone_links_per_zone(self) -> int:
        """Inter-zone links of each zone."""
        return self.inter_zone.links_per_zone if self.inter_zone else 0

    def computes_in(self, zone: int) -> int:
        """Return how many compute nodes a zone has: an even split, the first zones taking the remainder."""
        return self.compute // self.zones + (1 if zone < self.compute % self.zones else 0)


def build(spec: ZonedFatTreeSpec) -> Fabric:
    """Return the fabric. Raises TopologyError with every fault of the spec."""
    faults = list(_faults(spec))
    if faults:
        raise TopologyError(spec.name, faults)
    builder = FabricBuilder(
        name=spec.name,
        zones=spec.zones,
        mtu_bytes=spec.mtu,
        access_ports=spec.zones * spec.leaves_per_zone * spec.downlinks,
        switch_ports=spec.switch_ports,
        reference_nic_rate_bps=spec.reference_nic_rate,
        inside=spec.inside,
    )
    add_switches(builder, spec)
    free_ports = {zone: [spec.downlinks] * spec.leaves_per_zone for zone in range(spec.zones)}
    next_leaf = attach_compute(builder, spec, free_ports)
    attach_storage(builder, spec, free_ports, next_leaf)
    join_leaves_and_spines(builder, spec)
    join_zones(builder, spec, free_ports)
    return builder.build()


def outline(spec: ZonedFatTreeSpec) -> Outline:
    """Return how large the fabric is."""
    joining = spec.inter_zone.switches if spec.inter_zone else 0
    switches = spec.zones * (spec.leaves_per_zone + spec.spines_per_zone) + joining
    return Outline(spec.compute + spec.storage, switches, spec.nic_rate)


def add_switches(builder: FabricBuilder, spec: ZonedFatTreeSpec) -> None:
    """Add every leaf, spine and inter-zone switch."""
    for zone in range(spec.zones):
        for index in range(spec.leaves_per_zone):
            builder.add_node(_leaf(zone, index))
        for index in range(spec.spines_per_zone):
            builder.add_node(_spine(zone, index))
    for index in range(spec.inter_zone.switches if spec.inter_zone else 0):
        builder.add_node(_inter_zone(index))


def attach_compute(builder: FabricBuilder, spec: ZonedFatTreeSpec, free_ports: dict[int, list[int]]) -> dict[int, int]:
    """Deal each zone's compute nodes round-robin over its leaves. Returns the leaf after each zone's last."""
    next_leaf = {}
    for zone in range(spec.zones):
        for index in range(spec.computes_in(zone)):
            node = builder.add_node(NodeId(Role.COMPUTE, zone, index))
            _plug(builder, spec, node, zone, index % spec.leaves_per_zone, free_ports)
        next_leaf[zone] = spec.computes_in(zone) % spec.leaves_per_zone
    return next_leaf


def attach_storage(
    builder: FabricBuilder, spec: ZonedFatTreeSpec, free_ports: dict[int, list[int]], next_leaf: dict[int, int]
) -> None:
    """Give each storage node a NIC in every zone, on the leaves chosen by ``placement``; NIC number = zone."""
    for index in range(spec.storage):
        node = builder.add_node(NodeId(Role.STORAGE, None, index))
        for zone in range(spec.zones):
            if spec.placement is Placement.SPREAD:
                leaf = (next_leaf[zone] + index) % spec.leaves_per_zone
            else:
                leaf = next(number for number, free in enumerate(free_ports[zone]) if free)
            _plug(builder, spec, node, zone, leaf, free_ports)


def join_leaves_and_spines(builder: FabricBuilder, spec: ZonedFatTreeSpec) -> None:
    """Join every leaf to every spine of its zone."""
    for zone in range(spec.zones):
        for leaf in range(spec.leaves_per_zone):
            for spine in range(spec.spines_per_zone):
                for _ in range(spec.uplinks_per_spine):
                    ends = _leaf(zone, leaf), _spine(zone, spine)
                    builder.connect(*ends, spec.uplink_rate, Tier.UPLINK, nanoseconds(spec.link_delay))


def join_zones(builder: FabricBuilder, spec: ZonedFatTreeSpec, free_ports: dict[int, list[int]]) -> None:
    """Give each zone its inter-zone links, each from the leaf with the most free ports, dealt over the switches."""
    if spec.inter_zone is None:
        return
    for zone in range(spec.zones):
        for index in range(spec.inter_zone.links_per_zone):
            free = free_ports[zone]
            leaf = free.index(max(free))
            free[leaf] -= 1
            switch = _inter_zone(index % spec.inter_zone.switches)
            delay_ns = nanoseconds(spec.inter_zone.delay)
            builder.connect(_leaf(zone, leaf), switch, spec.inter_zone.rate, Tier.INTER_ZONE, delay_ns)


def _plug(
    builder: FabricBuilder,
    spec: ZonedFatTreeSpec,
    node: NodeId,
    zone: int,
    leaf: int,
    free_ports: dict[int, list[int]],
) -> None:
    free_ports[zone][leaf] -= 1
    address = nic_ip(node, zone, spec.block if node.role is Role.COMPUTE else 1)
    builder.connect(node, _leaf(zone, leaf), spec.nic_rate, Tier.ACCESS, nanoseconds(spec.link_delay), address)


def _leaf(zone: int, index: int) -> NodeId:
    return NodeId(Role.LEAF, zone, index)


def _spine(zone: int, index: int) -> NodeId:
    return NodeId(Role.SPINE, zone, index)


def _inter_zone(index: int) -> NodeId:
    return NodeId(Role.INTER_ZONE, None, index)


def _faults(spec: ZonedFatTreeSpec) -> Iterator[str]:
    """Yield what cannot be wired, each with the value, the limit and what to change."""
    yield from _host_faults(spec)
    joining = spec.inter_zone.switches if spec.inter_zone else 0
    switches = {
        "leaves_per_zone": spec.leaves_per_zone,
        "spines_per_zone": spec.spines_per_zone,
        "inter_zone.switches": joining,
    }
    of_zone = spec.storage + spec.leaves_per_zone * spec.uplinks + spec.inter_zone_links_per_zone
    yield from size_faults(switches, spec.compute + spec.zones * of_zone)
    yield from _port_faults(spec)
    yield from _inter_zone_faults(spec)


def _host_faults(spec: ZonedFatTreeSpec) -> Iterator[str]:
    if spec.compute + spec.storage == 0:
        yield "compute: 0 and storage: 0 leave no host; set one of them"
    for key, value in (("compute", spec.computes_in(0)), ("storage", spec.storage)):
        if value > MAX_HOSTS_PER_GROUP:
            yield f"{key}: {value} per zone exceeds {MAX_HOSTS_PER_GROUP}, the most that the addresses allow; use fewer"


def _port_faults(spec: ZonedFatTreeSpec) -> Iterator[str]:
    if spec.downlinks < 1:
        yield (
            f"switch_ports: {spec.switch_ports} leaves no port for hosts next to {spec.uplinks} uplinks of a leaf; "
            "raise switch_ports, or lower spines_per_zone or uplinks_per_spine"
        )
        return
    spine_ports = spec.leaves_per_zone * spec.uplinks_per_spine
    if spine_ports > spec.switch_ports:
        yield (
            f"leaves_per_zone: a spine needs {spine_ports} ports, has {spec.switch_ports}; "
            "lower leaves_per_zone or raise switch_ports"
        )
    wanted = spec.computes_in(0) + spec.storage + spec.inter_zone_links_per_zone
    offered = spec.leaves_per_zone * spec.downlinks
    if wanted > offered:
        yield (
            f"zone 0: {spec.computes_in(0)} compute, {spec.storage} storage NICs and {spec.inter_zone_links_per_zone} "
            f"inter-zone links need {wanted} leaf ports, has {offered}; use fewer, or more leaves or switch_ports"
        )


def _inter_zone_faults(spec: ZonedFatTreeSpec) -> Iterator[str]:
    if spec.zones == 1 and spec.inter_zone is not None:
        yield "inter_zone: there is only 1 zone; remove inter_zone or raise zones"
    if spec.zones > 1 and (spec.inter_zone is None or 0 in (spec.inter_zone.switches, spec.inter_zone.links_per_zone)):
        yield f"inter_zone: {spec.zones} zones need at least 1 switch and 1 link a zone to reach each other; set them"
        return
    if spec.inter_zone is None:
        return
    switches, links = spec.inter_zone.switches, spec.inter_zone.links_per_zone
    if switches > links:
        yield f"inter_zone.switches: {links} links a zone cannot use all {switches} switches; raise links_per_zone"
    needed = spec.zones * -(-links // switches)
    if needed > spec.switch_ports:
        yield f"inter_zone: a switch needs {needed} ports, has {spec.switch_ports}; add switches or use fewer links"
