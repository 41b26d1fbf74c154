"""What is decided before anything is built: interface numbers, addresses of ends, names, and who may reach whom."""

from __future__ import annotations

from collections import Counter

import pytest

from fabric.emulation import build, mininet_nodes
from fabric.emulation.mininet_net import FabricNet
from fabric.errors import EmulationError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from topologies.load import load_fabric

SMALL, FULL = load_fabric("fire_flyer_2_small"), load_fabric("fire_flyer_2")


@pytest.mark.parametrize("fabric", [SMALL, FULL], ids=["small", "full"])
def test_no_interface_number_occurs_twice_in_a_namespace(fabric: Fabric) -> None:
    indices = build._number_interfaces(fabric)
    assert set(indices) == set(fabric.link_at)
    of_switches = [index for port, index in indices.items() if port.node.is_switch]
    assert len(set(of_switches)) == len(of_switches)
    for host in fabric.hosts:
        of_host = [indices[port] for port in fabric.ports_of[host]]
        assert len(set(of_host)) == len(of_host)
    assert min(indices.values()) > 1, "1 is loopback's"


def test_ends_have_the_address_of_their_nic_and_switches_none_of_them() -> None:
    indices = build._number_interfaces(SMALL)
    macs = {port: build._mac_of(SMALL, port, indices) for port in SMALL.link_at}
    assert max(Counter(macs.values()).values()) == 1
    assert {port: mac for port, mac in macs.items() if not port.node.is_switch} == {n.port: n.mac for n in SMALL.nics}


def test_hosts_are_found_by_name_and_dual_homed_ones_by_zone_too() -> None:
    names = build._names(SMALL)
    assert [ip for ip, name in names if name == "z0h000"] == ["10.0.0.1"]
    assert [row for row in names if row[1].startswith("st002")] == [
        ("10.128.0.3", "st002"),
        ("10.129.0.3", "st002"),
        ("10.128.0.3", "st002.z0"),
        ("10.129.0.3", "st002.z1"),
    ]
    assert len(names) == len(SMALL.hosts) + 3 * len(SMALL.storages)


def requests_of(name: str, fabric: Fabric = SMALL) -> list[str]:
    indices = build._number_interfaces(fabric)
    return [request.what for request in build._nic_requests(fabric, NodeId.parse(name), indices)]


def test_a_host_with_one_nic_sends_everything_over_it() -> None:
    assert requests_of("z1h003") == [
        "giving z1h003-eth0 the address 10.1.0.4/32",
        "setting z1h003-eth0 up",
        "setting the neighbour 169.254.0.1",
        "routing 10.0.0.0/8 over z1h003-eth0",
    ]


def test_a_host_with_two_nics_reaches_each_zone_over_the_nic_in_it() -> None:
    assert requests_of("st001") == [
        "giving st001-eth0 the address 10.128.0.2/32",
        "setting st001-eth0 up",
        "setting the neighbour 169.254.0.1",
        "routing 10.0.0.0/16 over st001-eth0",
        "routing 10.128.0.0/16 over st001-eth0",
        "giving st001-eth1 the address 10.129.0.2/32",
        "setting st001-eth1 up",
        "setting the neighbour 169.254.0.1",
        "routing 10.1.0.0/16 over st001-eth1",
        "routing 10.129.0.0/16 over st001-eth1",
    ]


def test_before_a_run_everyone_greets_all_that_it_reaches() -> None:
    greeted = build.greeted(SMALL)
    assert list(greeted) == list(SMALL.nics)
    assert {(a, b) for a, found in greeted.items() for b in found} == {
        (a, b) for a in SMALL.nics for b in SMALL.nics if SMALL.reaches(a, b)
    }


def test_in_a_large_fabric_everyone_greets_one_that_it_reaches() -> None:
    greeted = build.greeted(FULL)
    assert list(greeted) == list(FULL.nics)
    assert all(len(found) == 1 and FULL.reaches(nic, *found) for nic, found in greeted.items())


@pytest.mark.parametrize(
    ("command", "without"),
    [
        (["mnexec", "-cdn", "bash"], ["mnexec", "-d", "bash"]),
        (["mnexec", "-da", "7", "ls", "-c"], ["mnexec", "-da", "7", "ls", "-c"]),
        (["mnexec", "-c", "bash"], ["bash"]),
        (["mnexec", "net"], ["mnexec", "net"]),
        (["mnexec"], ["mnexec"]),
        (["ls", "-n"], ["ls", "-n"]),
        ([], []),
    ],
)
def test_mininets_programs_keep_the_namespace_made_for_them_and_close_no_files_by_themselves(
    command: list[str], without: list[str]
) -> None:
    assert mininet_nodes._without_mnexec_options(command, "nc") == without


def test_offloads_that_cannot_be_switched_off_are_told() -> None:
    with pytest.raises(EmulationError) as refused:
        build._switch_off((0x15,), ["no_such_nic"])
    assert str(refused.value) == "no_such_nic: ethtool command 0x15 refused: No such device"


def test_a_slow_database_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mininet's own check gives it one second, and here it would find no database at all."""
    monkeypatch.setenv("OVS_RUNDIR", "/nonexistent")
    net = FabricNet(SMALL)
    assert [switch.name for switch in net.switches] == [switch.name for switch in SMALL.switches]
    assert not net.switches[0].isOldOVS()
