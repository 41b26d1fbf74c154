"""Free forms of any shape that Hypothesis draws, and what a plan for one has to do."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from controllers.planning.plan import RoutePlan
from fabric.model.network import Fabric, Nic
from tests.fakes import FakeFabric
from topologies.load import fabric_of

_RATES = {"nic_rate": "1 Gbit/s", "uplink_rate": "1 Gbit/s", "reference_nic_rate": "1 Gbit/s"}
MOST_SWITCHES = 12


def free_form(links: list[Any], **keys: Any) -> Fabric:
    """Return the fabric of some links."""
    return fabric_of({"name": "drawn", "builder": "free_form", "links": links, "mtu": 4200, **_RATES, **keys}, "test")


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
    """Two zones of leaves and spines, inter-zone switches, and any links between them: many are no zoned fat-tree."""
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
