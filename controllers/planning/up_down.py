"""Routes of any fabric of levels: packets go up, and then down. Pure functions of the fabric.

Switches have an order, and every link leads up from the earlier to the later. In fabrics of layers the order is that of
levels. Where links join switches of one level (rings, meshes, lines of leaves), or levels leave two leaves unjoined,
switches are in order of their distance from one in the middle, the highest, if that makes ways shorter: all have a way
up to it, and down from it, so all that links join reach each other (Autonet's up*/down*).

A switch that can go down to a destination's leaf does so by a shortest way down; all others go up, by what is nearest
to a switch that can. So no packet goes up once it has gone down: there is no loop, and in a lossless fabric no cycle of
waits. In rings and meshes some ways are longer than the shortest for that.

The ports of equally short ways are dealt to destinations as InfiniBand's d-mod-k: destination number n leaves level 1
by port n mod u1 of its u1 ways up, level 2 by n / u1 mod u2, and so on. Sources of one destination thus meet early, and
neighbours among destinations part. At every switch, the ports of one choice carry the same number of destinations
within one; where d-mod-k would break this, the fewest destinations move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count

from controllers.planning.distances import Distances, LiveGraph, filled
from controllers.planning.plan import FlowRule, Purpose, table_miss
from controllers.planning.routes import Route, spread
from fabric.model.graph import hops_from
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Nic, Port

Order = Mapping[NodeId, int]
"""The place of each switch: links lead up from the earlier to the later."""
_CENTRES_TRIED = 200
"""Of networks with more switches, the first is taken for the middle: such are made by builders, in layers."""


class UpDownGraph(LiveGraph):
    """The live links of a fabric, with distances that go up and then down."""

    def __init__(self, fabric: Fabric, down: Collection[Link] = (), order: Order | None = None) -> None:
        super().__init__(fabric, down)
        self.order = order_of(fabric) if order is None else order
        self._up = {
            switch: [peer for peer in peers if self.order[peer] > self.order[switch]]
            for switch, peers in self.neighbours.items()
        }

    def is_up(self, switch: NodeId, peer: NodeId) -> bool:
        """Return whether a link from ``switch`` to ``peer`` leads up."""
        return self.order[peer] > self.order[switch]

    def above(self, switch: NodeId) -> Sequence[NodeId]:
        """Return the neighbours to which a switch has a live link that leads up."""
        return self._up[switch]

    def new_distances(self, leaf: NodeId) -> Distances:
        """Return how far everything is from a leaf: downwards, up and then down, and at all."""
        below = self._down_to(leaf)
        regular = self._up_and_down(below)
        everything = filled(self, regular, lambda _: True)
        return UpDownDistances(leaf, regular, everything, everything, below)

    def _down_to(self, leaf: NodeId) -> dict[NodeId, int]:
        """Return the length of the shortest way down from each switch that has one."""
        distances, edge = {leaf: 0}, [leaf]
        for distance in count(1):
            edge = list(dict.fromkeys(peer for node in edge for peer in self.above(node) if peer not in distances))
            if not edge:
                return distances
            distances.update(dict.fromkeys(edge, distance))
        raise AssertionError("count() does not end")

    def _up_and_down(self, below: dict[NodeId, int]) -> dict[NodeId, int]:
        """Return those, and one more than the nearest switch above for each that has no way down."""
        distances = dict(below)
        for switch in sorted(self.order, key=self.order.__getitem__, reverse=True):
            if switch not in below:
                nearest = min((distances[peer] for peer in self.above(switch) if peer in distances), default=None)
                if nearest is not None:
                    distances[switch] = nearest + 1
        return distances


@dataclass(frozen=True)
class UpDownDistances(Distances):
    """See :class:`Distances`; ``below`` holds the switches with a way down, and its length."""

    below: dict[NodeId, int]

    def nearer(self, graph: LiveGraph, switch: NodeId) -> list[tuple[Port, NodeId]]:
        """Return the live ports of the shortest ways; none if there is no way."""
        assert isinstance(graph, UpDownGraph)
        if switch not in self.regular:
            return super().nearer(graph, switch)
        wanted = self.regular[switch] - 1
        if switch in self.below:
            return [
                (port, peer)
                for port, peer in graph.ports[switch]
                if self.below.get(peer) == wanted and not graph.is_up(switch, peer)
            ]
        return [
            (port, peer)
            for port, peer in graph.ports[switch]
            if self.regular.get(peer) == wanted and graph.is_up(switch, peer)
        ]


@lru_cache(maxsize=4)
def order_of(fabric: Fabric) -> Order:
    """Return the order of a fabric's switches: that of levels, or, network by network, the one with the shortest ways
    of that and of the distance from the middle. Failures do not change it."""
    by_level = {
        switch: place for place, switch in enumerate(sorted(fabric.switches, key=lambda one: (fabric.levels[one], one)))
    }
    graph = UpDownGraph(fabric, order=by_level)
    order = dict(by_level)
    for network in fabric.networks:
        if _joins_all(graph, network) and not _joins_one_level(fabric, network):
            continue
        ways = _lengths(graph, network)
        centred = {**by_level, **_from_the_middle(graph, network)}
        if _lengths(UpDownGraph(fabric, order=centred), network) < ways:
            order.update({switch: centred[switch] for switch in network})
    return order


@dataclass(frozen=True, order=True)
class _Lengths:
    """How good an order is: the pairs of leaves without a way, and the hops of all that have one."""

    missing: int
    hops: int


def _joins_all(graph: UpDownGraph, network: Collection[NodeId]) -> bool:
    """Whether every two of a network's leaves with hosts have a switch above both, or are above each other: looked at
    in sets of bits, as distances between all leaves of large fabrics take seconds."""
    above: dict[NodeId, int] = {}
    for switch in sorted(network, key=graph.order.__getitem__, reverse=True):
        above[switch] = 1 << graph.order[switch]
        for peer in graph.above(switch):
            above[switch] |= above[peer]
    return all(above[a] & above[b] for a, b in combinations(_used_leaves(graph.fabric, network), 2))


def _used_leaves(fabric: Fabric, network: Collection[NodeId]) -> list[NodeId]:
    return [leaf for leaf in _leaves(fabric) if leaf in network and fabric.nics_on_leaf(leaf)]


def _lengths(graph: UpDownGraph, network: Collection[NodeId]) -> _Lengths:
    """Return the lengths of the ways between a network's leaves with hosts."""
    leaves = _used_leaves(graph.fabric, network)
    found = [graph.distances(leaf).regular.get(other) for leaf in leaves for other in leaves]
    return _Lengths(found.count(None), sum(hops for hops in found if hops is not None))


def _joins_one_level(fabric: Fabric, network: Collection[NodeId]) -> bool:
    return any(
        link.a.node in network and link.b.node in network and fabric.levels[link.a.node] == fabric.levels[link.b.node]
        for link in fabric.links
    )


def _from_the_middle(graph: UpDownGraph, network: Collection[NodeId]) -> dict[NodeId, int]:
    """Return a network's switches in order of their hops to the one in its middle, which comes last."""
    candidates = sorted(network)[: None if len(network) <= _CENTRES_TRIED else 1]
    hops = {centre: hops_from(centre, graph.neighbours) for centre in candidates}
    centre = min(candidates, key=lambda one: (max(hops[one].values()), sum(hops[one].values()), one))
    order = sorted(network, key=lambda switch: (-hops[centre][switch], switch))
    return {switch: place for place, switch in enumerate(order)}


def up_down_routes(fabric: Fabric) -> Iterator[Route | FlowRule]:
    """Return every switch's route to every NIC of its network, in no order, and what misses."""
    graph = UpDownGraph(fabric)
    numbers = numbered_nics(fabric)
    strides = destination_strides(fabric)
    for switch in fabric.switches:
        yield table_miss(switch.dpid)
        yield from _routes_of(graph, switch, numbers, strides)


def numbered_nics(fabric: Fabric) -> dict[NodeId, list[tuple[int, Nic]]]:
    """Return the NICs of each leaf, all numbered leaf by leaf."""
    numbers = count()
    return {leaf: [(next(numbers), nic) for nic in fabric.nics_on_leaf(leaf)] for leaf in _leaves(fabric)}


def destination_strides(fabric: Fabric) -> dict[int, int]:
    """Return how many neighbours among destinations take the same port up, by level."""
    most: dict[int, int] = defaultdict(int)
    for switch in fabric.switches:
        level = fabric.levels[switch]
        most[level] = max(most[level], len(fabric.uplinks_of(switch)))
    strides = {1: 1}
    for level in range(1, max(most, default=1) + 1):
        strides[level + 1] = strides[level] * max(1, most[level])
    return strides


def _routes_of(
    graph: UpDownGraph, switch: NodeId, numbers: dict[NodeId, list[tuple[int, Nic]]], strides: dict[int, int]
) -> Iterator[Route]:
    """Yield a switch's routes: the ports of each set of equally short ways carry as many destinations within one."""
    choices: dict[tuple[int, ...], list[tuple[int, Nic]]] = defaultdict(list)
    for leaf, nics in numbers.items():
        if leaf == switch:
            for _, nic in nics:
                yield Route(switch.dpid, nic.ip, graph.fabric.peer(nic.port).number, Purpose.DELIVER)
            continue
        ports = graph.distances(leaf).nearer(graph, switch)
        if ports:
            choices[tuple(sorted(port.number for port, _ in ports))] += nics
    level = graph.fabric.levels[switch]
    for numbered, found in choices.items():
        goes_up = graph.is_up(switch, graph.fabric.peer(Port(switch, numbered[0])).node)
        stride = strides[level if goes_up else max(1, level - 1)]
        wanted = [numbered[number // stride % len(numbered)] for number, _ in found]
        purpose = Purpose.UP if goes_up else Purpose.DOWN
        for (_, nic), port in zip(found, spread(wanted, numbered, turn=switch.index), strict=True):
            yield Route(switch.dpid, nic.ip, port, purpose)


def uneven_leaves(fabric: Fabric) -> list[NodeId]:
    """Return the leaves that cannot send every destination they send up by each of their uplinks, which are links to
    switches of a higher level."""
    graph = UpDownGraph(fabric)
    found = []
    for leaf in _leaves(fabric):
        uplinks = set(fabric.uplinks_of(leaf))
        ways = (graph.distances(other) for other in _leaves(fabric))
        up = (one for one in ways if leaf in one.regular and leaf not in one.below)  # type: ignore[attr-defined]
        if any({port for port, _ in one.nearer(graph, leaf)} != uplinks for one in up):
            found.append(leaf)
    return found


def _leaves(fabric: Fabric) -> tuple[NodeId, ...]:
    return fabric.with_role(Role.LEAF)
