"""Free forms of any shape that Hypothesis draws, and what a plan for one has to do."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any

from hypothesis import strategies as st

from controllers.planning.plan import RoutePlan
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic
from tests.fakes import FakeFabric
from topologies.load import fabric_of

_RATES = {"nic_rate": "1 Gbit/s", "uplink_rate": "1 Gbit/s", "reference_nic_rate": "1 Gbit/s"}
MOST_SWITCHES = 12


def free_form(links: list[Any], **keys: Any) -> Fabric:
    """Return the fabric of some links."""
    return fabric_of({"name": "drawn", "builder": "free_form", "links": links, "mtu": 4200, **_RATES, **keys}, "test")


def ring(count: int) -> list[str]:
    return [f"z0l{n:02d}-z0l{(n + 1) % count:02d}" for n in range(count)]


def line(*places: int) -> list[str]:
    return [f"z0l{a:02d}-z0l{b:02d}" for a, b in pairwise(places)]


def hosted(links: list[str]) -> list[str]:
    """Return the links with a host on each of the leaves."""
    leaves = sorted({end for link in links for end in link.split("-") if "l" in end})
    return [*links, *(f"z0h{leaf[3:]:0>3}-{leaf}" for leaf in leaves)]


STAR = [f"z0h{number:03d}-z0l00" for number in range(4)]
SHAPES: dict[str, list[Any]] = {
    "one host": STAR[:1],
    "two hosts on a switch": STAR[:2],
    "256 hosts on a switch": [f"z0h{number:03d}-z0l00" for number in range(256)],
    "rails of lone switches": [f"z0h{host:03d}-z0l{rail:02d}" for rail in range(4) for host in range(3)],
    "disconnected": ["z0h000-z0l00", "z0h001-z0l00", "z0h002-z0l01", "z0h003-z0l01", "z0h004-z0l02"],
    "two leaves, one link": hosted(line(0, 1)),
    "two leaves, three links": [*hosted(line(0, 1)), *line(0, 1), *line(0, 1)],
    "line": hosted(line(*range(8))),
    "line, numbered otherwise": hosted(line(1, 0, 3, 2, 5, 4)),
    "star of leaves": hosted([f"z0l00-z0l{number:02d}" for number in range(1, 6)]),
    "star of leaves around the last": hosted([f"z0l05-z0l{number:02d}" for number in range(5)]),
    "ring": hosted(ring(7)),
    "mesh": hosted([f"z0l{a:02d}-z0l{b:02d}" for a, b in combinations(range(5), 2)]),
    "tree of leaves": hosted([f"z0l{(n - 1) // 2:02d}-z0l{n:02d}" for n in range(1, 15)]),
    "leaves between spines": hosted(["z0l00-z0s00", "z0s00-z0l01", "z0l01-z0s01", "z0s01-z0l02"]),
    "ring of spines": [
        *hosted([f"z0l{n:02d}-z0s{n:02d}" for n in range(5)]),
        *(f"z0s{n:02d}-z0s{(n + 1) % 5:02d}" for n in range(5)),
    ],
    "spines that join nothing": [*STAR, "z0s00-z0s01"],
    "zones of one leaf": ["z0h000-z0l00", "z1h000-z1l00", "z0l00-ix0", "z1l00-ix0", "st000-z0l00", "st000-z1l00"],
}


@st.composite
def link_lists(draw: st.DrawFn, most_switches: int = MOST_SWITCHES, most_hosts: int = 8) -> list[Any]:
    """Leaves, mostly, spines and cores with links between any two of them, also parallel ones and none at all, so that
    parts are disconnected; compute nodes of one to three NICs on any leaves, and storage nodes."""
    leaves = [f"z0l{number:02d}" for number in range(draw(st.integers(1, most_switches)))]
    spines = [f"z0s{number:02d}" for number in range(draw(st.integers(0, max(0, most_switches - len(leaves)))))]
    cores = [f"c{number:02d}" for number in range(draw(st.integers(0, 2)) if spines else 0)]
    switches = (leaves + spines + cores)[:most_switches]
    pairs = [(a, b) for place, a in enumerate(switches) for b in switches[place + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    links: list[Any] = [{"a": a, "b": b, "count": draw(st.integers(1, 3))} for a, b in chosen]
    hosts = [f"z0h{number:03d}" for number in range(draw(st.integers(1, most_hosts)))]
    hosts += [f"st{number:03d}" for number in range(draw(st.integers(0, 2)))]
    for host in hosts:
        on = draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=3))
        links += [f"{host}-{leaf}" for leaf in on]
    return draw(st.permutations(links))


@st.composite
def link_lists_of_zones(draw: st.DrawFn) -> list[Any]:
    """Two zones of leaves and spines, inter-zone switches, and any links between them: many are not zoned fat-trees."""
    of_zone = st.tuples(st.integers(1, 2), st.integers(0, 2))
    zones = [draw(of_zone) for _ in range(2)]
    leaves = [f"z{zone}l{number:02d}" for zone, (count, _) in enumerate(zones) for number in range(count)]
    spines = [f"z{zone}s{number:02d}" for zone, (_, count) in enumerate(zones) for number in range(count)]
    joining = [f"ix{number}" for number in range(draw(st.integers(0, 2)))]
    wanted = [f"{leaf}-{spine}" for leaf in leaves for spine in spines if leaf[1] == spine[1]]
    wanted += [f"{leaf}-{switch}" for leaf in leaves for switch in joining]
    others = [f"{a}-{b}" for a in leaves + spines + joining for b in leaves + spines + joining if a < b]
    links: list[Any] = [link for link in wanted if draw(st.integers(0, 9))]
    links += draw(st.lists(st.sampled_from(others), max_size=1))
    links += [f"z{leaf[1]}h{number:03d}-{leaf}" for number, leaf in enumerate(leaves)]
    return links + [f"st000-{leaf}" for leaf in leaves if leaf.endswith("l00")]


def drawn_links(draw: random.Random) -> list[Any]:
    """Return what :func:`link_lists` draws, small, for tests that have no time for Hypothesis."""
    leaves = [f"z0l{number:02d}" for number in range(draw.randint(1, 5))]
    switches = leaves + [f"z0s{number:02d}" for number in range(draw.randint(0, 2))]
    pairs = list(combinations(switches, 2))
    chosen = draw.choices(pairs, k=draw.randint(0, 2 * len(switches))) if pairs else []
    links: list[Any] = [{"a": a, "b": b, "count": draw.randint(1, 2)} for a, b in chosen]
    hosts = [f"z0h{number:03d}" for number in range(draw.randint(1, 4))] + ["st000"] * draw.randint(0, 1)
    links += [f"{host}-{leaf}" for host in hosts for leaf in draw.choices(leaves, k=draw.randint(1, 3))]
    draw.shuffle(links)
    return links


def side_by_side(forms: Iterable[list[Any]]) -> list[Any]:
    """Return the links of several free forms as those of one, in which nothing joins them: its nodes are renumbered."""
    first = dict.fromkeys(Role, 0)
    links: list[Any] = []
    for form in forms:
        pairs = [
            (*link.split("-"), 1) if isinstance(link, str) else (link["a"], link["b"], link["count"]) for link in form
        ]
        nodes = {name: NodeId.parse(name) for a, b, _ in pairs for name in (a, b)}
        moved = {name: NodeId(one.role, one.zone, first[one.role] + one.index).name for name, one in nodes.items()}
        links += [{"a": moved[a], "b": moved[b], "count": count} for a, b, count in pairs]
        for role in first:
            first[role] += max((1 + one.index for one in nodes.values() if one.role is role), default=0)
    return links


def pairs_of(fabric: Fabric) -> list[tuple[Nic, Nic]]:
    """Return every two NICs of different hosts."""
    return [(a, b) for a in fabric.nics for b in fabric.nics if a.node != b.node]


def verify_delivery(fabric: Fabric, plan: RoutePlan) -> None:
    """Fail unless packets by every way that hashes may choose reach each NIC of the network, and no other has rules."""
    fake = FakeFabric(fabric, plan)
    for source, destination in pairs_of(fabric):
        for journey in fake.journeys(source, destination.ip):
            if fabric.reaches(source, destination):
                assert journey.delivered_to == destination, f"{source.port} to {destination.port}: {journey}"
            else:
                assert journey.delivered_to is None, f"{source.port} to {destination.port}: {journey}"
    for switch in fabric.switches if fabric.zones == 1 else ():
        network = next(number for number, one in enumerate(fabric.networks) if switch in one)
        routed = {rule.destination for rule in plan.rules[switch.dpid]} & {nic.ip for nic in fabric.nics}
        assert routed == {nic.ip for nic in fabric.nics if fabric.network_of(nic) == network}
