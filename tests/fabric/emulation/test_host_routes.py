"""By which NIC a host with several sends."""

from __future__ import annotations

from fabric.emulation.host_routes import goes_by_source, routes_by_destination
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, FabricBuilder, Tier
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")


def fabric_of_nics(nics: dict[str, list[tuple[str, str]]], joined: bool) -> Fabric:
    """Return a fabric of hosts, each with NICs given by leaf and address; a spine joins the leaves, or none does."""
    made = FabricBuilder("test", 1, 1500, access_ports=8, switch_ports=8, reference_nic_rate_bps=10**6)
    leaves = sorted({leaf for plugged in nics.values() for leaf, _ in plugged})
    for name in [*leaves, *nics, *(["z0s00"] if joined else [])]:
        made.add_node(NodeId.parse(name))
    for host, plugged in nics.items():
        for leaf, address in plugged:
            made.connect(NodeId.parse(host), NodeId.parse(leaf), 10**6, Tier.ACCESS, address=address)
    for leaf in leaves if joined else []:
        made.connect(NodeId.parse(leaf), NodeId.parse("z0s00"), 10**6, Tier.UPLINK)
    return made.build()


def routes(fabric: Fabric, name: str) -> list[tuple[str, int]]:
    return [(network, nic.port.number) for network, nic in routes_by_destination(fabric, NodeId.parse(name))]


RAILS = {
    "z0h000": [("z0l00", "10.0.0.1"), ("z0l01", "10.1.0.1")],
    "z0h001": [("z0l00", "10.0.0.2"), ("z0l01", "10.1.0.2")],
}


def test_planes_have_a_nic_each() -> None:
    fabric = fabric_of_nics(RAILS, joined=False)
    assert routes(fabric, "z0h000") == [("10.0.0.0/16", 0), ("10.1.0.0/16", 1)]
    assert not goes_by_source(fabric, NodeId.parse("z0h000"))


def test_what_several_nics_reach_goes_by_the_first_unless_the_source_says_otherwise() -> None:
    fabric = fabric_of_nics(RAILS, joined=True)
    assert routes(fabric, "z0h001") == [("10.0.0.0/16", 0), ("10.1.0.0/16", 0)]
    assert goes_by_source(fabric, NodeId.parse("z0h001"))


def test_addresses_of_one_block_in_different_planes_have_routes_of_their_own() -> None:
    nics = {host: [(leaf, ip.replace("10.1.0.", "10.0.1.")) for leaf, ip in found] for host, found in RAILS.items()}
    assert routes(fabric_of_nics(nics, joined=False), "z0h000") == [("10.0.0.2/32", 0), ("10.0.1.2/32", 1)]


def test_storage_of_two_zones_goes_by_destination_as_ever() -> None:
    assert not any(goes_by_source(SMALL, host) for host in SMALL.hosts)
