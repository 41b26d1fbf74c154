"""The order of ranks: which node is which rank, so that routes do not collide.

With destination-based static routes two flows of a collective may be planned over the same uplink while others idle; no
congestion control can fix that, but a scheduler can: it knows the routes and chooses which node is which rank. The
search is a deterministic hill climb over swaps of two nodes of a zone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from controllers.planning.paths import path_load
from controllers.planning.plan import RoutePlan
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port

Flow = tuple[int, int, float]
"""From rank, to rank, and how much of the data goes there in a step (1: all of it once)."""
_TRIES = 2000


def order_ranks(fabric: Fabric, plan: RoutePlan, nodes: Sequence[NodeId], flows: Sequence[Flow]) -> tuple[NodeId, ...]:
    """Return ``nodes`` in an order of ranks under which ``flows`` load the busiest link least.

    Every rank keeps a node of the zone that it had, since schedules are made for zones. The same arguments give the
    same order.
    """
    loads = _Loads(fabric, plan, nodes)
    order = list(nodes)
    zones = [node.zone for node in nodes]
    swaps = random.Random(0)
    best = loads.cost(order, flows)
    for _ in range(_TRIES):
        a, b = swaps.sample(range(len(order)), 2)
        if zones[a] != zones[b]:
            continue
        order[a], order[b] = order[b], order[a]
        cost = loads.cost(order, flows)
        if cost <= best:
            best = cost
        else:
            order[a], order[b] = order[b], order[a]
    return tuple(order)


def link_loads(fabric: Fabric, plan: RoutePlan, order: Sequence[NodeId], flows: Sequence[Flow]) -> Mapping[Port, float]:
    """Return how much of the data each port sends in a step by the plan."""
    loads = _Loads(fabric, plan, order)
    return dict(zip(loads.ports, loads.vector(order, flows).tolist(), strict=True))


class _Loads:
    """The ports on the ways between any two nodes, as indices, and each port's expected share of the flows."""

    def __init__(self, fabric: Fabric, plan: RoutePlan, nodes: Sequence[NodeId]) -> None:
        nics = fabric.nics_in_common(nodes)
        paths = {(a, b): path_load(plan, fabric, nics[a], nics[b]) for a in nodes for b in nodes if a != b}
        self.ports = sorted({port for path in paths.values() for port in path})
        places = {port: place for place, port in enumerate(self.ports)}
        self._paths = {pair: np.array([places[port] for port in path]) for pair, path in paths.items()}
        self._shares = {pair: np.array(list(path.values())) for pair, path in paths.items()}

    def vector(self, order: Sequence[NodeId], flows: Sequence[Flow]) -> npt.NDArray[np.float64]:
        """Return the load of each port."""
        loads = np.zeros(len(self.ports))
        for source, destination, share in flows:
            pair = order[source], order[destination]
            loads[self._paths[pair]] += share * self._shares[pair]
        return loads

    def cost(self, order: Sequence[NodeId], flows: Sequence[Flow]) -> tuple[float, float]:
        """Return the busiest port's load, then the sum of squares, which falls as crowds dissolve."""
        loads = self.vector(order, flows)
        return float(loads.max()), float((loads**2).sum())


class RankOrder(str, Enum):
    """Which node is which rank: so that static routes do not collide, or as nodes are numbered."""

    ROUTES = "routes"
    NODES = "nodes"
