"""The fabric as a value: frozen nodes, ports and links, computed without root and without Mininet.

A builder in ``topologies`` adds nodes and links to a :class:`FabricBuilder`; ``build()`` verifies them and reports all
faults at once. Routes, lanes, queues and job schedules are pure functions of the result.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from fabric.config import LEAST_RATE_BPS
from fabric.errors import TopologyError
from fabric.model.graph import hops_from, levels_of, networks_of
from fabric.model.identity import NodeId, Role, mac_of_ip
from fabric.model.inside import FIRST_INNER_PORT, Draw, Inside, Spot, draws_of, inner_links, parts_of
from fabric.units import format_apart, format_rate

ETHERNET_HEADER_BYTES = 14
ADDRESSES = IPv4Network("10.0.0.0/8")
"""Where the addresses of NICs are from."""

SHARED_MAC = "02:00:00:00:00:01"
"""What every host sends to, since nobody resolves addresses: a leaf puts the address of the NIC in its place
(``mac_of_ip``), and nodes with an inside have it for all their NICs and parts."""
GATEWAY = "169.254.0.1"
"""The neighbour of every host, of that address: a name for the leaf, that no packet carries."""
MAX_INTERFACE_NAME = 15  # Linux: IFNAMSIZ less the closing zero byte.
MIN_MTU_BYTES = 576  # RFC 791: what every IPv4 host must take.
MAX_MTU_BYTES = 9000  # Above it veth, OVS and real NICs differ.


class Tier(Enum):
    """The kind of a link, by the nodes that it joins: a host and its leaf, switches of a zone, zones, or what is inside
    a node."""

    ACCESS = "access"
    UPLINK = "uplink"
    INTER_ZONE = "inter_zone"
    INSIDE = "inside"


@dataclass(frozen=True, order=True)
class Port:
    """One end of a link. ``number`` is a switch's OpenFlow port (from 1) or a host's NIC number (from 0)."""

    node: NodeId
    number: int

    def __hash__(self) -> int:
        return self.node.dpid << 16 | self.number

    @property
    def interface(self) -> str:
        """The Linux interface, as Mininet names it: ``z0l03-eth7``; of a node's part ``z0h117.g5``, of its NVLink
        ``z0h117.g5-1``."""
        if self.node.is_inside:
            return f"{self.node.name}-{self.number}" if self.number else self.node.name
        return f"{self.node.name}-eth{self.number}"

    @property
    def host_interface(self) -> str:
        """The name of a host's interface in the host itself, the same on every host: ``eth0`` for its first NIC, or for
        the CPU of a node with an inside, whose GPU 5 has ``gpu5``, and ``nvl5`` on NVLink. ``interface`` is its
        alternative name, by which ``ip`` and ``tcpdump`` find it, too."""
        if self.node.role is Role.GPU:
            return f"{'nvl' if self.number else 'gpu'}{self.node.place}"
        return f"eth{self.number}"

    def __str__(self) -> str:
        return f"{self.node.name}:{self.number}"


@dataclass(frozen=True)
class Link:
    """A full-duplex link between two ports: ``rate_bps`` per direction, with a propagation delay of ``delay_ns``."""

    a: Port
    b: Port
    rate_bps: int
    tier: Tier
    delay_ns: int = 0

    @property
    def ports(self) -> tuple[Port, Port]:
        """Both ends, ``a`` first."""
        return self.a, self.b

    def other(self, port: Port) -> Port:
        """Return the end opposite to ``port``."""
        return self.b if port == self.a else self.a

    def __str__(self) -> str:
        return f"{self.a}--{self.b}"


@dataclass(frozen=True)
class Nic:
    """A host's port on the fabric, with its addresses and the zone whose leaf it is plugged into.

    The port's number is also the NIC's rail, or plane, where a host has several.
    """

    port: Port
    zone: int
    ip: str
    mac: str

    @property
    def node(self) -> NodeId:
        """The host."""
        return self.port.node


@dataclass(frozen=True)
class Fabric:
    """A verified fabric. Tuples are sorted, so equal inputs give equal values.

    ``addresses`` are those of the NICs, as the builder gave them.
    ``access_ports`` counts the leaf ports that face hosts, used or not. ``reference_nic_rate_bps`` is the NIC rate of
    the system that this fabric stands for; the ratio to its own NIC rate is the scale that every figure states.
    ``inside`` is what every compute node has inside, None: nothing. ``links`` and ``nodes`` are the network's; those
    inside nodes follow from it. ``names`` are those that a user's file has for nodes; tables, interfaces and programs
    have ours.
    """

    name: str
    nodes: tuple[NodeId, ...]
    links: tuple[Link, ...]
    zones: int
    mtu_bytes: int
    access_ports: int
    switch_ports: int
    reference_nic_rate_bps: int
    addresses: tuple[tuple[Port, str], ...]
    inside: Inside | None = None
    names: tuple[tuple[NodeId, str], ...] = ()

    @cached_property
    def switches(self) -> tuple[NodeId, ...]:
        """Every switch."""
        return tuple(node for node in self.nodes if node.is_switch)

    @cached_property
    def hosts(self) -> tuple[NodeId, ...]:
        """Every host, compute first."""
        return tuple(node for node in self.nodes if not node.is_switch)

    def with_role(self, role: Role, zone: int | None = None) -> tuple[NodeId, ...]:
        """Return the nodes of a role, in one zone if given."""
        return tuple(n for n in self.nodes if n.role is role and (zone is None or n.zone == zone))

    @cached_property
    def computes(self) -> tuple[NodeId, ...]:
        """Every compute node, zone by zone."""
        return self.with_role(Role.COMPUTE)

    @cached_property
    def storages(self) -> tuple[NodeId, ...]:
        """Every storage node."""
        return self.with_role(Role.STORAGE)

    @cached_property
    def link_at(self) -> dict[Port, Link]:
        """The link plugged into each port."""
        return {port: link for link in self.links for port in link.ports}

    @cached_property
    def ports_of(self) -> dict[NodeId, tuple[Port, ...]]:
        """The used ports of each node, in order of their numbers."""
        ports: dict[NodeId, list[Port]] = {node: [] for node in self.nodes}
        for port in self.link_at:
            ports[port.node].append(port)
        return {node: tuple(sorted(found)) for node, found in ports.items()}

    def peer(self, port: Port) -> Port:
        """Return the port at the other end of the link plugged into ``port``."""
        return self.link_at[port].other(port)

    def ports_between(self, node: NodeId, other: NodeId) -> tuple[Port, ...]:
        """Return the ports of ``node`` whose links end at ``other``; several if links are parallel."""
        return self._ports_towards.get((node, other), ())

    @cached_property
    def _ports_towards(self) -> dict[tuple[NodeId, NodeId], tuple[Port, ...]]:
        found: dict[tuple[NodeId, NodeId], list[Port]] = {}
        for node, ports in self.ports_of.items():
            for port in ports:
                found.setdefault((node, self.peer(port).node), []).append(port)
        return {pair: tuple(ports) for pair, ports in found.items()}

    @cached_property
    def nics(self) -> tuple[Nic, ...]:
        """Every NIC, compute first, then storage, each in order of node and NIC number."""
        return tuple(self._nic(port) for host in self.hosts for port in self.ports_of[host])

    def _nic(self, port: Port) -> Nic:
        zone = self.peer(port).node.zone
        assert zone is not None, "build() verified that hosts are below leaves"
        address = self._address_at[port]
        has_parts = self.inside is not None and port.node.role is Role.COMPUTE
        return Nic(port, zone, address, SHARED_MAC if has_parts else mac_of_ip(address))

    @cached_property
    def _address_at(self) -> dict[Port, str]:
        return dict(self.addresses)

    @cached_property
    def nics_of(self) -> dict[NodeId, tuple[Nic, ...]]:
        """The NICs of each host."""
        found: dict[NodeId, list[Nic]] = {host: [] for host in self.hosts}
        for nic in self.nics:
            found[nic.node].append(nic)
        return {host: tuple(nics) for host, nics in found.items()}

    @cached_property
    def nic_at_ip(self) -> dict[str, Nic]:
        """The NIC that has an address."""
        return {nic.ip: nic for nic in self.nics}

    @cached_property
    def leaf_at_ip(self) -> dict[str, NodeId]:
        """The leaf that the NIC with an address is plugged into."""
        return {nic.ip: self.leaf_of(nic) for nic in self.nics}

    def nic_in_zone(self, host: NodeId, zone: int) -> Nic | None:
        """Return the host's NIC in ``zone``, or None if it has none there."""
        return next((nic for nic in self.nics_of[host] if nic.zone == zone), None)

    @cached_property
    def neighbours(self) -> dict[NodeId, frozenset[NodeId]]:
        """The nodes that each node has a link to."""
        return {node: frozenset(self.peer(port).node for port in ports) for node, ports in self.ports_of.items()}

    # Inside nodes ----------------------------------------------------------------------------------------------------

    @property
    def block(self) -> int:
        """How many addresses a compute node's NIC has."""
        return 1 if self.inside is None else self.inside.block

    def block_of(self, nic: Nic) -> str:
        """Return what switches route to a NIC: its address, or the block of its addresses (``10.0.0.32/27``)."""
        if self.block == 1 or nic.node.role is not Role.COMPUTE:
            return nic.ip
        return f"{nic.ip}/{32 - (self.block - 1).bit_length()}"

    @property
    def hosts_with_inside(self) -> tuple[NodeId, ...]:
        """The hosts that have parts."""
        return () if self.inside is None else self.computes

    def parts_of(self, host: NodeId) -> tuple[NodeId, ...]:
        """Return what is inside a host: nothing, or its CPU, its GPUs and what joins them."""
        return () if self.inside is None or host.role is not Role.COMPUTE else parts_of(self.inside, host)

    @cached_property
    def inner_links(self) -> tuple[Link, ...]:
        """The links inside all nodes, node by node."""
        return tuple(link for host in self.hosts_with_inside for link in self.inner_links_of(host))

    def inner_links_of(self, host: NodeId) -> tuple[Link, ...]:
        """Return the links inside a node."""
        if self.inside is None or host.role is not Role.COMPUTE:
            return ()
        found = inner_links(self.inside, host)
        return tuple(Link(Port(*link.a), Port(*link.b), link.rate_bps, Tier.INSIDE) for link in found)

    @cached_property
    def inner_link_at(self) -> dict[Port, Link]:
        """The link inside a node that is plugged into each port."""
        return {port: link for link in self.inner_links for port in link.ports}

    def inner_ports_of(self, host: NodeId) -> tuple[Port, ...]:
        """Return the ports of a host that lead to its parts."""
        links = self.inner_links_of(host)
        return tuple(port for link in links for port in link.ports if port.node == host)

    def link_plugged_into(self, port: Port) -> Link:
        """Return the link of a port, in the network or inside a node."""
        return self.link_at.get(port) or self.inner_link_at[port]

    def every_directed_port(self) -> Iterator[tuple[Port, Link]]:
        """Yield every port with its link, those inside nodes included."""
        yield from self.directed_ports()
        for link in self.inner_links:
            for port in link.ports:
                yield port, link

    def draws_of(self, host: NodeId) -> tuple[Draw[Spot], ...]:
        """Return what the ports of a host and its parts draw on."""
        if self.inside is None or host.role is not Role.COMPUTE:
            return ()
        return tuple(draws_of(self.inside, host, len(self.ports_of[host])))

    def address_inside(self, part: NodeId, nvlink: bool = False) -> str:
        """Return the address of a CPU, which is its node's first NIC's, or of a GPU, on PCIe or on NVLink."""
        nics = self.nics_of[part.host]
        if part.role is not Role.GPU:
            return nics[0].ip
        assert self.inside is not None, "only nodes with an inside have GPUs"
        nic = nics[self.inside.nic_of_gpu[part.place]]
        return str(IPv4Address(nic.ip) + self.inside.offset(part.place, nvlink))

    @cached_property
    def levels(self) -> dict[NodeId, int]:
        """The level of each node: hosts 0, leaves 1, and every other switch one above the lowest it has a link to."""
        return levels_of(self.hosts, self.with_role(Role.LEAF), self.neighbours)

    @cached_property
    def networks(self) -> tuple[frozenset[NodeId], ...]:
        """The switches of each network: planes, and rails that nothing joins, are networks of their own."""
        return networks_of(self.switches, self.neighbours)

    @cached_property
    def _network_at(self) -> dict[NodeId, int]:
        return {switch: number for number, network in enumerate(self.networks) for switch in network}

    def network_of(self, nic: Nic) -> int:
        """Return which of :attr:`networks` a NIC is plugged into."""
        return self._network_at[self.leaf_of(nic)]

    def goes_up(self, port: Port) -> bool:
        """Return whether a switch's port leads to a switch of a higher level of its zone or above all pods."""
        peer = self.peer(port).node
        return self.link_at[port].tier is Tier.UPLINK and self.levels[peer] > self.levels[port.node]

    def uplinks_of(self, switch: NodeId) -> tuple[Port, ...]:
        """Return a switch's ports that go up, in order."""
        return tuple(port for port in self.ports_of[switch] if self.goes_up(port))

    def reaches(self, nic: Nic, other: Nic) -> bool:
        """Return whether two NICs of different hosts can exchange packets: those of one network, and storage NICs only
        within their zone."""
        speak = nic.zone == other.zone or Role.STORAGE not in (nic.node.role, other.node.role)
        return nic.node != other.node and speak and self.network_of(nic) == self.network_of(other)

    def nic_pair(self, source: NodeId, destination: NodeId, rail: int | None = None) -> tuple[Nic, Nic] | None:
        """Return the NICs by which programs on two hosts talk: the first of the source that reaches one of the
        destination, and the first that it reaches; None if none does. With ``rail``, the NICs of that number."""
        pairs = ((nic, other) for nic in self.nics_of[source] for other in self.nics_of[destination])
        wanted = ((nic, other) for nic, other in pairs if rail is None or nic.port.number == other.port.number == rail)
        return next((pair for pair in wanted if self.reaches(*pair)), None)

    def nics_in_common(self, hosts: Iterable[NodeId]) -> dict[NodeId, Nic]:
        """Return the NIC by which each host takes part in what all do together: its first in the first network in which
        all have one. Raises TopologyError if there is none."""
        chosen = list(hosts)
        found: dict[int, dict[NodeId, Nic]] = {}
        for host in chosen:
            for nic in self.nics_of[host]:
                found.setdefault(self.network_of(nic), {}).setdefault(host, nic)
        for _, nics in sorted(found.items()):
            if len(nics) == len(set(chosen)):
                return nics
        raise TopologyError(self.name, [f"no network has a NIC of each of {len(chosen)} hosts; choose others"])

    def leaf_of(self, nic: Nic) -> NodeId:
        """Return the leaf that a NIC is plugged into."""
        return self.peer(nic.port).node

    def nics_on_leaf(self, leaf: NodeId) -> tuple[Nic, ...]:
        """Return the NICs plugged into a leaf, in order of its ports."""
        peers = (self.peer(port) for port in self.ports_of[leaf])
        return tuple(self._nic(port) for port in peers if not port.node.is_switch)

    def links_of_tier(self, tier: Tier) -> tuple[Link, ...]:
        """Return the links of one tier."""
        return tuple(link for link in self.links if link.tier is tier)

    def directed_ports(self) -> Iterator[tuple[Port, Link]]:
        """Yield every port with its link: each is the sending end of one direction."""
        for link in self.links:
            for port in link.ports:
                yield port, link

    @property
    def nic_rate_bps(self) -> int:
        """The fastest NIC's rate."""
        return max(link.rate_bps for link in self.links_of_tier(Tier.ACCESS))

    @property
    def slowest_rate_bps(self) -> int:
        """The slowest link's rate."""
        return min(link.rate_bps for link in self.links)

    @property
    def frame_bytes(self) -> int:
        """The largest frame, as the kernel counts it: without preamble, gap and FCS."""
        return self.mtu_bytes + ETHERNET_HEADER_BYTES

    @property
    def frame_time_s(self) -> float:
        """Time of the largest frame on the slowest link."""
        return self.frame_bytes * 8 / self.slowest_rate_bps

    @property
    def round_trip_s(self) -> float:
        """Time of the largest frame between the leaves that are farthest apart, and of its acknowledgement back, in an
        idle fabric."""
        crosses = bool(self.links_of_tier(Tier.INTER_ZONE))
        top = max(self.levels[switch] for switch in self.switches if switch.role is not Role.INTER_ZONE)
        within = 2 * (top - 1) if crosses else self._hops_between_leaves
        hops = {Tier.ACCESS: 2, Tier.UPLINK: 2 * within if crosses else within, Tier.INTER_ZONE: 2 if crosses else 0}
        return sum(count * self._worst_hop_s(tier) for tier, count in hops.items() if count)

    @cached_property
    def _hops_between_leaves(self) -> int:
        """The links between the leaves that are farthest apart: found by going to the farthest and back from there,
        which is exact in trees, rings and fat-trees, and of a mesh may be one of its lesser diagonals."""
        leaves = frozenset(leaf for leaf in self.with_role(Role.LEAF) if self.nics_on_leaf(leaf))
        joined = {switch: [one for one in self.neighbours[switch] if one.is_switch] for switch in self.switches}
        most = 0
        for network in self.networks:
            start = min(leaves & network, default=None)
            for _ in range(2 if start else 0):
                assert start is not None
                hops = {node: count for node, count in hops_from(start, joined).items() if node in leaves}
                start = max(hops, key=lambda node: (hops[node], node))
                most = max(most, hops[start])
        return most

    def _worst_hop_s(self, tier: Tier) -> float:
        links = self.links_of_tier(tier)
        return max((self.frame_bytes * 8 / link.rate_bps + 2 * link.delay_ns / 1e9 for link in links), default=0.0)

    @property
    def scale(self) -> float:
        """How many times slower this fabric's NICs are than the system's that it stands for; 1 is true scale."""
        return self.reference_nic_rate_bps / self.nic_rate_bps

    # Names ------------------------------------------------------------------------------------------------------------

    @cached_property
    def own_names(self) -> dict[NodeId, str]:
        """The names that a user's file has for nodes, of those that it names otherwise than we do."""
        return dict(self.names)

    def shown(self, node: NodeId) -> str:
        """Return a node's name in messages: the user's with ours, ``client1 (z0h000)``, or ours alone."""
        own = self.own_names.get(node)
        return node.name if own is None else f"{own} ({node})"

    def label_of(self, port: Port) -> str:
        """Return a port's name for people: ``leaf1:3`` by the user's name of its node, if it has one."""
        return f"{self.own_names.get(port.node, port.node.name)}:{port.number}"

    @cached_property
    def _named(self) -> dict[str, NodeId]:
        return {node.name: node for node in self.nodes} | {name: node for node, name in self.names}

    def node_named(self, name: str) -> NodeId | None:
        """Return the node of a name, the user's or ours; None if there is none."""
        return self._named.get(name)

    def port_named(self, text: str) -> Port | None:
        """Return the port that ``leaf1:3`` or ``z0l00:3`` means; None if nothing is plugged in there."""
        name, _, number = text.rpartition(":")
        node = self.node_named(name)
        ports = self.ports_of[node] if node is not None else ()
        return next((port for port in ports if str(port.number) == number), None)

    def host_named(self, name: str) -> NodeId:
        """Return the host of that name, the user's or ours. Raises TopologyError if the fabric has none."""
        node = self.node_named(name)
        if node is None or node.is_switch:
            run = f"hosts run from {self.shown(self.hosts[0])} to {self.shown(self.hosts[-1])}"
            raise TopologyError(self.name, [f"no host {name!r}; {run}"])
        return node


def names_like(name: str, fabric: Fabric) -> str:
    """Return what to say of a name that no node has: the range of names of its kind and zone, or else of its kind, or
    of all switches and hosts."""
    nodes = [*fabric.switches, *fabric.hosts]
    if not fabric.own_names:
        for kind in (r"\d+$", r"\d+"):
            alike = [node for node in nodes if re.sub(kind, "#", node.name) == re.sub(kind, "#", name)]
            if alike:
                return f"there are {alike[0]} to {alike[-1]}"
    near = difflib.get_close_matches(name, [fabric.own_names.get(node, node.name) for node in nodes], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    ends = (fabric.switches[0], fabric.switches[-1], fabric.hosts[0], fabric.hosts[-1])
    first, last, first_host, last_host = (fabric.own_names.get(node, node.name) for node in ends)
    return f"{hint}switches run from {first} to {last}, hosts from {first_host} to {last_host}"


@dataclass
class FabricBuilder:
    """Collects nodes and links, hands out port numbers, and verifies the whole in :meth:`build`."""

    name: str
    zones: int
    mtu_bytes: int
    access_ports: int
    switch_ports: int
    reference_nic_rate_bps: int
    inside: Inside | None = None
    _nodes: list[NodeId] = field(default_factory=list)
    _links: list[Link] = field(default_factory=list)
    _next_port: Counter[NodeId] = field(default_factory=Counter)
    _own: dict[NodeId, NodeId] = field(default_factory=dict)
    _addresses: dict[Port, str] = field(default_factory=dict)

    def add_node(self, node: NodeId) -> NodeId:
        """Add a node and return it."""
        self._nodes.append(self._own.setdefault(node, node))
        return node

    def connect(
        self, a: NodeId, b: NodeId, rate_bps: int, tier: Tier, delay_ns: int = 0, address: str | None = None
    ) -> Link:
        """Join the next free ports of two nodes; parallel links are separate links.

        ``address`` is the IPv4 address of the NIC, where one of the two is a host.
        """
        link = Link(self._take_port(a), self._take_port(b), rate_bps, tier, delay_ns)
        self._links.append(link)
        nic = next((port for port in link.ports if not port.node.is_switch), None)
        if address is not None and nic is not None:
            self._addresses[nic] = address
        return link

    def links_of(self, node: NodeId) -> int:
        """Return how many links a node has so far."""
        return self._next_port[node]

    def _take_port(self, node: NodeId) -> Port:
        first = 1 if node.is_switch else 0
        own = self._own.setdefault(node, node)  # One object for each node: the same are told sooner than equal ones.
        port = Port(own, first + self._next_port[node])
        self._next_port[node] += 1
        return port

    def build(self, names: Mapping[NodeId, str] | None = None) -> Fabric:
        """Return the verified fabric. Raises TopologyError with every fault.

        ``names``: those of the user's own, of nodes that have one.
        """
        faults = [
            *self._node_faults(),
            *self._link_faults(),
            *self._address_faults(),
            *self._port_faults(),
            *self._mtu_faults(),
            *self._inside_faults(),
        ]
        if faults:
            raise TopologyError(self.name, faults)
        return Fabric(
            name=self.name,
            nodes=tuple(sorted(self._nodes)),
            links=tuple(self._links),
            zones=self.zones,
            mtu_bytes=self.mtu_bytes,
            access_ports=self.access_ports,
            switch_ports=self.switch_ports,
            reference_nic_rate_bps=self.reference_nic_rate_bps,
            addresses=tuple(sorted(self._addresses.items())),
            inside=self.inside,
            names=tuple(sorted((names or {}).items())),
        )

    def _node_faults(self) -> Iterator[str]:
        for name, count in Counter(node.name for node in self._nodes).items():
            if count > 1:
                yield f"node {name}: added {count} times; give every node its own index"
        for node in self._nodes:
            if not node.is_switch and self._next_port[node] == 0:
                yield f"host {node}: has no link; connect it to a leaf"

    def _link_faults(self) -> Iterator[str]:
        known = set(self._nodes)
        for link in self._links:
            for port in link.ports:
                if port.node not in known:
                    yield f"link {link}: {port.node} is not a node of the fabric; add it first"
                if len(port.interface) > MAX_INTERFACE_NAME:
                    limit = f"exceeds {MAX_INTERFACE_NAME} characters"
                    yield f"link {link}: interface {port.interface} {limit}; use fewer nodes"
                if not port.node.is_switch and link.other(port).node.role is not Role.LEAF:
                    yield f"link {link}: host {port.node} must be linked to a leaf, not to {link.other(port).node}"
            if link.rate_bps < LEAST_RATE_BPS:
                rate, least = format_apart(link.rate_bps, LEAST_RATE_BPS, format_rate)
                yield f"link {link}: rate {rate} is less than {least}; raise it"
            if link.delay_ns < 0:
                yield f"link {link}: delay {link.delay_ns} ns must not be below 0"

    def _address_faults(self) -> Iterator[str]:
        for link in self._links:
            for port in link.ports:
                is_nic = not port.node.is_switch and link.other(port).node.is_switch
                if is_nic and port not in self._addresses:
                    yield f"NIC {port}: has no address; give connect() one"
        for port, address in self._addresses.items():
            if not _is_address(address):
                yield f"NIC {port}: {address!r} is not an IPv4 address of {ADDRESSES}; give it one"
        for address, count in Counter(self._addresses.values()).items():
            if count > 1:
                ports = ", ".join(str(port) for port, given in self._addresses.items() if given == address)
                yield f"address {address}: {ports} have it; give every NIC its own"

    def _port_faults(self) -> Iterator[str]:
        for node, used in self._next_port.items():
            if node.is_switch and used > self.switch_ports:
                yield f"switch {node}: needs {used} ports, has {self.switch_ports}; raise it or use fewer links"

    def _inside_faults(self) -> Iterator[str]:
        """Yield what keeps compute nodes from having the inside: their NICs, names or addresses."""
        if self.inside is None:
            return
        wanted = max(self.inside.nic_of_gpu) + 1
        for node in (node for node in self._nodes if node.role is Role.COMPUTE):
            if not wanted <= self._next_port[node] <= FIRST_INNER_PORT:
                has = f"{node} has {self._next_port[node]}"
                yield f"node {self.inside.name}: its GPUs use {wanted} NICs, at most {FIRST_INNER_PORT}; {has}"
                return
            longest = max((link.a for link in inner_links(self.inside, node)), key=lambda spot: len(spot[0].name))
            if len(Port(*longest).interface) > MAX_INTERFACE_NAME:
                yield f"node {self.inside.name}: interface {Port(*longest).interface} exceeds {MAX_INTERFACE_NAME}"
                return

    def _mtu_faults(self) -> Iterator[str]:
        if not MIN_MTU_BYTES <= self.mtu_bytes <= MAX_MTU_BYTES:
            yield f"mtu: {self.mtu_bytes} B is outside {MIN_MTU_BYTES}..{MAX_MTU_BYTES} B"


def _is_address(text: str) -> bool:
    try:
        return IPv4Address(text) in ADDRESSES
    except AddressValueError:
        return False
