"""Calibration: which links are measured, what a measurement says, and the frames it is made with."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from fabric.measure.calibration import _calibration, kinds_of_links, nobodys_frame, window_s
from fabric.model.lanes import SERVICE_LEVELS, LaneConfig, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.records.calibration import LinkCalibration
from fabric.world.engines import NAMESPACE, VIRTUAL
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small", AT_20_MBIT)


def calibration(alone_bps: float, **shares: float) -> LinkCalibration:
    return LinkCalibration("spine to leaf", "z0s00:1", 20_000_000, alone_bps, 20e6, shares, {"a": 0.6, "b": 0.4})


@pytest.mark.parametrize(("alone_bps", "error"), [(20e6, 0.0), (19e6, -0.05), (20.4e6, 0.02), (0.0, -1.0)])
def test_the_error_of_a_rate_is_a_fraction_of_it(alone_bps: float, error: float) -> None:
    assert calibration(alone_bps, a=0.6, b=0.4).rate_error == pytest.approx(error)


@pytest.mark.parametrize(("a", "b", "error"), [(0.6, 0.4, 0.0), (0.55, 0.41, 0.05), (0.61, 0.32, 0.08)])
def test_the_worst_lane_counts_whether_it_gets_more_or_less(a: float, b: float, error: float) -> None:
    assert calibration(20e6, a=a, b=b).worst_share_error == pytest.approx(error)


def test_each_kind_of_link_is_measured_in_each_direction() -> None:
    kinds = kinds_of_links(SMALL)
    assert set(kinds) == {
        f"{kind} at 20000000 bit/s"
        for kind in (
            "compute to leaf",
            "leaf to compute",
            "storage to leaf",
            "leaf to storage",
            "leaf to spine",
            "spine to leaf",
            "leaf to inter_zone",
            "inter_zone to leaf",
        )
    }
    for kind, port in kinds.items():
        sender, receiver = port.node.role.name.lower(), SMALL.peer(port).node.role.name.lower()
        assert kind.startswith(f"{sender} to {receiver} at ")


def test_links_of_another_rate_are_another_kind() -> None:
    faster = load_fabric("fire_flyer_2_small", [*AT_20_MBIT, "uplink_rate=40 Mbit/s"])
    assert "leaf to spine at 40000000 bit/s" in kinds_of_links(faster)


def test_a_window_is_a_second_but_in_virtual_time_no_more_than_its_frames_take() -> None:
    true_rate = load_fabric("fire_flyer_2_small_200g")
    assert window_s(SMALL, NAMESPACE) == window_s(true_rate, NAMESPACE) == 1.0
    assert window_s(SMALL, VIRTUAL) == 1.0
    slow = load_fabric("fat_tree_k8_small", ["nic_rate=500 kbit/s", "uplink_rate=500 kbit/s"])
    assert window_s(slow, NAMESPACE) == window_s(slow, VIRTUAL) == pytest.approx(200 * 4214 * 8 / 500e3)
    assert window_s(true_rate, VIRTUAL) == pytest.approx(5000 * 4214 * 8 / 200e9)


def promised(**lanes: LaneConfig) -> dict[str, float]:
    plan = plan_lanes(QueueConfig(lanes=lanes), Queueing.LANES)
    port = SMALL.nics[0].port
    emulation: Any = SimpleNamespace(fabric=SMALL, lane_plan=plan)
    return _calibration("kind", port, emulation, {"a": 19e6}, {"a": 12e6, "b": 8e6}).promised_shares


def test_what_no_lane_is_promised_is_lent_in_proportion_to_the_shares() -> None:
    a = LaneConfig(share=0.3, service_levels=["hfreduce", "nccl"])
    b = LaneConfig(share=0.2, service_levels=["storage", "other", "control"])
    assert promised(a=a, b=b) == pytest.approx({"a": 0.6, "b": 0.4})


def test_no_lane_is_promised_more_than_its_ceiling() -> None:
    a = LaneConfig(share=0.3, ceiling=0.35, service_levels=["hfreduce", "nccl"])
    b = LaneConfig(share=0.2, service_levels=["storage", "other", "control"])
    assert promised(a=a, b=b) == pytest.approx({"a": 0.35, "b": 0.65}), "what a may not have, b borrows"


@pytest.mark.parametrize("level", list(SERVICE_LEVELS))
@pytest.mark.parametrize("mtu_bytes", [576, 1500, 4200, 9000])
def test_a_calibration_frame_is_full_and_carries_its_service_level(level: ServiceLevel, mtu_bytes: int) -> None:
    frame = nobodys_frame(level, mtu_bytes)
    assert len(frame) == mtu_bytes + 14
    version, tos, length = struct.unpack_from(">BBH", frame, 14)
    assert (version, tos, length) == (0x45, level.tos, mtu_bytes)
    assert frame[14 + 16 : 14 + 20] == bytes([192, 0, 2, 1]), "an address that no host has"
    assert frame[0] & 0b11 == 0b10, "locally administered, for one receiver"
    assert frame[:6] not in {bytes.fromhex(nic.mac.replace(":", "")) for nic in SMALL.nics}
