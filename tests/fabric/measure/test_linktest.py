"""How links are measured: in which groups, for how long, with which tolerance."""

from __future__ import annotations

import pytest

from fabric.errors import UsageError
from fabric.measure.linktest import FOUND_LOSS, LOSS_FRAMES, MISSED, batches, link_test_plan
from fabric.measure.wiring import ETHERTYPE, SMALL_FRAME_BYTES, measuring_frame
from fabric.world.engines import NAMESPACE, VIRTUAL
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
TRUE_RATE = load_fabric("fire_flyer_2_small_200g")


def test_enough_frames_are_sent_to_see_one_loss_in_a_hundred() -> None:
    assert (1 - FOUND_LOSS) ** LOSS_FRAMES <= MISSED < (1 - FOUND_LOSS) ** (LOSS_FRAMES - 1)
    # Twice, since what is lost only once is not a fault, and still well above the 0.9999 that is promised.
    assert (1 - MISSED) ** 2 > 0.9999


@pytest.mark.parametrize("frames_s", [1.0, 5000.0, NAMESPACE.timing.carried_frames_s, float("inf")])
def test_batches_hold_every_port_once_and_stay_within_what_the_machine_carries(frames_s: float) -> None:
    ports = list(SMALL.link_at)
    groups = list(batches(SMALL, ports, frames_s))
    assert [port for group in groups for port in group] == ports
    rate = SMALL.nic_rate_bps / 8 / SMALL.frame_bytes
    assert all(len(group) == 1 or len(group) * rate <= frames_s for group in groups)
    if frames_s >= NAMESPACE.timing.carried_frames_s:
        assert len(groups) <= 3


def test_batches_of_a_large_fabric_keep_the_sockets_few() -> None:
    full = load_fabric("fire_flyer_2")
    assert max(map(len, batches(full, list(full.link_at), float("inf")))) <= 256


def test_a_half_rate_is_beyond_tolerance_and_noise_within_in_both_engines() -> None:
    real, virtual = link_test_plan(SMALL, NAMESPACE), link_test_plan(TRUE_RATE, VIRTUAL)
    assert virtual.tolerance < real.tolerance < 0.5
    for plan, fabric in ((real, SMALL), (virtual, TRUE_RATE)):
        edges = 6 * fabric.frame_time_s / plan.window_s
        assert edges < plan.tolerance


def test_slow_links_are_given_more_tolerance_in_real_time() -> None:
    slow = load_fabric("fire_flyer_2_small", ["nic_rate=1 Mbit/s", "uplink_rate=1 Mbit/s", "inter_zone.rate=1 Mbit/s"])
    assert link_test_plan(slow, NAMESPACE).tolerance > link_test_plan(SMALL, NAMESPACE).tolerance


def test_rates_that_real_time_cannot_carry_are_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="--engine virtual"):
        link_test_plan(TRUE_RATE, NAMESPACE)


@pytest.mark.parametrize("size_bytes", [SMALL_FRAME_BYTES, 4214])
def test_a_measuring_frame_has_its_size_and_its_own_ethertype(size_bytes: int) -> None:
    frame = measuring_frame(size_bytes, b"probe")
    assert len(frame) == size_bytes
    assert int.from_bytes(frame[12:14], "big") == ETHERTYPE
    assert frame[14:19] == b"probe"
