"""The closed forms of allreduces inside nodes are the paper's arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.model.inside import Inside
from topologies.load import load_fabric
from traffic.collectives.node_limits import hfreduce_limits, ring_limits

NIC_BPS = 200 * 10**9


def inside_of(kind: str) -> Inside:
    inside = load_fabric("fire_flyer_2_nodes", [f"node={kind}"]).inside
    assert inside is not None
    return inside


FF2, NVLINK = inside_of("fire_flyer_2"), inside_of("fire_flyer_2_nvlink")


def test_memory_serves_24_bytes_per_byte_so_13_3_gb_per_s() -> None:
    memory = next(one for one in hfreduce_limits(FF2, NIC_BPS, 2.0) if one.name == "memory")
    assert memory.load == 24
    assert memory.algbw_Bps == pytest.approx(13.33e9, rel=0.001)


def test_the_shared_root_port_binds_hfreduce_and_the_nic_with_nvlink() -> None:
    tightest = hfreduce_limits(FF2, NIC_BPS, 2.0)[0]
    assert (tightest.name, tightest.algbw_Bps) == ("root port of g5, g6", 9.375e9)
    tightest = hfreduce_limits(NVLINK, NIC_BPS, 2.0)[0]
    assert (tightest.name, tightest.algbw_Bps) == ("NIC", 12.5e9)


def test_a_large_ring_tends_to_half_of_the_peer_to_peer_limit_and_both_of_a_root_port_to_a_little_less() -> None:
    """Two GPUs on a root port each send and receive twice the size: eight times the size for 37.5 GB/s."""
    first, second, *_ = ring_limits(FF2, NIC_BPS, 1440)
    assert (first.name, second.name) == ("root port of g5, g6", "GPU to NIC")
    assert first.algbw_Bps == pytest.approx(4.69e9, rel=0.002)
    assert second.algbw_Bps == pytest.approx(4.83e9, rel=0.002)


def test_eight_rings_over_a_switch_fill_eight_nics() -> None:
    dgx = load_fabric("dgx_a100_nodes").inside
    assert dgx is not None
    first, second, third = ring_limits(dgx, NIC_BPS, 16, rings=8)
    assert (first.name, second.name, third.name) == ("NIC", "PCIe of a GPU", "NVLink")
    assert first.algbw_Bps == pytest.approx(8 * 25e9 * 16 / 30)
    assert third.algbw_Bps == pytest.approx(300e9 * 16 / 30 * 8 / 7)


@pytest.mark.parametrize(
    ("halved", "moves"),
    [
        (replace(FF2, memory_Bps=FF2.memory_Bps // 2), {"memory"}),
        (replace(FF2, gpu_link_bps=FF2.gpu_link_bps // 2), {"PCIe of a GPU"}),
        (
            replace(FF2, root_ports=(replace(FF2.root_ports[0], rate_Bps=FF2.root_ports[0].rate_Bps // 2),)),
            {"root port of g5, g6"},
        ),
    ],
)
def test_half_a_limit_halves_its_own_algbw_and_no_other(halved: Inside, moves: set[str]) -> None:
    before, after = ({one.name: one.algbw_Bps for one in hfreduce_limits(kind, NIC_BPS, 2.0)} for kind in (FF2, halved))
    assert {name for name in before if after[name] != before[name]} == moves
    assert all(after[name] == pytest.approx(before[name] / 2) for name in moves)
