"""The paths of very many flows at once, as arrays of ports. Pure."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from controllers.planning.distances import LiveGraph
from controllers.planning.ecmp import TCP, FiveTuple, hashing_of
from controllers.planning.next_ports import NONE, Ints, UpDownWays, static_next_ports
from controllers.planning.paths import planned_path
from controllers.planning.plan import Hashing
from controllers.planning.planner import plan_routes, routing_faults
from controllers.planning.policies import ECMP, STATIC
from controllers.planning.routes import is_zoned
from controllers.routing import Routing
from fabric.errors import ControllerError, TopologyError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port

_FIRST_PORT, _LAST_PORT = 1024, 65_535
Words = npt.NDArray[np.uint32]
Paths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Endpoints:
    """Who sends to whom: places in the fabric's NICs, an entry per flow."""

    sources: Ints
    destinations: Ints


class PortArrays:
    """A fabric's ports as numbers: places in :attr:`ports`."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.ports: tuple[Port, ...] = tuple(fabric.link_at)
        self._places = {port: place for place, port in enumerate(self.ports)}
        rows = {switch: row for row, switch in enumerate(fabric.switches)}
        links = [fabric.link_at[port] for port in self.ports]
        self.rates_bps = np.array([link.rate_bps for link in links], dtype=np.float64)
        self._delays_s = np.array([link.delay_ns * 1e-9 for link in links])
        self.peers = np.array([self._places[link.other(port)] for port, link in zip(self.ports, links, strict=True)])
        self.switches = np.array([rows.get(port.node, NONE) for port in self.ports])
        self.of_nics = np.array([self._places[nic.port] for nic in fabric.nics])

    @cached_property
    def by_number(self) -> Ints:
        """The place of each port of each switch (rows), by its number (columns)."""
        most = max(port.number for port in self.ports)
        found = np.full((len(self.fabric.switches), most + 1), NONE, dtype=np.int64)
        for place, (port, row) in enumerate(zip(self.ports, self.switches.tolist(), strict=True)):
            if row != NONE:
                found[row, port.number] = place
        return found

    def delays_s(self, paths: Paths) -> npt.NDArray[np.float64]:
        """Return how long a full frame takes through each path beyond the time on its first link: delays, and at each
        switch the time until all of it has come."""
        frames_s = self._delays_s + self.fabric.frame_bytes * 8 / self.rates_bps
        rest = np.where(paths[:, 1:] != NONE, frames_s[paths[:, 1:]], 0.0).sum(axis=1)
        found: npt.NDArray[np.float64] = self._delays_s[paths[:, 0]] + rest
        return found

    def places(self, paths: Sequence[Sequence[Port]]) -> Paths:
        """Return paths as an array, with ``NONE`` after the end of the shorter ones."""
        found: Paths = np.full((len(paths), max(map(len, paths))), NONE, dtype=np.int32)
        for row, path in enumerate(paths):
            found[row, : len(path)] = [self._places[port] for port in path]
        return found


@dataclass(frozen=True)
class Ways:
    """The ports of flows: a row per flow of places in :attr:`PortArrays.ports`, with ``NONE`` after the end of shorter
    ones; what part of the flow takes each (None: all of it); and how long a full frame takes beyond its first link."""

    ports: Paths
    parts: npt.NDArray[np.float64] | None
    delays_s: npt.NDArray[np.float64]


def flow_ways(ports: PortArrays, routing: Routing, flows: Endpoints, seed: int) -> Ways:
    """Return the ports of flows, those of all paths where packets are sprayed; otherwise as :func:`flow_paths`."""
    if routing.policy.sprays:
        if faults := list(routing_faults(ports.fabric, routing)):
            raise TopologyError(ports.fabric.name, faults)
        return _Sprayed(ports, flows).ways()
    paths = flow_paths(ports, routing, flows, seed)
    return Ways(paths, None, ports.delays_s(paths))


def flow_paths(ports: PortArrays, routing: Routing, flows: Endpoints, seed: int) -> Paths:
    """Return the ports that send each flow on its way, the source's NIC first, with ``NONE`` after the end of shorter
    paths; where routes hash, by source ports drawn at random.

    Raises TopologyError where the policy is not made for the fabric, and ControllerError for flows without a route.
    """
    fabric = ports.fabric
    if faults := list(routing_faults(fabric, routing)):
        raise TopologyError(fabric.name, faults)
    draw = np.random.default_rng(seed)
    drawn = draw.integers(_FIRST_PORT, _LAST_PORT, size=(2, len(flows.sources)), endpoint=True)
    if routing.policy not in (STATIC, ECMP):
        return _by_rules(ports, routing, flows, drawn)
    hashes = _Hashes(fabric, routing.hash_seed, flows, drawn) if routing.policy == ECMP else None
    return _Walk(ports, flows, hashes).paths()


def _by_rules(ports: PortArrays, routing: Routing, flows: Endpoints, drawn: Ints) -> Paths:
    """Return the paths of a policy that somebody added: by its rules, flow by flow."""
    fabric, found = ports.fabric, []
    plan = plan_routes(fabric, routing)
    for source, sink, *numbers in zip(
        flows.sources.tolist(), flows.destinations.tolist(), *drawn.tolist(), strict=True
    ):
        nic, other = fabric.nics[source], fabric.nics[sink]
        found.append(planned_path(plan, fabric, nic, other, FiveTuple(nic.ip, other.ip, TCP, *numbers)))
    return ports.places(found)


class _Walk:
    """All flows, hop by hop."""

    def __init__(self, ports: PortArrays, flows: Endpoints, hashes: _Hashes | None) -> None:
        self._ports, self._flows, self._hashes = ports, flows, hashes
        self._next = static_next_ports(ports.fabric)

    def paths(self) -> Paths:
        """Return the ports of each flow."""
        ports, ends = self._ports, self._ports.of_nics[self._flows.destinations]
        at = ports.of_nics[self._flows.sources]
        hops, going = [at.astype(np.int32)], np.flatnonzero(ports.peers[at] != ends)
        while len(going):
            arrived = ports.switches[ports.peers[at[going]]]
            at[going] = ports.by_number[arrived, self._numbers(going, arrived)]
            hop: Paths = np.full(len(at), NONE, dtype=np.int32)
            hop[going] = at[going]
            hops.append(hop)
            going = going[ports.peers[at[going]] != ends[going]]
            if len(hops) > len(ports.fabric.switches) + 1:
                raise ControllerError(f"{self._flow(int(going[0]))}: the routes loop; this is an error of the planner")
        return np.stack(hops, axis=1)

    def _numbers(self, going: Ints, arrived: Ints) -> Ints:
        """Return the numbers of the ports by which flows leave the switches that they have come to."""
        numbers = self._next[arrived, self._flows.destinations[going]].astype(np.int64)
        lost = np.flatnonzero((arrived == NONE) | (numbers == NONE))
        if len(lost):
            raise ControllerError(f"{self._flow(int(going[lost[0]]))}: no route leads there; choose another pair")
        return numbers if self._hashes is None else self._hashes.chosen(going, arrived, numbers)

    def _flow(self, flow: int) -> str:
        nics = self._ports.fabric.nics
        source, sink = nics[self._flows.sources[flow]], nics[self._flows.destinations[flow]]
        return f"{source.port} to {sink.port}"


class _Sprayed:
    """Flows whose packets take all ways in equal shares: what part of one takes each port, leaf by leaf."""

    def __init__(self, ports: PortArrays, flows: Endpoints) -> None:
        self._ports, self._flows, fabric = ports, flows, ports.fabric
        self._rows = {switch: row for row, switch in enumerate(fabric.switches)}
        self._places = {leaf: place for place, leaf in enumerate(fabric.with_role(Role.LEAF))}
        self._nearer = _Nearer(fabric)
        self._known: dict[tuple[NodeId, NodeId], tuple[dict[int, float], float]] = {}

    def ways(self) -> Ways:
        """Return the ports of each flow."""
        fabric, found, delays_s = self._ports.fabric, [], []
        for source, sink in zip(self._flows.sources.tolist(), self._flows.destinations.tolist(), strict=True):
            first, last = int(self._ports.of_nics[source]), int(self._ports.peers[self._ports.of_nics[sink]])
            between, delay_s = self._between(fabric.leaf_of(fabric.nics[source]), fabric.leaf_of(fabric.nics[sink]))
            found.append({first: 1.0, **between, last: 1.0})
            ends = np.array([[first, last]], dtype=np.int32)
            delays_s.append(delay_s + float(self._ports.delays_s(ends)[0]))
        size = len(found), max(map(len, found), default=1)
        places: Paths = np.full(size, NONE, dtype=np.int32)
        parts = np.zeros(size)
        for row, flow in enumerate(found):
            places[row, : len(flow)] = list(flow)
            parts[row, : len(flow)] = list(flow.values())
        return Ways(places, parts, np.array(delays_s))

    def _between(self, leaf: NodeId, other: NodeId) -> tuple[dict[int, float], float]:
        """Return what part takes each port from leaf to leaf, and how long the slowest way takes."""
        if (leaf, other) not in self._known:
            self._known[leaf, other] = self._walked(leaf, other)
        return self._known[leaf, other]

    def _walked(self, leaf: NodeId, other: NodeId) -> tuple[dict[int, float], float]:
        ports, parts, delay_s = self._ports, dict[int, float](), 0.0
        at = {} if leaf == other else {leaf: 1.0}
        while at:
            then: dict[NodeId, float] = {}
            leaving: list[int] = []
            for switch, part in at.items():
                row = self._rows[switch]
                numbers = self._nearer.ports(row, self._places[other])
                if not numbers:
                    raise ControllerError(f"{leaf} to {other}: no route leads there; choose another pair")
                for number in numbers:
                    port = int(ports.by_number[row, number])
                    parts[port] = parts.get(port, 0.0) + part / len(numbers)
                    leaving.append(port)
                    peer = ports.ports[int(ports.peers[port])].node
                    if peer != other:
                        then[peer] = then.get(peer, 0.0) + part / len(numbers)
            pairs = np.array([[leaving[0], port] for port in leaving], dtype=np.int32)
            own_s = ports.delays_s(pairs) - ports.delays_s(pairs[:, :1])
            delay_s += float(own_s.max())
            at = then
        return parts, delay_s


class _Nearer:
    """The ports of each switch that lead nearer to a leaf."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._leaves = fabric.with_role(Role.LEAF)
        self._ways = None if is_zoned(fabric) else UpDownWays(fabric)
        self._graph = LiveGraph(fabric)

    def ports(self, row: int, place: int) -> tuple[int, ...]:
        """Return their numbers, by the switch's row and the leaf's place among all leaves."""
        if self._ways is None:
            switch, leaf = self._fabric.switches[row], self._leaves[place]
            return tuple(sorted(port.number for port, _ in self._graph.distances(leaf).nearer(self._graph, switch)))
        numbers, leads = self._ways.nearer(row)
        return tuple(sorted(numbers[leads[:, place]].tolist()))


class _Hashes:
    """Where routes hash flows, and what they choose."""

    def __init__(self, fabric: Fabric, seed: int, flows: Endpoints, drawn: Ints) -> None:
        self._fabric, self._seed = fabric, seed
        leaves = {leaf: place for place, leaf in enumerate(fabric.with_role(Role.LEAF))}
        self._leaves = tuple(leaves)
        leaf_of_nic = np.array([leaves[fabric.leaf_of(nic)] for nic in fabric.nics])
        self._leaf = leaf_of_nic[flows.destinations]
        words = np.array([_address(nic.ip) for nic in fabric.nics], dtype=np.uint32)
        swapped = drawn.astype(">u2").view("=u2").astype(np.uint32)  # As htons gives them.
        self._addresses = words[flows.sources] ^ words[flows.destinations]
        self._ports = swapped[0] ^ swapped[1]
        self._nearer = _Nearer(fabric)

    def chosen(self, going: Ints, arrived: Ints, numbers: Ints) -> Ints:
        """Return the numbers of the ports that flows leave by, given those of static routes."""
        found = numbers.copy()
        pairs = arrived * len(self._leaves) + self._leaf[going]
        known, kind = np.unique(pairs, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
        for pair, members in zip(known.tolist(), groups, strict=True):
            row, place = divmod(pair, len(self._leaves))
            switch, leaf = self._fabric.switches[row], self._leaves[place]
            ports = () if switch == leaf else self._nearer.ports(row, place)
            if len(ports) > 1:
                found[members] = self._hashed(switch, leaf, ports, going[members])
        return found

    def _hashed(self, switch: NodeId, leaf: NodeId, ports: tuple[int, ...], flows: Ints) -> Ints:
        hashing = hashing_of(switch.dpid, ports, self._seed, switch.zone != leaf.zone)
        ways = ways_of(hashing, self._addresses[flows], self._ports[flows])
        return np.array(ports)[ways]


def ways_of(hashing: Hashing, addresses: Words, ports: Words) -> Ints:
    """Return which way each TCP flow takes, as :func:`controllers.planning.ecmp.way_of` does for one: by the exclusive
    or of its addresses, and of its ports, each as it lies in memory."""
    state = _added(np.full(len(addresses), hashing.basis, dtype=np.uint32), addresses)
    state = _added(state, np.full(len(addresses), TCP, dtype=np.uint32))
    state = _added(state, ports)
    state ^= np.uint32(hashing.basis)
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return ((state ^ state >> np.uint32(16)) % np.uint32(hashing.ways)).astype(np.int64)


def _added(state: Words, data: Words) -> Words:
    data = _rotated(data * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(state ^ data, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(words: Words, bits: int) -> Words:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def _address(text: str) -> int:
    word: int = struct.unpack("=I", socket.inet_aton(text))[0]
    return word
