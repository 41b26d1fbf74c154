"""Which links are cut, when, and which flows that affects: pure functions of a fabric, its plan and a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle, permutations

from controllers.planning.paths import nics_for, planned_path
from controllers.planning.plan import RoutePlan
from fabric.errors import ConfigError
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Tier
from traffic.flows.probes import ProbeFlow

Crossed = Mapping[ProbeFlow, frozenset[Link]]
"""The links that each flow crosses."""


class Place(str, Enum):
    """Where in a fabric something is cut."""

    HOST_LINK = "host_link"
    LEAF_SPINE = "leaf_spine"
    INTER_ZONE = "inter_zone"
    SPINE = "spine"
    """A whole spine switch: all its links at once."""

    @property
    def words(self) -> str:
        """The place in words."""
        return _TITLES[self]


_TITLES = {
    Place.HOST_LINK: "host link",
    Place.LEAF_SPINE: "leaf-spine link",
    Place.INTER_ZONE: "inter-zone link",
    Place.SPINE: "spine switch",
}
_TIERS = {Place.HOST_LINK: Tier.ACCESS, Place.LEAF_SPINE: Tier.UPLINK, Place.INTER_ZONE: Tier.INTER_ZONE}


@dataclass(frozen=True)
class CutTarget:
    """What is cut at once: a link, or all of a switch's. ``name`` is the link's or the switch's."""

    place: Place
    name: str
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Cut:
    """A target that is cut from ``at_s``, in seconds of its schedule, for ``duration_s``."""

    number: int
    target: CutTarget
    at_s: float
    duration_s: float

    @property
    def ends_s(self) -> float:
        """When it is whole again."""
        return self.at_s + self.duration_s


def crossed_links(fabric: Fabric, plan: RoutePlan) -> Crossed:
    """Return the links that the plan leads each pair of compute nodes over, both ways being two flows."""
    found = {}
    for source, destination in permutations(fabric.computes, 2):
        path = planned_path(plan, fabric, *nics_for(fabric, source, destination))
        found[ProbeFlow(source, destination)] = frozenset(fabric.link_at[port] for port in path)
    return found


def choose_targets(fabric: Fabric, crossed: Crossed, place: Place, count: int, seed: int) -> tuple[CutTarget, ...]:
    """Return up to ``count`` targets of a place, drawn by the seed among those that some compute's flow crosses.

    Raises ConfigError if there is none.
    """
    used = frozenset[Link]().union(*crossed.values())
    found = [target for target in _targets(fabric, place) if not used.isdisjoint(target.links)]
    if not found:
        raise ConfigError(
            "places", [f"{place.value}: {fabric.name} has no {place.words} that a flow crosses; remove it"]
        )
    random.Random(f"{seed}/{place.value}").shuffle(found)
    return tuple(found[:count])


def _targets(fabric: Fabric, place: Place) -> Iterator[CutTarget]:
    if place is Place.SPINE:
        for spine in fabric.with_role(Role.SPINE):
            yield CutTarget(place, spine.name, tuple(fabric.link_at[port] for port in fabric.ports_of[spine]))
        return
    for link in fabric.links_of_tier(_TIERS[place]):
        # Storage nodes speak within their zone by a NIC in each: probes are between compute nodes.
        if all(port.node.role is not Role.STORAGE for port in link.ports):
            yield CutTarget(place, str(link), (link,))


def choose_flows(crossed: Crossed, targets: Sequence[CutTarget], count: int) -> tuple[ProbeFlow, ...]:
    """Return flows so that at least ``count`` cross each target, or all if fewer do.

    Of equals, those are taken that cross most of the other targets, so that few flows do; half of a target's go one
    way over it, half the other, since a pair's two directions are two flows.
    """
    links = {link for target in targets for link in target.links}
    order = sorted(crossed, key=lambda flow: (-len(crossed[flow] & links), flow))
    chosen: dict[ProbeFlow, None] = {}
    for target in targets:
        over = [flow for flow in order if not crossed[flow].isdisjoint(target.links)]
        have = [flow for flow in chosen if flow in set(over)]
        for flow in _both_ways([flow for flow in over if flow not in chosen], have)[: max(0, count - len(have))]:
            chosen[flow] = None
    return tuple(chosen)


def _both_ways(flows: Sequence[ProbeFlow], have: Sequence[ProbeFlow]) -> list[ProbeFlow]:
    """Return flows so that sources and destinations change: first those whose hosts no other flow begins or ends at."""
    left = list(flows)
    sources, destinations = {flow.source for flow in have}, {flow.destination for flow in have}
    found: list[ProbeFlow] = []
    while left:
        best = min(left, key=lambda flow: (flow.source in sources) + (flow.destination in destinations))
        left.remove(best)
        sources.add(best.source)
        destinations.add(best.destination)
        found.append(best)
    return found


def crossing(crossed: Crossed, flows: Sequence[ProbeFlow], target: CutTarget) -> tuple[ProbeFlow, ...]:
    """Return the flows that cross a target."""
    return tuple(flow for flow in flows if not crossed[flow].isdisjoint(target.links))


def plan_cuts(
    targets: Mapping[Place, Sequence[CutTarget]], count: int, duration_s: float, gap_s: float, lead_s: float, seed: int
) -> tuple[Cut, ...]:
    """Return ``count`` cuts of each place, place by place in turn, each place's targets in turn.

    The first begins ``lead_s`` after the schedule does; between the end of one and the next lie ``gap_s``, and up to a
    quarter more by the seed, so that cuts meet steps of an allreduce anywhere.
    """
    rng = random.Random(f"{seed}/cuts/{duration_s}")
    turns = {place: cycle(found) for place, found in targets.items()}
    cuts: list[Cut] = []
    at_s = lead_s
    for _ in range(count):
        for turn in turns.values():
            at_s = round(at_s + rng.uniform(0, gap_s / 4), 9)
            cuts.append(Cut(len(cuts), next(turn), at_s, duration_s))
            at_s += duration_s + gap_s
    return tuple(cuts)


def cut_schedule(cuts: Sequence[Cut]) -> FailureSchedule:
    """Return the schedule that carries cuts out; their numbers are the causes of what happens."""
    failures = [
        Failure(link, cut.at_s, round(cut.ends_s, 9), causes=(cut.number,)) for cut in cuts for link in cut.target.links
    ]
    return FailureSchedule.of(failures)


def covering_flows(crossed: Crossed, hosts: Sequence[NodeId]) -> tuple[ProbeFlow, ...]:
    """Return few flows that together cross every link that any flow between ``hosts`` does."""
    left = {flow: links for flow, links in crossed.items() if flow.source in hosts and flow.destination in hosts}
    missing = set(frozenset[Link]().union(*left.values()))
    chosen: list[ProbeFlow] = []
    while missing:
        best = max(sorted(left), key=lambda flow: len(left[flow] & missing))
        missing -= left[best]
        chosen.append(best)
    return tuple(chosen)
