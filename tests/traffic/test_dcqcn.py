"""DCQCN's parameters: named sets, the rules that carry them over, and what the kernel is told."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.network import Fabric
from fabric.world.kernel_api.modules import SOURCE
from topologies.load import load_fabric
from traffic.dcqcn import (
    INCREASE_BYTES,
    MARKING,
    PROFILES,
    RATES,
    DcqcnConfig,
    Network,
    Scaling,
    module_parameters,
    scaled,
)

SLOW = load_fabric("fire_flyer_2_tiny", ["nic_rate=50 Mbit/s", "uplink_rate=50 Mbit/s"])
HERE = Network.of(SLOW)
PAPER = PROFILES["paper"]


def fabric_at(rate: str) -> Fabric:
    return load_fabric("fire_flyer_2_tiny", [f"nic_rate={rate}", f"uplink_rate={rate}"])


def test_the_papers_set_is_the_papers() -> None:
    told = module_parameters(PAPER.parameters, 40 * 10**9)
    assert (told["stage_ns"], told["alpha_ns"], told["cnp_ns"]) == (55_000, 55_000, 50_000)
    assert (told["gain"], told["first_alpha"], told["fast_stages"]) == (2**16 // 256, 2**24, 5)
    assert (told["stage_bytes"], told["additive_step_bps"], told["hyper_step_bps"]) == (10**7, 40 * 10**6, 0)


def test_modules_have_a_parameter_of_every_name_that_it_is_told() -> None:
    """The kernel would pass over a name that it does not know, with a line in its log."""
    source = (SOURCE / "dcqcn_parameters.h").read_text()
    known = set(re.findall(r"DCQCN_PARAMETER\((\w+), u", source))
    assert set(module_parameters(PAPER.parameters, 1)) == known


@pytest.mark.parametrize("name", PROFILES)
def test_by_rate_times_stay_and_what_the_set_says_grows(name: str) -> None:
    fabric, profile = fabric_at("200 Gbit/s"), PROFILES[name]
    known, found = profile.parameters, scaled(profile, Scaling.RATE, Network.of(fabric))
    times = fabric.nic_rate_bps / profile.network.rate_bps
    assert (found.cnp_interval_s, found.alpha_period_s) == (known.cnp_interval_s, known.alpha_period_s)
    for parameter in (*RATES, INCREASE_BYTES):
        expected = getattr(known, parameter) * (times if parameter in profile.grows else 1)
        assert getattr(found, parameter) == pytest.approx(expected), parameter
    assert MARKING in profile.grows
    assert found.marking.kmax == pytest.approx(known.marking.kmax * times)
    assert found.marking.pmax == known.marking.pmax


@pytest.mark.parametrize("gbps", [25, 100, 200, 400])
def test_sets_that_are_published_for_every_rate_are_what_their_sources_have(gbps: int) -> None:
    """HPCC's simulation/run.py has steps and thresholds by bw / 25, and MIN_RATE 1000 Mb/s; firmware has constants."""
    here = Network(gbps * 1e9, 13e-6, 1046)
    hpcc, connectx = (scaled(PROFILES[name], Scaling.RATE, here) for name in ("hpcc", "connectx"))
    assert (hpcc.additive_step_bps, hpcc.hyper_step_bps, hpcc.least_rate_bps) == (5e6 * gbps / 25, 2e6 * gbps, 1e9)
    assert (connectx.additive_step_bps, connectx.hyper_step_bps, connectx.least_rate_bps) == (5e6, 50e6, 1e6)
    assert connectx.increase_bytes == 32_767 * 64
    for one in (hpcc, connectx):
        assert (one.marking.kmin, one.marking.kmax) == (100_000 * gbps // 25, 400_000 * gbps // 25)


@pytest.mark.parametrize("name", PROFILES)
def test_by_round_trip_rates_are_those_of_the_true_rate_over_the_scale(name: str) -> None:
    true = scaled(PROFILES[name], Scaling.RATE, Network(200e9, 13e-6, 1046))
    found = scaled(PROFILES[name], Scaling.ROUND_TRIP, HERE)
    assert HERE.scale == 4000
    for parameter in RATES:
        assert getattr(found, parameter) == pytest.approx(getattr(true, parameter) / HERE.scale), parameter
    longer = HERE.round_trip_s / 13e-6
    assert found.increase_bytes == pytest.approx(true.increase_bytes / HERE.scale * longer, rel=1e-3)


def test_by_round_trip_all_dimensionless_groups_stay() -> None:
    found, known, rate_bps = scaled(PAPER, Scaling.ROUND_TRIP, HERE), PAPER.parameters, SLOW.nic_rate_bps
    bdp, bdp_there = rate_bps * SLOW.round_trip_s, PAPER.network.rate_bps * PAPER.network.round_trip_s
    for name in ("cnp_interval_s", "alpha_period_s", "increase_period_s"):
        there = getattr(known, name) / PAPER.network.round_trip_s
        assert getattr(found, name) / SLOW.round_trip_s == pytest.approx(there), name
    for name in ("additive_step_bps", "least_rate_bps"):
        assert getattr(found, name) / rate_bps == pytest.approx(getattr(known, name) / PAPER.network.rate_bps), name
    assert found.increase_bytes / bdp == pytest.approx(known.increase_bytes / bdp_there, rel=1e-3)
    assert found.marking.kmax / bdp == pytest.approx(known.marking.kmax / bdp_there, rel=1e-3)
    assert (found.gain, found.fast_stages) == (known.gain, known.fast_stages)


def test_by_round_trip_a_flow_is_as_likely_to_hear_of_congestion_in_an_interval() -> None:
    found, known = scaled(PAPER, Scaling.ROUND_TRIP, HERE), PAPER.parameters
    here = found.cnp_interval_s * SLOW.nic_rate_bps / (8 * SLOW.frame_bytes)
    there = known.cnp_interval_s * PAPER.network.rate_bps / (8 * PAPER.network.frame_bytes)
    assert (1 - found.marking.pmax) ** here == pytest.approx((1 - known.marking.pmax) ** there)


def test_what_would_be_finer_than_frames_is_raised_to_them() -> None:
    found = scaled(PROFILES["connectx"], Scaling.PUBLISHED, HERE)
    assert found.alpha_period_s == pytest.approx(SLOW.frame_bytes * 8 / SLOW.nic_rate_bps)
    assert scaled(PAPER, Scaling.PUBLISHED, HERE).marking.kmin == 2 * SLOW.frame_bytes
    assert found.hyper_step_bps == SLOW.nic_rate_bps


def test_the_rule_is_by_rate_at_the_true_scale_and_else_by_round_trip() -> None:
    assert DcqcnConfig().scaling_on(fabric_at("200 Gbit/s")) is Scaling.RATE
    assert DcqcnConfig().scaling_on(SLOW) is Scaling.ROUND_TRIP
    assert DcqcnConfig(scaling=Scaling.PUBLISHED).scaling_on(SLOW) is Scaling.PUBLISHED


def test_single_keys_are_taken_as_they_are() -> None:
    config = checked(DcqcnConfig, {"additive_step": "1 Mbit/s", "cnp_interval": "7 ms", "increase_bytes": 0}, "test")
    found, usual = config.parameters(SLOW), DcqcnConfig().parameters(SLOW)
    expected = replace(usual, additive_step_bps=10**6, cnp_interval_s=0.007, increase_bytes=0)
    assert found == expected


def test_what_cannot_be_is_refused_by_its_key() -> None:
    assert list(DcqcnConfig(profile="papr").faults(SLOW)) == [
        "dcqcn.profile: 'papr' does not exist; use one of paper, ns3_rdma, connectx, hpcc"
    ]
    (fault,) = DcqcnConfig(additive_step=51 * 10**6).faults(SLOW)
    assert fault == "dcqcn.additive_step: 51000000 bit/s exceeds the 50000000 bit/s of the NICs; lower it"
    with pytest.raises(ConfigError, match="cnp_interval"):
        checked(DcqcnConfig, {"cnp_interval": "2 s"}, "test")
