"""How many flows of a permutation meet on a leaf's uplink: by a plan, and in theory. Pure.

Every NIC sends one flow, and every NIC receives one. Hashes throw the n flows that leave a leaf over its u uplinks as
balls into bins: a link has k of them with the binomial probability of n trials at 1/u. Static routes have dealt the D
destinations elsewhere to the uplinks beforehand, and no two flows have the same: a link with d of them has k with the
hypergeometric probability of n draws from D, of which d are its own. That is more even, the more so the smaller the
fabric.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb

from controllers.planning.ecmp import UDP, FiveTuple
from controllers.planning.paths import planned_path
from controllers.planning.plan import RoutePlan
from controllers.planning.policies import Policy
from fabric.errors import UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair, compute_nics, permutation

Histogram = dict[int, float]
"""The share of links by how many flows they have."""
_FIRST_PORT, _LAST_PORT = 1024, 65_535


@dataclass(frozen=True)
class Collisions:
    """Flows per uplink of a leaf over many permutations: ``counted`` by the plan, and in ``theory``."""

    counted: Histogram
    theory: Histogram
    busiest_down: int
    """The most flows that any link downwards between switches has had."""

    @property
    def idle_share(self) -> tuple[float, float]:
        """The share of uplinks without a flow, counted and in theory: what of the leaves' capacity lies idle."""
        return self.counted.get(0, 0.0), self.theory.get(0, 0.0)


def collisions(fabric: Fabric, plan: RoutePlan, policy: Policy, permutations: int, seed: int = 0) -> Collisions:
    """Return how many flows meet on leaves' uplinks in random permutations, with random source ports. ``policy``
    leaves each flow on one path.

    The theory holds for fabrics whose leaves can send all that is elsewhere by each of their uplinks. Raises UsageError
    if no leaf has one.
    """
    leaves = [leaf for leaf in fabric.with_role(Role.LEAF) if fabric.uplinks_of(leaf)]
    if not leaves:
        raise UsageError(f"{fabric.name}: no leaf has a link to a spine, where flows could meet; use another topology")
    draw = random.Random(seed)
    counted: Counter[int] = Counter()
    theory = UplinkTheory(fabric, plan, policy)
    expected: list[tuple[Histogram, int]] = []
    busiest_down = 0
    for _ in range(permutations):
        load = _load(fabric, plan, permutation(fabric, compute_nics(fabric), draw), draw)
        for leaf in leaves:
            uplinks = fabric.uplinks_of(leaf)
            own = [load[port] for port in uplinks]
            counted.update(own)
            expected.append((theory.of_leaf(leaf, sum(own)), len(uplinks)))
        down = [count for port, count in load.items() if port.node.is_switch and not fabric.goes_up(port)]
        busiest_down = max(busiest_down, *down)
    shares = {count: number / counted.total() for count, number in sorted(counted.items())}
    return Collisions(shares, mixture(expected), busiest_down)


class UplinkTheory:
    """How many flows of a permutation a leaf's uplinks should have. ``plan`` is of ``policy``, whose routes stay."""

    def __init__(self, fabric: Fabric, plan: RoutePlan, policy: Policy) -> None:
        self._fabric = fabric
        self._plan = plan
        self._policy = policy
        self._dealt: dict[NodeId, Counter[int]] = {}

    def of_leaf(self, leaf: NodeId, flows: int) -> Histogram:
        """Return the share of a leaf's uplinks with each number of flows, when that many of a permutation leave it."""
        uplinks = self._fabric.uplinks_of(leaf)
        if self._policy.hashing:
            return binomial(flows, len(uplinks))
        if leaf not in self._dealt:
            self._dealt[leaf] = _destinations(self._fabric, self._plan, leaf)
        dealt = self._dealt[leaf]
        return mixture((hypergeometric(flows, dealt.total(), dealt[port.number]), 1) for port in uplinks)


def mixture(parts: Iterable[tuple[Histogram, int]]) -> Histogram:
    """Return the shares over all links, given those of parts of them and how many links each part is."""
    found: Counter[int] = Counter()
    total = 0
    for histogram, links in parts:
        total += links
        for count, share in histogram.items():
            found[count] += share * links  # type: ignore[assignment]
    return {count: number / total for count, number in sorted(found.items())}


def binomial(flows: int, links: int) -> Histogram:
    """Return the probability of each number of flows on a link, where each flow takes any link alike."""
    share = 1 / links
    return {count: comb(flows, count) * share**count * (1 - share) ** (flows - count) for count in range(flows + 1)}


def hypergeometric(flows: int, destinations: int, own: int) -> Histogram:
    """Return the probability of each number of flows on a link that ``own`` of the ``destinations`` are sent by."""
    every = comb(destinations, flows)
    return {
        count: comb(own, count) * comb(destinations - own, flows - count) / every
        for count in range(min(flows, own) + 1)
    }


def _load(fabric: Fabric, plan: RoutePlan, flows: Sequence[NicPair], draw: random.Random) -> Counter[Port]:
    load: Counter[Port] = Counter()
    for source, destination in flows:
        ports = (draw.randint(_FIRST_PORT, _LAST_PORT) for _ in range(2))
        load.update(planned_path(plan, fabric, source, destination, FiveTuple(source.ip, destination.ip, UDP, *ports)))
    return load


def _destinations(fabric: Fabric, plan: RoutePlan, leaf: NodeId) -> Counter[int]:
    """Return how many NICs of compute nodes elsewhere a leaf sends to by each of its uplinks, by the port's number."""
    here = fabric.nics_on_leaf(leaf)
    found: Counter[int] = Counter()
    for nic in compute_nics(fabric):
        if here and fabric.leaf_of(nic) != leaf and fabric.reaches(here[0], nic):
            rule = plan.lookup(leaf.dpid, here[0].port.number, here[0].ip, nic.ip)
            found.update(plan.ways(rule))
    return found
