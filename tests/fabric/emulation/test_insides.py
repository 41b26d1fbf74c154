"""Where nodes with an inside cannot run is said before anything is made, and which interfaces are where."""

from __future__ import annotations

import pytest

from fabric.emulation import insides
from fabric.errors import UsageError
from fabric.model.identity import Role
from fabric.model.inside import cpu_of, gpu_of
from fabric.model.lanes import Queueing
from fabric.model.network import Port
from topologies.load import load_fabric

NODES = load_fabric("fire_flyer_2_nodes", ["node=fire_flyer_2_nvlink"])
POINTS = load_fabric("fire_flyer_2_nodes", ["node=point"])
HOST = NODES.computes[0]


def test_queueings_with_loss_are_refused_by_name_and_points_run_in_all() -> None:
    found = list(insides.faults(NODES, [Queueing.SHARED, Queueing.LOSSLESS]))
    assert len(found) == 1
    assert found[0].startswith("topology.node: queueing shared cannot have it: the limits of its nodes")
    assert list(insides.faults(POINTS, list(Queueing))) == []
    with pytest.raises(UsageError, match="queueing lanes cannot have it"):
        insides.require(NODES, Queueing.LANES)


def test_a_bridge_has_the_nics_and_a_port_for_each_part() -> None:
    ports = insides.bridge_ports(NODES, HOST)
    assert [port.number for port in ports] == [0, *range(16, 25)]
    assert {port.node for port in ports} == {HOST}
    assert insides.bridge_ports(NODES, NODES.storages[0]) == NODES.ports_of[NODES.storages[0]]


def test_a_namespace_has_the_parts_with_two_interfaces_for_each_gpu_with_nvlink() -> None:
    ports = insides.part_ports(NODES, HOST)
    assert Port(cpu_of(HOST), 0) in ports
    assert {port for port in ports if port.node == gpu_of(HOST, 3)} == {Port(gpu_of(HOST, 3), n) for n in (0, 1)}
    assert len(ports) == len({port.interface for port in ports}) == 1 + 2 * 8
    assert insides.part_ports(POINTS, HOST) == ()


def test_every_interface_of_a_node_has_addresses_of_its_own() -> None:
    found = [address for port in insides.part_ports(NODES, HOST) for address in insides.addresses_of(NODES, port)]
    assert len(found) == len(set(found)) == 17
    assert NODES.nics_of[HOST][0].ip in found


def test_switches_of_nvlink_have_ports_only_where_there_are_some() -> None:
    assert insides.switch_ports(NODES, HOST) == ()
    keys = ["node=dgx_a100", "nics_per_host=8", "compute=2", "leaves_per_pod=8", "spines_per_pod=2", "switch_ports=16"]
    dgx = load_fabric("dgx_superpod_140_small", [*keys, "uplinks_per_spine=1"])
    host = dgx.computes[0]
    assert [port.number for port in insides.switch_ports(dgx, host)] == list(range(1, 9))
    assert {port.node.role for port in insides.switch_ports(dgx, host)} == {Role.NVSWITCH}
