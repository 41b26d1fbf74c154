"""The inside of a node as a value: what it has, how it is joined, and what draws on which limit with which weight."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from dataclasses import replace

import pytest

from fabric.errors import ConfigError
from fabric.model.encoding import fabric_from_json, fabric_to_json
from fabric.model.identity import NodeId, Role
from fabric.model.inside import (
    BudgetKind,
    Inside,
    NvLink,
    RootPort,
    cpu_of,
    draws_of,
    gpu_of,
    inner_links,
    to_cpu,
    to_gpu,
)
from fabric.model.network import SHARED_MAC, Fabric, Port, Tier
from topologies.load import load_fabric

HOST = NodeId(Role.COMPUTE, 0, 117)
INSIDE = Inside(
    name="test",
    gpu_link_bps=216 * 10**9,
    memory_Bps=320 * 10**9,
    copy_reads=2,
    nic_of_gpu=(0,) * 8,
    peer_to_peer_Bps=9 * 2**30,
    root_ports=(RootPort((5, 6), 37_500_000_000),),
)
PAIRS = NvLink(((0, 1), (2, 3), (4, 5), (6, 7)), 2400 * 10**9)


def small(**keys: object) -> Fabric:
    return load_fabric("fire_flyer_2_nodes", [f"{key}={value}" for key, value in keys.items()])


def test_a_node_has_a_link_for_its_cpu_and_each_gpu_and_one_for_each_pair() -> None:
    links = list(inner_links(INSIDE, HOST))
    assert [link.rate_bps for link in links] == [2560 * 10**9, *[216 * 10**9] * 8]
    assert (links[0].a, links[0].b) == ((cpu_of(HOST), 0), to_cpu(HOST))
    assert {link.b for link in links[1:]} == {to_gpu(HOST, number) for number in range(8)}
    pairs = list(inner_links(replace(INSIDE, nvlink=PAIRS), HOST))[9:]
    assert [(link.a[0].place, link.b[0].place) for link in pairs] == list(PAIRS.groups)


def test_one_switch_joins_larger_groups() -> None:
    nvlink = NvLink((tuple(range(8)),), 10**9)
    links = list(inner_links(replace(INSIDE, nvlink=nvlink), HOST))[9:]
    assert {link.b[0].name for link in links} == {"z0h117.nv0"}
    assert nvlink.peers(3) == (0, 1, 2, 4, 5, 6, 7)
    assert PAIRS.peers(3) == (2,)


def weights(port: tuple[NodeId, int], of_input: tuple[NodeId, int] | None) -> dict[BudgetKind, float]:
    """What a frame that came in by a port and leaves by another takes of each budget."""
    found: dict[BudgetKind, float] = defaultdict(float)
    for draw in draws_of(INSIDE, HOST, 1):
        if draw.port == port and draw.of_input in (None, of_input):
            found[draw.kind] += draw.weight
    return dict(found)


def test_memory_is_written_once_read_once_and_a_quarter_for_each_copy_to_a_gpu() -> None:
    """The paper's 24 operations a byte: 8 writes by D2H, 2 reads and 2 writes by the NIC, 2 reads by H2D; the CPU's own
    adding has the other 10."""
    gpu, cpu, nic = to_gpu(HOST, 0), to_cpu(HOST), (HOST, 0)
    d2h, h2d = weights(cpu, gpu), weights(gpu, cpu)
    assert (d2h, h2d) == ({BudgetKind.MEMORY: 1}, {BudgetKind.MEMORY: 0.25})
    assert weights(nic, cpu) == {BudgetKind.MEMORY: 1}
    assert 8 * 1 + 8 * 0.25 + 2 * 1 + 2 * 1 + 10 == 24


def test_what_gpus_and_the_nic_send_each_other_passes_memory_by_and_shares_a_limit() -> None:
    assert weights((HOST, 0), to_gpu(HOST, 3)) == {BudgetKind.PEER_OUT: 1}
    assert weights(to_gpu(HOST, 3), (HOST, 0)) == {BudgetKind.PEER_IN: 1}


def test_both_directions_of_both_gpus_draw_on_their_root_port() -> None:
    drawing = {draw.port for draw in draws_of(INSIDE, HOST, 1) if draw.kind is BudgetKind.ROOT_PORT}
    assert drawing == {to_gpu(HOST, 5), to_gpu(HOST, 6), (gpu_of(HOST, 5), 0), (gpu_of(HOST, 6), 0)}


@pytest.mark.parametrize("kind", ["fire_flyer_2", "fire_flyer_2_nvlink"])
def test_all_addresses_of_a_fabric_differ_and_lie_in_their_nics_blocks(kind: str) -> None:
    fabric = small(node=kind)
    found = []
    for host in fabric.computes:
        block = fabric.block_of(fabric.nics_of[host][0])
        parts = [part for part in fabric.parts_of(host) if part.role is not Role.NVSWITCH]
        addresses = [fabric.address_inside(part) for part in parts]
        if kind == "fire_flyer_2_nvlink":
            addresses += [fabric.address_inside(part, nvlink=True) for part in parts if part.role is Role.GPU]
        assert all(in_block(address, block) for address in addresses)
        found += addresses
    found += [nic.ip for host in fabric.storages for nic in fabric.nics_of[host]]
    assert len(found) == len(set(found))
    assert {nic.mac for nic in fabric.nics if nic.node.role is Role.COMPUTE} == {SHARED_MAC}
    assert {nic.mac for nic in fabric.nics if nic.node.role is Role.STORAGE}.isdisjoint({SHARED_MAC})


def in_block(address: str, block: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(block)


def test_the_network_is_the_same_with_and_without_an_inside() -> None:
    points, nodes = small(node="point"), small()
    assert (points.inside, points.inner_links, points.block) == (None, (), 1)
    assert nodes.links == points.links
    assert nodes.nodes == points.nodes
    assert len(nodes.inner_links) == 16 * 9
    assert {link.tier for link in nodes.inner_links} == {Tier.INSIDE}


def test_rates_are_those_of_the_fabrics_scale() -> None:
    slow = small(nic_rate="20 Mbit/s", uplink_rate="20 Mbit/s")
    assert slow.inside is not None
    assert slow.inside.gpu_link_bps == 21_600_000
    assert slow.inside.memory_Bps == 32_000_000


def test_a_fabric_comes_back_from_json() -> None:
    fabric = small(node="fire_flyer_2_nvlink")
    assert fabric_from_json(fabric_to_json(fabric), "test") == fabric


def test_names_and_interfaces_of_parts() -> None:
    gpu = NodeId.parse("z0h117.g5")
    assert gpu == gpu_of(HOST, 5)
    assert gpu.host == HOST
    assert [Port(gpu, number).interface for number in (0, 1)] == ["z0h117.g5", "z0h117.g5-1"]
    assert NodeId.parse("z0h117.cpu0") == cpu_of(HOST)
    assert len({part.dpid for part in (gpu, cpu_of(HOST), HOST, gpu_of(HOST, 6))}) == 4


def test_a_host_with_too_few_nics_is_refused() -> None:
    with pytest.raises(ConfigError, match="node dgx_a100: its GPUs use 8 NICs, at most 16; z0h000 has 1"):
        small(node="dgx_a100")
