"""A node's place, name, DPID, IP and MAC: one value, converted without loss and never twice the same."""

from __future__ import annotations

import ipaddress
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.model.identity import MAX_HOSTS_PER_GROUP, MAX_ZONES, NodeId, Role, mac_of_ip, nic_ip
from topologies.load import load_fabric

EXAMPLES = [
    ("z0l03", NodeId(Role.LEAF, 0, 3)),
    ("z1s12", NodeId(Role.SPINE, 1, 12)),
    ("z0h117", NodeId(Role.COMPUTE, 0, 117)),
    ("z12h1200", NodeId(Role.COMPUTE, 12, 1200)),
    ("st042", NodeId(Role.STORAGE, None, 42)),
    ("ix0", NodeId(Role.INTER_ZONE, None, 0)),
    ("c07", NodeId(Role.CORE, None, 7)),
    ("z0h117.g5", NodeId(Role.GPU, 0, 117, 5)),
    ("z0h117.cpu0", NodeId(Role.CPU, 0, 117)),
    ("z0h117.nv0", NodeId(Role.NVSWITCH, 0, 117)),
]
FULL = load_fabric("fire_flyer_2")


def any_node() -> st.SearchStrategy[NodeId]:
    zoned = st.builds(
        NodeId,
        st.sampled_from([Role.LEAF, Role.SPINE, Role.COMPUTE]),
        st.integers(0, MAX_ZONES - 1),
        st.integers(0, MAX_HOSTS_PER_GROUP - 1),
    )
    places = st.sampled_from([Role.STORAGE, Role.INTER_ZONE, Role.CORE])
    return zoned | st.builds(NodeId, places, st.none(), st.integers(0, MAX_HOSTS_PER_GROUP - 1))


@pytest.mark.parametrize(("name", "node"), EXAMPLES)
def test_a_name_and_a_place_are_the_same_thing(name: str, node: NodeId) -> None:
    assert node.name == str(node) == name
    assert NodeId.parse(name) == node


def test_the_examples_have_every_role() -> None:
    assert {node.role for _, node in EXAMPLES} == set(Role)


@given(any_node())
def test_every_name_reads_as_its_node(node: NodeId) -> None:
    assert NodeId.parse(node.name) == node


@pytest.mark.parametrize(
    "name", ["", "leaf3", "z0x03", "z0", "st", "ix", "z-1l00", "z0l03-eth1", " z0l03", "Z0L03", "zl03"]
)
def test_what_is_no_name_is_refused_with_examples(name: str) -> None:
    with pytest.raises(ValueError) as refused:
        NodeId.parse(name)
    expected = f"{name!r} is not a node's name; names look like z0l03, z1s12, c07, z0h117, st042, ix0"
    assert str(refused.value) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("z0l3", "z0l03"),
        ("z0h7", "z0h007"),
        ("st42", "st042"),
        ("ix00", "ix0"),
        ("z00l03", "z0l03"),
        ("z0l03\n", "z0l03"),
    ],
)
def test_a_name_spelled_differently_is_refused_with_its_spelling(name: str, meant: str) -> None:
    with pytest.raises(ValueError) as refused:
        NodeId.parse(name)
    assert str(refused.value) == f"{name!r} is not a node's name; did you mean {meant!r}?"


@pytest.mark.parametrize(("role", "is_switch"), [(role, role.value <= Role.INTER_ZONE.value) for role in Role])
def test_leaves_spines_and_inter_zone_switches_forward(role: Role, is_switch: bool) -> None:
    assert NodeId(role, 0, 0).is_switch is is_switch


def test_nodes_sort_switches_first_then_by_zone_and_index() -> None:
    names = ["c03", "z0l01", "z0l10", "z1l00", "z0s00", "ix0", "z0h002", "z1h000", "st000"]
    assert [node.name for node in sorted(NodeId.parse(name) for name in reversed(names))] == names


def test_no_dpid_of_the_full_fabric_occurs_twice_or_is_zero() -> None:
    dpids = [node.dpid for node in FULL.nodes]
    assert len(set(dpids)) == len(dpids) == 1502
    assert all(0 < dpid < 2**64 for dpid in dpids)


@given(any_node(), any_node())
def test_different_nodes_have_different_dpids(one: NodeId, other: NodeId) -> None:
    same = (one.role, one.zone, one.index) == (other.role, other.zone, other.index)
    assert (one.dpid == other.dpid) == same == (one == other)


def test_corners_of_the_address_space_do_not_meet() -> None:
    zones, indices = (0, 1, MAX_ZONES - 1), (0, 1, 254, 255, 256, MAX_HOSTS_PER_GROUP - 1)
    computes = [nic_ip(NodeId(Role.COMPUTE, zone, index), zone) for zone, index in itertools.product(zones, indices)]
    storages = [nic_ip(NodeId(Role.STORAGE, None, index), zone) for zone, index in itertools.product(zones, indices)]
    addresses = [ipaddress.IPv4Address(text) for text in computes + storages]
    assert len(set(addresses)) == len(addresses) == 36
    assert all(address in ipaddress.IPv4Network("10.0.0.0/8") for address in addresses)


@pytest.mark.parametrize(
    ("name", "zone", "address"),
    [
        ("z0h000", 0, "10.0.0.1"),
        ("z1h254", 1, "10.1.0.255"),
        ("z1h255", 1, "10.1.1.0"),
        ("st000", 0, "10.128.0.1"),
        ("st042", 1, "10.129.0.43"),
    ],
)
def test_addresses_tell_zone_role_and_index(name: str, zone: int, address: str) -> None:
    assert nic_ip(NodeId.parse(name), zone) == address


def test_all_addresses_of_the_full_fabric_are_its_own() -> None:
    assert len(FULL.nics) == 1200 + 2 * 180
    assert len({nic.ip for nic in FULL.nics}) == len(FULL.nics)
    assert len({nic.mac for nic in FULL.nics}) == len(FULL.nics)


def test_all_addresses_of_the_full_fabric_are_valid() -> None:
    network = ipaddress.IPv4Network("10.0.0.0/8")
    for nic in FULL.nics:
        address = ipaddress.IPv4Address(nic.ip)
        assert address in network
        assert address not in (network.network_address, network.broadcast_address)
        first, *others = nic.mac.split(":")
        assert int(first, 16) & 0b11 == 0b10, "locally administered, for one receiver"
        assert [len(byte) for byte in others] == [2] * 5
        assert int("".join(others), 16)


def test_a_mac_holds_its_ip() -> None:
    assert mac_of_ip("10.129.0.43") == "02:00:0a:81:00:2b"
