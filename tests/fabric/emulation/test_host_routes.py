"""By which NIC a host with several sends."""

from __future__ import annotations

from fabric.emulation.host_routes import (
    closed_blocks,
    goes_by_source,
    named_nics,
    near_address,
    routes_by_destination,
)
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


def test_the_way_to_storage_of_another_zone_is_closed_to_hosts_of_one_nic() -> None:
    closed = closed_blocks(SMALL)
    assert closed[NodeId.parse("z0h000")] == ["10.129.0.0/16"]
    assert closed[NodeId.parse("z1h003")] == ["10.128.0.0/16"]
    assert set(closed) == {host for host in SMALL.hosts if len(SMALL.nics_of[host]) == 1}
    reached = {(nic.node, other.ip) for nic in SMALL.nics for other in SMALL.nics if SMALL.reaches(nic, other)}
    for host, blocks in closed.items():
        second_bytes = {block.split(".")[1] for block in blocks}
        assert not [ip for node, ip in reached if node == host and ip.split(".")[1] in second_bytes]


def test_the_name_of_a_storage_node_has_an_address_for_each_zone_and_a_host_of_rails_only_its_first() -> None:
    named = named_nics(SMALL)
    assert [nic.ip for nic in named[NodeId.parse("st002")]] == ["10.128.0.3", "10.129.0.3"]
    assert [nic.ip for nic in named[NodeId.parse("z1h000")]] == ["10.1.0.1"]
    rails = named_nics(fabric_of_nics(RAILS, joined=True))
    assert [[nic.ip for nic in nics] for nics in rails.values()] == [["10.0.0.1"], ["10.0.0.2"]]


def test_near_addresses_are_those_that_are_reached() -> None:
    zone_1, storage = NodeId.parse("z1h000"), NodeId.parse("st000")
    assert near_address(SMALL, zone_1, storage) == "10.129.0.1"
    assert near_address(SMALL, NodeId.parse("z0h000"), storage) == "10.128.0.1"
    assert near_address(SMALL, storage, storage) == "10.128.0.1"
    named = named_nics(SMALL)
    for source in SMALL.hosts:
        for destination in SMALL.hosts:
            ip = near_address(SMALL, source, destination)
            other = next(nic for nic in SMALL.nics if nic.ip == ip)
            assert other in named[destination]
            assert source == destination or any(SMALL.reaches(nic, other) for nic in SMALL.nics_of[source])


def test_hosts_that_no_network_joins_have_no_near_address() -> None:
    apart = {"z0h000": [("z0l00", "10.0.0.1")], "z0h001": [("z0l01", "10.0.0.2")]}
    fabric = fabric_of_nics(apart, joined=False)
    assert near_address(fabric, *fabric.hosts) is None
