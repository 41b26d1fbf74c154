"""The order of ranks: which node is which rank, so that routes do not collide.

With destination-based static routes two flows of a collective may be planned over the same uplink while others idle; no
congestion control can fix that, but a scheduler can: it knows the routes and chooses which node is which rank. The
search is a deterministic hill climb over swaps of two nodes of a zone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from controllers.planning.paths import path_load
from controllers.planning.plan import RoutePlan
from fabric.config import Strict
from fabric.measures import Better, Measure
from fabric.model.identity import NodeId, Role
from fabric.model.inside import gpu_of
from fabric.model.network import Fabric, Port, Tier
from fabric.model.rails import most_nics, rails_in_common
from traffic import metrics

Flow = tuple[int, int, float]
"""From rank, to rank, and how much of the data goes there in a step (1: all of it once)."""
BOTH_ZONES_FROM = 4
"""Nodes of a collective, from which on all zones give some: a pair of them is in one."""
_TRIES = 2000
_TRIES_AT_THE_BUSIEST_PER_NODE = 50


def nodes_by_zone(count: int, zones: int, zones_from: int | None = BOTH_ZONES_FROM) -> list[int]:
    """Return how many nodes each zone gives: equally many from ``zones_from`` nodes on, the first zones more; below, or
    if it is None, zone 0 all."""
    if zones_from is None or count < zones_from:
        return [count] + [0] * (zones - 1)
    return [count // zones + (zone < count % zones) for zone in range(zones)]


def nodes_over_zones(fabric: Fabric, count: int, zones_from: int | None = BOTH_ZONES_FROM) -> tuple[NodeId, ...]:
    """Return ``count`` compute nodes, zone by zone, the first of each; fewer if zones have not so many."""
    shares = enumerate(nodes_by_zone(count, fabric.zones, zones_from))
    return tuple(node for zone, share in shares for node in fabric.with_role(Role.COMPUTE, zone=zone)[:share])


def ranks_of(fabric: Fabric, hosts: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """Return what can be ranks of a collective on hosts: these themselves, or all their GPUs if they have an inside."""
    if fabric.inside is None:
        return tuple(hosts)
    return tuple(gpu_of(host, number) for host in hosts for number in range(fabric.inside.gpus))


def nics_of_gpus(fabric: Fabric) -> int:
    """Return by how many NICs the GPUs of a node send to others: all where a switch joins them, else one."""
    if fabric.inside is None or not fabric.inside.has_nvswitch:
        return 1
    return len(set(fabric.inside.nic_of_gpu))


def ideal_algbw_Bps(  # noqa: N802 - bytes, not bits
    fabric: Fabric, ranks: Sequence[NodeId], flows: Sequence[Flow]
) -> float | None:
    """Return the algbw in bytes per second at which the NICs of the busiest host are full of what it sends or receives,
    less headers; None if nothing crosses the network."""
    busy: dict[tuple[NodeId, bool], float] = {}
    for source, target, share in flows:
        if ranks[source].host != ranks[target].host:
            for place in ((ranks[source].host, True), (ranks[target].host, False)):
                busy[place] = busy.get(place, 0.0) + share
    if not busy:
        return None
    nics = most_nics(rails_in_common(fabric, ranks)) if fabric.inside is None else nics_of_gpus(fabric)
    whole = metrics.ideal_algbw(fabric.nic_rate_bps * nics, max(busy.values()))
    return whole * metrics.payload_fraction(fabric.mtu_bytes)


CROWDING = Measure(
    "busiest_link_of_nic",
    "load of the busiest link over that of the busiest NIC, by the routes as planned",
    Better.LESS,
)


def crowding_of(fabric: Fabric, plan: RoutePlan, ranks: Sequence[NodeId], flows: Sequence[Flow]) -> float:
    """Return the load of the busiest link over that of the busiest NIC, which sends or receives it; 1 if routes never
    collide there, or nothing crosses the network. What GPUs send counts at the NIC that their hosts have in common."""
    places = {host: place for place, host in enumerate(dict.fromkeys(rank.host for rank in ranks))}
    between = [(places[ranks[source].host], places[ranks[target].host], share) for source, target, share in flows]
    loads = link_loads(fabric, plan, list(places), [flow for flow in between if flow[0] != flow[1]])
    nics = [loads[port] for link in fabric.links if link.tier is Tier.ACCESS for port in link.ports]
    return max(loads.values()) / max(nics) if max(nics) else 1.0


def order_ranks(fabric: Fabric, plan: RoutePlan, nodes: Sequence[NodeId], flows: Sequence[Flow]) -> tuple[NodeId, ...]:
    """Return ``nodes`` in an order of ranks under which ``flows`` load the busiest link least.

    Every rank keeps a node of the zone that it had, since schedules are made for zones. The same arguments give the
    same order.
    """
    placement = _Placement(fabric, plan, nodes, flows)
    swaps = random.Random(0)
    for _ in range(_TRIES):
        _try_swap(placement, *swaps.sample(range(len(nodes)), 2))
    # Among many nodes few swaps concern the busiest port.
    for _ in range(_TRIES_AT_THE_BUSIEST_PER_NODE * len(nodes)):
        ranks = placement.ranks_at_the_busiest()
        if not ranks:
            break
        _try_swap(placement, swaps.choice(ranks), swaps.randrange(len(nodes)))
    return tuple(placement.order)


def _try_swap(placement: _Placement, a: int, b: int) -> None:
    """Let two ranks of a zone exchange their nodes, unless that makes it worse."""
    if a == b or placement.order[a].zone != placement.order[b].zone:
        return
    before = placement.cost()
    placement.swap(a, b)
    if placement.cost() > before:
        placement.swap(a, b)


def link_loads(fabric: Fabric, plan: RoutePlan, order: Sequence[NodeId], flows: Sequence[Flow]) -> Mapping[Port, float]:
    """Return how much of the data each port sends in a step by the plan; of every port of the fabric."""
    return _Placement(fabric, plan, order, flows).port_loads()


class _Placement:
    """Which node is which rank, and each port's expected load by it.

    Only what a swap changes is computed: the ways of those flows that the two ranks have, of all pairs of nodes.
    """

    def __init__(self, fabric: Fabric, plan: RoutePlan, order: Sequence[NodeId], flows: Sequence[Flow]) -> None:
        self.order = list(order)
        self._fabric, self._plan = fabric, plan
        self._nics = fabric.nics_in_common(order)
        self._ports = [port for link in fabric.links for port in link.ports]
        self._places = {port: place for place, port in enumerate(self._ports)}
        self._ways: dict[tuple[NodeId, NodeId], _Ways] = {}
        self._flows = flows
        self._flows_of: list[list[int]] = [[] for _ in order]
        self._flows_at: list[set[int]] | None = None
        self._loads = np.zeros(len(self._ports))
        for number, (source, destination, _) in enumerate(flows):
            for rank in {source, destination}:
                self._flows_of[rank].append(number)
        self._count(range(len(flows)), 1)

    def swap(self, a: int, b: int) -> None:
        """Let two ranks exchange their nodes."""
        theirs = sorted({*self._flows_of[a], *self._flows_of[b]})
        self._count(theirs, -1)
        self.order[a], self.order[b] = self.order[b], self.order[a]
        self._count(theirs, 1)

    def cost(self) -> tuple[float, float]:
        """Return the busiest port's load, then the sum of squares, which falls as crowds dissolve."""
        return float(self._loads.max()), float(self._loads @ self._loads)

    def ranks_at_the_busiest(self) -> list[int]:
        """Return the ranks whose flows the busiest port may send; none if it is a host's: no order changes its load."""
        busiest = float(self._loads.max())
        places = np.flatnonzero(self._loads == busiest).tolist()
        if any(not self._ports[place].node.is_switch for place in places):
            return []
        if self._flows_at is None:  # Nobody has asked so far, and to keep them takes longer than to add loads up.
            self._flows_at = [set() for _ in self._ports]
            for number in range(len(self._flows)):
                for place in self._ways_of(number).places:
                    self._flows_at[place].add(number)
        return sorted({rank for number in self._flows_at[places[0]] for rank in self._flows[number][:2]})

    def port_loads(self) -> dict[Port, float]:
        """Return the load of each port."""
        return dict(zip(self._ports, self._loads.tolist(), strict=True))

    def _count(self, numbers: Iterable[int], sign: int) -> None:
        """Count flows at the ports that may send them (1), or no longer (-1)."""
        for number in numbers:
            ways = self._ways_of(number)
            self._loads[ways.indices] += sign * self._flows[number][2] * ways.shares
            if self._flows_at is not None:
                for place in ways.places:
                    (self._flows_at[place].add if sign > 0 else self._flows_at[place].remove)(number)

    def _ways_of(self, number: int) -> _Ways:
        source, destination = (self.order[rank] for rank in self._flows[number][:2])
        found = self._ways.get((source, destination))
        if found is None:
            load = path_load(self._plan, self._fabric, self._nics[source], self._nics[destination])
            places = [self._places[port] for port in load]
            found = _Ways(places, np.array(places, dtype=np.intp), np.array(list(load.values())))
            self._ways[source, destination] = found
        return found


class _Ways(NamedTuple):
    """The ports that may send a flow, and the share of it that each is expected to."""

    places: list[int]
    indices: npt.NDArray[np.intp]
    shares: npt.NDArray[np.float64]


class RankOrder(str, Enum):
    """Which node is which rank: so that static routes do not collide, or as nodes are numbered."""

    ROUTES = "routes"
    NODES = "nodes"


class OrderedRanks(Strict):
    """Which node is which rank, of experiments that choose it."""

    rank_order: Annotated[RankOrder, Field(strict=False)] = Field(
        default=RankOrder.ROUTES,
        description="Which node is which rank: so that static routes do not collide, or as nodes are numbered.",
    )
