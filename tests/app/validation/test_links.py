"""What carrier, probes and filled links say is wrong: exactly the links that are, each once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.validation.findings import FaultKind
from app.validation.links import confirmed, link_faults, state_faults, suspects, wiring_faults
from fabric.failures.config import miswire
from fabric.measure.linktest import DirectionMeasurement
from fabric.model.network import Fabric, Link, Port, Tier
from fabric.units import format_rate
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small", AT_20_MBIT)
TOLERANCE = 0.1
links = st.sampled_from(SMALL.links)


def port(text: str) -> Port:
    return next(port for port in SMALL.link_at if str(port) == text)


def seen_in(wired: Fabric) -> dict[Port, Port | None]:
    return {port: wired.peer(port) for port in wired.link_at}


def measured(at: Port, rate: float = 1.0, lost: int = 0, sent: int = 1700) -> DirectionMeasurement:
    return DirectionMeasurement(at, SMALL.peer(at), rate * SMALL.link_at[at].rate_bps, sent, lost)


def test_a_fabric_in_order_has_no_faults() -> None:
    good = [measured(port, 0.99) for port in SMALL.link_at]
    assert list(state_faults(SMALL, dict.fromkeys(SMALL.link_at, True))) == []
    assert list(wiring_faults(SMALL, seen_in(SMALL))) == []
    assert suspects(SMALL, good, TOLERANCE) == []
    assert list(link_faults(SMALL, good, TOLERANCE)) == []


@given(links)
def test_a_link_without_carrier_is_named_with_its_ends(link: Link) -> None:
    (fault,) = state_faults(SMALL, {port: port != link.b for port in SMALL.link_at})
    assert (fault.kind, fault.ports, fault.name) == (FaultKind.STATE, link.ports, str(link))
    assert str(link.b) in fault.measured


@given(links, links)
def test_two_links_that_are_exchanged_make_one_fault_that_names_both(one: Link, other: Link) -> None:
    try:
        wired = miswire(SMALL, one, other)
    except ValueError:
        return
    (fault,) = wiring_faults(SMALL, seen_in(wired))
    assert set(fault.ports) == {*one.ports, *other.ports}
    assert "are exchanged" in fault.name


def test_an_exchange_is_told_as_an_operator_would() -> None:
    wired = miswire(SMALL, SMALL.link_at[port("z0l00:5")], SMALL.link_at[port("z0l01:5")])
    (fault,) = wiring_faults(SMALL, seen_in(wired))
    assert fault.name == "z0l00:5 and z0l01:5 are exchanged"
    assert fault.measured == "z0l00:5 leads to z0s00:2, z0l01:5 to z0s00:1"


def test_three_links_in_a_ring_are_named_end_by_end() -> None:
    """An exchange of two is not an explanation, so every port that leads elsewhere is told."""
    three = [link for link in SMALL.links_of_tier(Tier.UPLINK) if link.a.node.name in ("z0l00", "z0l01", "z0l02")][:9:4]
    seen = seen_in(SMALL)
    for near, far in zip(three, three[1:] + three[:1], strict=True):
        seen[near.a], seen[far.b] = far.b, near.a
    faults = list(wiring_faults(SMALL, seen))
    assert {fault.name for fault in faults} == {str(link) for link in three}
    assert len(faults) == 6


def test_a_port_whose_frames_arrive_nowhere_is_named() -> None:
    (fault,) = wiring_faults(SMALL, seen_in(SMALL) | {port("z0l00:5"): None})
    assert fault.measured == "frames from z0l00:5 arrive nowhere"


@pytest.mark.parametrize(("rate", "is_fault"), [(0.5, True), (0.89, True), (0.91, False), (1.02, False)])
def test_a_direction_that_is_slower_than_noise_is_a_fault(rate: float, is_fault: bool) -> None:
    found = [measured(at, rate if str(at) == "z0s00:1" else 1.0) for at in SMALL.link_at]
    faults = list(link_faults(SMALL, found, TOLERANCE))
    assert len(faults) == is_fault
    if is_fault:
        assert faults[0].name == "z0l00:5--z0s00:1"
        assert re.search(r"Mbit/s from z0s00:1$", faults[0].measured)
        assert faults[0].expected.startswith(format_rate(SMALL.nic_rate_bps))


def test_both_directions_of_a_link_make_one_fault() -> None:
    slow = SMALL.link_at[port("z0l00:5")].ports
    (fault,) = link_faults(SMALL, [measured(at, 0.5 if at in slow else 1.0) for at in SMALL.link_at], TOLERANCE)
    assert fault.measured == "10 Mbit/s from z0l00:5, 10 Mbit/s from z0s00:1"


def test_one_frame_lost_is_a_fault_and_the_rate_is_not() -> None:
    (fault,) = link_faults(SMALL, [measured(port("z0l00:5"), 0.99, lost=1)], TOLERANCE)
    assert fault.kind is FaultKind.LOSS
    assert fault.measured == "1 of 1700 frames from z0l00:5 (0.06%)"


def test_a_link_that_leads_elsewhere_is_named_as_it_is_wired() -> None:
    found = DirectionMeasurement(port("z0l00:5"), port("z0s00:2"), 10e6, 1000, 0)
    (fault,) = link_faults(SMALL, [found], TOLERANCE)
    assert fault.name == "z0l00:5--z0s00:2"


@pytest.mark.parametrize(
    ("first", "second", "rate", "lost"),
    [
        ((0.5, 0), (1.0, 0), None, None),
        ((0.5, 0), (0.6, 0), 0.6, 0),
        ((1.0, 3), (1.0, 0), None, None),
        ((1.0, 3), (1.0, 2), 1.0, 5),
        ((0.5, 3), (0.5, 0), 0.5, 0),
        ((0.5, 3), (0.95, 4), 0.95, 7),
    ],
)
def test_what_is_wrong_only_once_is_no_fault(
    first: tuple[float, int], second: tuple[float, int], rate: float | None, lost: int | None
) -> None:
    at = port("z0l00:5")
    both = confirmed(SMALL, [measured(at, *first)], [measured(at, *second)], TOLERANCE)
    if rate is None:
        assert both == []
    else:
        assert [(one.rate_bps, one.lost_frames, one.sent_frames) for one in both] == [
            (rate * SMALL.nic_rate_bps, lost, 3400)
        ]
