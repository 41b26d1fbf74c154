"""The fabric as a value: what a builder refuses, and what can be asked of what it built."""

from __future__ import annotations

import json

import pytest

from fabric.errors import TopologyError
from fabric.model.encoding import fabric_from_json, fabric_to_json
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, FabricBuilder, Link, Port, Tier
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
MBIT = 10**6


def node(name: str) -> NodeId:
    return NodeId.parse(name)


def builder(*names: str, switch_ports: int = 4, mtu_bytes: int = 1500) -> FabricBuilder:
    made = FabricBuilder(
        "test", 1, mtu_bytes, access_ports=4, switch_ports=switch_ports, reference_nic_rate_bps=20 * MBIT
    )
    for name in names:
        made.add_node(node(name))
    return made


def join(made: FabricBuilder, a: str, b: str, tier: Tier = Tier.ACCESS, rate_bps: int = 10 * MBIT) -> Link:
    address = None if node(a).is_switch else f"10.0.{made._next_port[node(a)]}.{node(a).index % 250 + 1}"
    return made.connect(node(a), node(b), rate_bps, tier, address=address)


def faults_of(made: FabricBuilder) -> list[str]:
    with pytest.raises(TopologyError) as refused:
        made.build()
    assert refused.value.source == "test"
    assert str(refused.value) == "\n".join(f"test: {fault}" for fault in refused.value.faults)
    return list(refused.value.faults)


def test_switches_count_ports_from_one_and_hosts_from_zero() -> None:
    made = builder("z0l00", "z0h000", "z0h001")
    assert str(join(made, "z0h000", "z0l00")) == "z0h000:0--z0l00:1"
    assert str(join(made, "z0h001", "z0l00")) == "z0h001:0--z0l00:2"


def test_a_node_added_twice_is_a_fault() -> None:
    made = builder("z0l00", "z0h000", "z0h000")
    join(made, "z0h000", "z0l00")
    assert faults_of(made) == ["node z0h000: added 2 times; give every node its own index"]


def test_a_host_without_a_link_is_a_fault() -> None:
    assert faults_of(builder("z0l00", "z0h000")) == ["host z0h000: has no link; connect it to a leaf"]


def test_a_link_to_an_unknown_node_is_a_fault() -> None:
    made = builder("z0h000")
    join(made, "z0h000", "z0l00")
    assert faults_of(made) == ["link z0h000:0--z0l00:1: z0l00 is not a node of the fabric; add it first"]


def test_an_interface_longer_than_linux_allows_is_a_fault() -> None:
    made = builder("z99l65001", "z99h10001", switch_ports=100)
    for _ in range(9):
        join(made, "z99h10001", "z99l65001")
    assert made.build().links[-1].b.interface == "z99l65001-eth9"
    for _ in range(91):
        join(made, "z99h10001", "z99l65001")
    link = "z99h10001:99--z99l65001:100"
    assert faults_of(made) == [f"link {link}: interface z99l65001-eth100 exceeds 15 characters; use fewer nodes"]


def test_a_host_on_anything_but_a_leaf_is_a_fault() -> None:
    made = builder("z0s00", "z0h000")
    join(made, "z0h000", "z0s00")
    assert faults_of(made) == ["link z0h000:0--z0s00:1: host z0h000 must be linked to a leaf, not to z0s00"]


@pytest.mark.parametrize(("rate_bps", "text"), [(0, "0 bit/s"), (-5 * MBIT, "-5 Mbit/s"), (7900, "7.9 kbit/s")])
def test_a_rate_that_carries_nothing_is_a_fault(rate_bps: int, text: str) -> None:
    made = builder("z0l00", "z0h000")
    join(made, "z0h000", "z0l00", rate_bps=rate_bps)
    assert faults_of(made) == [f"link z0h000:0--z0l00:1: rate {text} is less than 8 kbit/s; raise it"]


def test_more_links_than_a_switch_has_ports_are_a_fault() -> None:
    made = builder("z0l00", *(f"z0h{index:03d}" for index in range(3)), switch_ports=2)
    for index in range(3):
        join(made, f"z0h{index:03d}", "z0l00")
    assert faults_of(made) == ["switch z0l00: needs 3 ports, has 2; raise it or use fewer links"]


@pytest.mark.parametrize("mtu_bytes", [0, 575, 9001])
def test_an_mtu_that_some_device_refuses_is_a_fault(mtu_bytes: int) -> None:
    made = builder("z0l00", mtu_bytes=mtu_bytes)
    assert faults_of(made) == [f"mtu: {mtu_bytes} B is outside 576..9000 B"]


@pytest.mark.parametrize("mtu_bytes", [576, 1500, 9000])
def test_an_mtu_within_the_limits_is_none(mtu_bytes: int) -> None:
    assert builder("z0l00", mtu_bytes=mtu_bytes).build().mtu_bytes == mtu_bytes


def test_all_faults_are_told_at_once() -> None:
    made = builder("z0l00", "z0s00", "z0h000", "z0h000", "z0h001", "z0h002", switch_ports=1, mtu_bytes=100)
    join(made, "z0h000", "z0l00", rate_bps=0)
    join(made, "z0h001", "z0s00")
    join(made, "z0l00", "ix0", Tier.INTER_ZONE)
    assert faults_of(made) == [
        "node z0h000: added 2 times; give every node its own index",
        "host z0h002: has no link; connect it to a leaf",
        "link z0h000:0--z0l00:1: rate 0 bit/s is less than 8 kbit/s; raise it",
        "link z0h001:0--z0s00:1: host z0h001 must be linked to a leaf, not to z0s00",
        "link z0l00:2--ix0:1: ix0 is not a node of the fabric; add it first",
        "switch z0l00: needs 2 ports, has 1; raise it or use fewer links",
        "mtu: 100 B is outside 576..9000 B",
    ]


def test_the_order_in_which_nodes_are_added_does_not_matter() -> None:
    one, other = builder("z0l00", "z0s00", "z0h000"), builder("z0h000", "z0s00", "z0l00")
    for made in (one, other):
        join(made, "z0h000", "z0l00")
        join(made, "z0l00", "z0s00", Tier.UPLINK)
    assert one.build() == other.build()
    assert [found.name for found in one.build().nodes] == ["z0l00", "z0s00", "z0h000"]


def test_each_port_has_its_link_and_each_link_both_its_ports() -> None:
    assert len(SMALL.link_at) == 2 * len(SMALL.links)
    for port, link in SMALL.link_at.items():
        assert port in link.ports
        assert link.other(port) != port
        assert SMALL.peer(SMALL.peer(port)) == port


def test_ports_of_a_node_are_those_of_its_links_in_order() -> None:
    for found, ports in SMALL.ports_of.items():
        first = 1 if found.is_switch else 0
        assert [port.number for port in ports] == list(range(first, first + len(ports)))
        assert all(port.node == found for port in ports)
    assert sum(len(ports) for ports in SMALL.ports_of.values()) == len(SMALL.link_at)


def test_every_direction_of_every_link_has_one_sending_port() -> None:
    directed = list(SMALL.directed_ports())
    assert sorted(port for port, _ in directed) == sorted(SMALL.link_at)
    assert all(SMALL.link_at[port] is link for port, link in directed)


def test_parallel_links_stay_separate() -> None:
    made = builder("z0l00", "z0s00", "z0h000")
    join(made, "z0h000", "z0l00")
    for _ in range(2):
        join(made, "z0l00", "z0s00", Tier.UPLINK)
    fabric = made.build()
    assert [str(link) for link in fabric.links_of_tier(Tier.UPLINK)] == ["z0l00:2--z0s00:1", "z0l00:3--z0s00:2"]
    assert [str(port) for port in fabric.ports_between(node("z0l00"), node("z0s00"))] == ["z0l00:2", "z0l00:3"]
    assert [str(port) for port in fabric.ports_between(node("z0s00"), node("z0l00"))] == ["z0s00:1", "z0s00:2"]
    assert str(fabric.peer(Port(node("z0l00"), 3))) == "z0s00:2"


def test_nodes_without_a_link_between_them_have_no_ports_between() -> None:
    assert SMALL.ports_between(node("z0l00"), node("z1s00")) == ()


def test_storage_has_one_nic_in_each_zone() -> None:
    assert len(SMALL.storages) == 4
    for host in SMALL.storages:
        assert [nic.zone for nic in SMALL.nics_of[host]] == [0, 1]
        for nic in SMALL.nics_of[host]:
            assert SMALL.leaf_of(nic).zone == nic.zone
            assert SMALL.nic_in_zone(host, nic.zone) == nic


def test_compute_has_one_nic_in_its_own_zone() -> None:
    for host in SMALL.computes:
        (nic,) = SMALL.nics_of[host]
        assert nic.zone == host.zone == SMALL.leaf_of(nic).zone
        assert SMALL.nic_in_zone(host, 1 - nic.zone) is None


def test_a_nic_is_found_by_its_address() -> None:
    assert len(SMALL.nic_at_ip) == len(SMALL.nics) == 32
    for nic in SMALL.nics:
        assert SMALL.nic_at_ip[nic.ip] is nic
        assert nic.mac.endswith(":".join(f"{int(byte):02x}" for byte in nic.ip.split(".")))


def test_the_nics_on_the_leaves_are_all_nics() -> None:
    on_leaves = [nic for leaf in SMALL.with_role(Role.LEAF) for nic in SMALL.nics_on_leaf(leaf)]
    assert sorted(nic.port for nic in on_leaves) == sorted(nic.port for nic in SMALL.nics)
    leaf = node("z0l00")
    assert all(SMALL.leaf_of(nic) == leaf for nic in SMALL.nics_on_leaf(leaf))


def test_nodes_are_found_by_role_and_zone() -> None:
    assert len(SMALL.with_role(Role.LEAF)) == 8
    assert [found.name for found in SMALL.with_role(Role.SPINE, 1)] == ["z1s00", "z1s01", "z1s02", "z1s03"]
    assert len(SMALL.switches) + len(SMALL.hosts) == len(SMALL.nodes)
    assert SMALL.hosts == SMALL.computes + SMALL.storages


def test_a_host_is_found_by_name_and_nothing_else_is() -> None:
    assert SMALL.host_named("st003") == node("st003")
    with pytest.raises(TopologyError) as refused:
        SMALL.host_named("z0l00")
    assert str(refused.value) == "fire_flyer_2_small: no host 'z0l00'; hosts run from z0h000 to st003"


def test_the_scale_is_the_ratio_of_the_nics() -> None:
    assert load_fabric("fire_flyer_2_small", ["nic_rate=20 Mbit/s"]).scale == 10_000
    assert load_fabric("fire_flyer_2").scale == 1


def test_interfaces_are_named_as_mininet_does() -> None:
    assert Port(node("z0l03"), 7).interface == "z0l03-eth7"
    assert all(len(port.interface) <= 15 for port in load_fabric("fire_flyer_2").link_at)


@pytest.mark.parametrize(
    ("a", "b", "may"),
    [
        (("z0h000", 0), ("z0h001", 0), True),
        (("z0h000", 0), ("z1h000", 1), True),
        (("z0h000", 0), ("st000", 0), True),
        (("z0h000", 0), ("st000", 1), False),
        (("st000", 1), ("st001", 1), True),
        (("st000", 0), ("st001", 1), False),
    ],
)
def test_storage_speaks_only_within_its_zone(a: tuple[str, int], b: tuple[str, int], may: bool) -> None:
    one, other = (SMALL.nic_in_zone(NodeId.parse(name), zone) for name, zone in (a, b))
    assert one is not None
    assert other is not None
    assert SMALL.reaches(one, other) is SMALL.reaches(other, one) is may


# Hosts with several NICs


def rails(planes: bool) -> Fabric:
    """Three hosts with two NICs each, on a leaf for each number; a spine joins the leaves unless they are planes."""
    made = builder("z0l00", "z0l01", "z0s00", "z0s01", *(f"z0h{index:03d}" for index in range(3)), switch_ports=8)
    for host in range(3):
        for rail in range(2):
            join(made, f"z0h{host:03d}", f"z0l{rail:02d}")
    for rail in range(2):
        join(made, f"z0l{rail:02d}", f"z0s{rail:02d}", Tier.UPLINK)
        if not planes:
            join(made, f"z0l{rail:02d}", f"z0s{1 - rail:02d}", Tier.UPLINK)
    return made.build()


def test_nics_of_joined_rails_all_reach_each_other_and_those_of_planes_their_plane_only() -> None:
    for planes in (False, True):
        fabric = rails(planes)
        one, other = fabric.nics_of[node("z0h000")]
        for far in fabric.nics_of[node("z0h002")]:
            assert fabric.reaches(one, far) is (not planes or far.port.number == 0)
            assert fabric.reaches(other, far) is (not planes or far.port.number == 1)
        assert not fabric.reaches(one, other)  # Of one host.
        assert len(fabric.networks) == (2 if planes else 1)


def test_two_hosts_talk_by_the_first_nics_that_reach_or_by_those_of_a_rail() -> None:
    fabric = rails(planes=True)
    a, b = node("z0h000"), node("z0h001")
    pairs = [fabric.nic_pair(a, b, rail) for rail in (None, 0, 1, 2)]
    assert [pair and tuple(nic.port.number for nic in pair) for pair in pairs] == [(0, 0), (0, 0), (1, 1), None]
    assert {nic.port.number for nic in fabric.nics_in_common(fabric.computes).values()} == {0}


def test_hosts_that_share_no_network_have_no_nics_in_common() -> None:
    made = builder("z0l00", "z0l01", "z0h000", "z0h001")
    join(made, "z0h000", "z0l00")
    join(made, "z0h001", "z0l01")
    fabric = made.build()
    assert fabric.nic_pair(node("z0h000"), node("z0h001")) is None
    with pytest.raises(TopologyError, match="no network has a NIC of each of 2 hosts"):
        fabric.nics_in_common(fabric.computes)


def test_levels_are_distances_to_the_nearest_host() -> None:
    made = builder("z0l00", "z0s00", "c00", "z0h000")
    join(made, "z0h000", "z0l00")
    for a, b in (("z0l00", "z0s00"), ("z0s00", "c00"), ("z0l00", "z0s00")):
        join(made, a, b, Tier.UPLINK)
    fabric = made.build()
    levels = {found.name: level for found, level in fabric.levels.items()}
    assert levels == {"z0h000": 0, "z0l00": 1, "z0s00": 2, "c00": 3}
    assert [str(port) for port in fabric.uplinks_of(node("z0l00"))] == ["z0l00:2", "z0l00:3"]
    assert [str(port) for port in fabric.uplinks_of(node("z0s00"))] == ["z0s00:2"]
    assert {SMALL.levels[found] for found in SMALL.with_role(Role.INTER_ZONE)} == {2}


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        (None, "NIC z0h000:0: has no address; give connect() one"),
        ("10.0.0", "NIC z0h000:0: '10.0.0' is not an IPv4 address of 10.0.0.0/8; give it one"),
        ("11.0.0.1", "NIC z0h000:0: '11.0.0.1' is not an IPv4 address of 10.0.0.0/8; give it one"),
        ("10.0.0.2", "address 10.0.0.2: z0h000:0, z0h001:0 have it; give every NIC its own"),
    ],
)
def test_every_nic_has_an_address_of_its_own(address: str | None, fault: str) -> None:
    made = builder("z0l00", "z0h000", "z0h001")
    made.connect(node("z0h000"), node("z0l00"), MBIT, Tier.ACCESS, address=address)
    made.connect(node("z0h001"), node("z0l00"), MBIT, Tier.ACCESS, address="10.0.0.2")
    assert faults_of(made) == [fault]


@pytest.mark.parametrize("fabric", [SMALL, rails(planes=False), rails(planes=True)], ids=lambda fabric: fabric.name)
def test_a_fabric_survives_json(fabric: Fabric) -> None:
    assert fabric_from_json(json.loads(json.dumps(fabric_to_json(fabric))), "test") == fabric
