"""Fat-trees of two or three layers: pods of leaves and spines, and cores above them; hosts with one or several NICs.

::

              c00 c01 c02 c03                core switches; none: pods are planes, or there is one pod only
             /   |       |   \\
    pod 0   s s   (spines)  s s   pod 1
            |X|             |X|
            l l   (leaves)  l l
            h h             h h              a host's NICs are all in its pod (in_pod), or NIC r in pod r (across_pods)

With P pods of L leaves and S spines, U links from each leaf to each spine of its pod, K links from each spine to cores,
C cores, H hosts of R NICs:

- switches: P (L + S) + C
- NICs: H R
- links: H R + P L S U + P S K

The cores are in G groups. The first S / G spines of every pod have their links to the cores of the first group, dealt
in turn, and so on; with G = S, C = G K this is the k-ary fat-tree. Hosts are numbered pod by pod and leaf by leaf. In
a pod of N hosts, NIC r of host j is number r N + j, and these are dealt to leaves in order: NICs of one number, a rail,
share leaves. ``across_pods`` deals NIC r of every host to pod r mod P in the same way.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from fabric.config import RateBps, Strict
from fabric.errors import TopologyError
from fabric.model.identity import MAX_HOSTS_PER_GROUP, NodeId, Role, nic_ip
from fabric.model.network import Fabric, FabricBuilder, Tier
from topologies.keys import MAX_NICS, Count, Outline, Ports, Positive, TopologySpec, nanoseconds, size_faults

_RATE: TypeAdapter[int] = TypeAdapter(RateBps)
_ROUNDED = 0.005
"""By how much an oversubscription may differ from what whole links make: 3.33 is 10 / 3."""


class Nics(str, Enum):
    """Where the NICs of a host are: all in its pod, or each in the pod of its number."""

    IN_POD = "in_pod"
    ACROSS_PODS = "across_pods"


class CoreSpec(Strict):
    """The switches above the spines of all pods."""

    switches: Positive = Field(description="Core switches in all.")
    groups: Positive = Field(
        default=1,
        description=(
            "Groups of core switches. Spines are divided among them; as many as spines per pod is the k-ary fat-tree."
        ),
    )
    links_per_spine: Positive = Field(description="Links from each spine to cores of its group.")


class FatTreeSpec(TopologySpec):
    """The keys of a YAML file. Counts without "per" are of the whole fabric."""

    builder: Literal["fat_tree"] = Field(description="How the fabric is built: a fat-tree of two or three layers.")
    pods: Positive = Field(default=1, description="Pods (with cores above them), or planes (without).")
    leaves_per_pod: Positive = Field(description="Leaf switches per pod.")
    spines_per_pod: Positive = Field(description="Spine switches per pod. `oversubscription` says it, too.")
    uplinks_per_spine: Positive = Field(
        default=1, description="Parallel links from each leaf to each spine of its pod."
    )
    cores: CoreSpec | None = Field(
        default=None, description="Core switches above the spines. Without it, pods are planes, or there is one pod."
    )
    oversubscription: Annotated[float, Field(ge=0.01, le=1000)] | None = Field(
        default=None,
        description=(
            "Rate of a leaf's ports for hosts over that of its uplinks, from which `spines_per_pod` follows. Leaves "
            "with free ports have less."
        ),
    )
    switch_ports: Ports = Field(description="Ports of every switch; a design that needs more is refused.")
    compute: Positive = Field(description="Compute nodes in all.")
    nics_per_host: Annotated[int, Field(ge=1, le=MAX_NICS)] = Field(default=1, description="NICs of each compute node.")
    nics: Annotated[Nics, Field(strict=False)] = Field(
        default=Nics.IN_POD,
        description="Where the NICs of a host are: all in its pod, or each in the pod of its number.",
    )
    storage: Count = Field(default=0, description="Storage nodes with one NIC each, dealt evenly over all leaves.")

    @model_validator(mode="before")
    @classmethod
    def _derive_spines(cls, data: Any) -> Any:
        """Say how many spines an oversubscription makes, where it is not said."""
        if isinstance(data, Mapping) and data.get("oversubscription") is not None and "spines_per_pod" not in data:
            spines = 1  # Where a key that it takes is missing or wrong, that is said, and not that this one is.
            with contextlib.suppress(KeyError, TypeError, ValueError):
                spines = max(1, round(_spines_of(data)))
            return {**data, "spines_per_pod": spines}
        return data

    @model_validator(mode="after")
    def _verify_oversubscription(self) -> FatTreeSpec:
        up = self.switch_ports - self.downlinks
        if self.oversubscription is None or self.downlinks < 1:
            return self
        made = self.downlinks * self.nic_rate / (up * self.uplink_rate)
        if not math.isclose(made, self.oversubscription, rel_tol=_ROUNDED):
            raise ValueError(
                f"oversubscription: {self.oversubscription:g}, and {self.spines_per_pod} spines_per_pod make "
                f"{made:.4g} ({self.downlinks} ports of a leaf down, {up} up); use {made:.4g}, or other switch_ports, "
                "uplinks_per_spine or spines_per_pod"
            )
        return self

    @property
    def leaves(self) -> int:
        """All leaves."""
        return self.pods * self.leaves_per_pod

    @property
    def downlinks(self) -> int:
        """Ports of a leaf that face hosts."""
        return self.switch_ports - self.spines_per_pod * self.uplinks_per_spine

    @property
    def nics_by_pod(self) -> int:
        """NICs that a host has in a pod, where it has any there."""
        return self.nics_per_host if self.nics is Nics.IN_POD else self.nics_per_host // self.pods

    def leaf_of(self, host: int, nic: int) -> int:
        """Return the leaf that a NIC of a compute node is plugged into."""
        if self.nics is Nics.ACROSS_PODS:
            place = host * self.nics_by_pod + nic // self.pods
            share = place * self.leaves_per_pod // (self.compute * self.nics_by_pod)
            return nic % self.pods * self.leaves_per_pod + share
        pod = host * self.pods // self.compute
        first, end = (-(-number * self.compute // self.pods) for number in (pod, pod + 1))
        place = nic * (end - first) + host - first
        share = place * self.leaves_per_pod // ((end - first) * self.nics_per_host)
        return pod * self.leaves_per_pod + share

    def leaf_of_storage(self, host: int) -> int:
        """Return the leaf that a storage node is plugged into."""
        return host * self.leaves // self.storage


def _spines_of(data: Mapping[str, Any]) -> float:
    """Return how many spines per pod an oversubscription makes, as a rule a whole number: of a leaf's ports, so many go
    up that the others' rate is that much larger. Raises ValueError, TypeError, KeyError."""
    ports, links = int(data["switch_ports"]), int(data.get("uplinks_per_spine", 1))
    nic_bps, uplink_bps = (_RATE.validate_python(data[key]) for key in ("nic_rate", "uplink_rate"))
    up = ports * nic_bps / (nic_bps + float(data["oversubscription"]) * uplink_bps)
    return float(up / links)


def build(spec: FatTreeSpec) -> Fabric:
    """Return the fabric. Raises TopologyError with every fault of the spec."""
    if faults := _faults(spec):
        raise TopologyError(spec.name, faults)
    builder = FabricBuilder(
        name=spec.name,
        zones=1,
        mtu_bytes=spec.mtu,
        access_ports=spec.leaves * spec.downlinks,
        switch_ports=spec.switch_ports,
        reference_nic_rate_bps=spec.reference_nic_rate,
        inside=spec.inside,
    )
    _add_switches(builder, spec)
    _attach_hosts(builder, spec)
    _join_leaves_and_spines(builder, spec)
    _join_spines_and_cores(builder, spec)
    return builder.build()


def outline(spec: FatTreeSpec) -> Outline:
    """Return how large the fabric is."""
    cores = spec.cores.switches if spec.cores else 0
    switches = spec.pods * (spec.leaves_per_pod + spec.spines_per_pod) + cores
    return Outline(spec.compute + spec.storage, switches, spec.nic_rate)


def _add_switches(builder: FabricBuilder, spec: FatTreeSpec) -> None:
    for index in range(spec.leaves):
        builder.add_node(_leaf(index))
    for index in range(spec.pods * spec.spines_per_pod):
        builder.add_node(_spine(index))
    for index in range(spec.cores.switches if spec.cores else 0):
        builder.add_node(_core(index))


def _attach_hosts(builder: FabricBuilder, spec: FatTreeSpec) -> None:
    for index in range(spec.compute):
        host = builder.add_node(NodeId(Role.COMPUTE, 0, index))
        for nic in range(spec.nics_per_host):
            _plug(builder, spec, host, nic, spec.leaf_of(index, nic))
    for index in range(spec.storage):
        host = builder.add_node(NodeId(Role.STORAGE, None, index))
        _plug(builder, spec, host, 0, spec.leaf_of_storage(index))


def _plug(builder: FabricBuilder, spec: FatTreeSpec, host: NodeId, nic: int, leaf: int) -> None:
    delay_ns = nanoseconds(spec.link_delay)
    address = nic_ip(host, nic, spec.block if host.role is Role.COMPUTE else 1)
    builder.connect(host, _leaf(leaf), spec.nic_rate, Tier.ACCESS, delay_ns, address)


def _join_leaves_and_spines(builder: FabricBuilder, spec: FatTreeSpec) -> None:
    for leaf in range(spec.leaves):
        first = leaf // spec.leaves_per_pod * spec.spines_per_pod
        for spine in range(first, first + spec.spines_per_pod):
            for _ in range(spec.uplinks_per_spine):
                _join(builder, spec, _leaf(leaf), _spine(spine))


def _join_spines_and_cores(builder: FabricBuilder, spec: FatTreeSpec) -> None:
    """Deal each spine's links to the cores of its group, where the last spine of the group left off."""
    if spec.cores is None:
        return
    of_group = spec.cores.switches // spec.cores.groups
    dealt: Counter[int] = Counter()
    for spine in range(spec.pods * spec.spines_per_pod):
        group = spine % spec.spines_per_pod * spec.cores.groups // spec.spines_per_pod
        for _ in range(spec.cores.links_per_spine):
            _join(builder, spec, _spine(spine), _core(group * of_group + dealt[group] % of_group))
            dealt[group] += 1


def _join(builder: FabricBuilder, spec: FatTreeSpec, below: NodeId, above: NodeId) -> None:
    builder.connect(below, above, spec.uplink_rate, Tier.UPLINK, nanoseconds(spec.link_delay))


def _leaf(index: int) -> NodeId:
    return NodeId(Role.LEAF, 0, index)


def _spine(index: int) -> NodeId:
    return NodeId(Role.SPINE, 0, index)


def _core(index: int) -> NodeId:
    return NodeId(Role.CORE, None, index)


def _faults(spec: FatTreeSpec) -> list[str]:
    """Return what cannot be wired, each with the value, the limit and what to change. Of what is too large, nothing
    else is asked: the answer would take as long as to build it."""
    return list(_size_faults(spec)) or list(_wiring_faults(spec))


def _size_faults(spec: FatTreeSpec) -> Iterator[str]:
    for key, value in (("compute", spec.compute), ("storage", spec.storage)):
        if value > MAX_HOSTS_PER_GROUP:
            yield f"{key}: {value} exceeds {MAX_HOSTS_PER_GROUP}, the most that the addresses allow; use fewer"
    of_spine = spec.cores.links_per_spine if spec.cores else 0
    spines = spec.pods * spec.spines_per_pod
    switches = {"pods x leaves_per_pod": spec.leaves, "pods x spines_per_pod": spines}
    if spec.cores:
        switches["cores.switches"] = spec.cores.switches
    up = spec.leaves * spec.spines_per_pod * spec.uplinks_per_spine + spines * of_spine
    yield from size_faults(switches, spec.compute * spec.nics_per_host + spec.storage + up)


def _wiring_faults(spec: FatTreeSpec) -> Iterator[str]:
    shape = list(_shape_faults(spec))
    yield from shape
    if not shape:
        yield from _port_faults(spec)


def _shape_faults(spec: FatTreeSpec) -> Iterator[str]:
    cores = spec.cores
    if cores and (cores.switches % cores.groups or spec.spines_per_pod % cores.groups):
        both = f"cores.switches {cores.switches} and spines_per_pod {spec.spines_per_pod}"
        yield f"cores.groups: {cores.groups} must divide {both}"
    if spec.nics is Nics.ACROSS_PODS and spec.nics_per_host % spec.pods:
        yield f"nics_per_host: {spec.nics_per_host} NICs cannot be dealt to {spec.pods} pods; use a multiple"
    if spec.nics is Nics.IN_POD and spec.pods > 1 and spec.cores is None:
        yield f"pods: {spec.pods} pods without cores do not reach each other; set cores, or nics: across_pods"
    if spec.nics is Nics.IN_POD and spec.compute < spec.pods:
        yield f"compute: {spec.compute} leave pods without a host; use at least {spec.pods}"


def _port_faults(spec: FatTreeSpec) -> Iterator[str]:
    if spec.downlinks < 1:
        yield f"switch_ports: {spec.switch_ports} leave none for hosts next to a leaf's uplinks; raise it"
        return
    below = spec.leaves_per_pod * spec.uplinks_per_spine
    needed = {"spine": below}
    if cores := spec.cores:
        links = spec.pods * spec.spines_per_pod * cores.links_per_spine
        needed = {"spine": below + cores.links_per_spine, "core": -(-links // cores.switches)}
    for kind, ports in needed.items():
        if ports > spec.switch_ports:
            yield f"switch_ports: a {kind} needs {ports} ports, has {spec.switch_ports}; raise it or use fewer links"
    used = Counter(spec.leaf_of(host, nic) for host in range(spec.compute) for nic in range(spec.nics_per_host))
    used.update(spec.leaf_of_storage(host) for host in range(spec.storage))
    most = max(used.values())
    if most > spec.downlinks:
        yield f"compute: a leaf would have {most} NICs on {spec.downlinks} ports for hosts; use fewer, or more leaves"
