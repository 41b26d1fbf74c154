"""The congestion controls ``dcqcn`` and ``line``, and the marks of ports, as they are in a guest's kernel."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from fabric.model.marking import Marking
from tests.fabric.kernel.dcqcn_reference import Parameters as KernelParameters
from tests.fabric.kernel.dcqcn_reference import ReactionPoint
from tests.vl.fluid import fixed_point
from tests.vl.guest import measured
from tests.vl.lab import FRAME_BYTES
from traffic.dcqcn import PROFILES, Network, Scaling, module_parameters, scaled

pytestmark = pytest.mark.guest

RATE_BPS = 40 * 10**9
DELAY_NS = 1000
ROUND_TRIP_S = 2 * FRAME_BYTES * 8 / RATE_BPS + 4 * DELAY_NS * 1e-9
"""Over the two links of a star, and back."""
PAPER = scaled(PROFILES["paper"], Scaling.ROUND_TRIP, Network(RATE_BPS, ROUND_TRIP_S, FRAME_BYTES))
MARKING = PAPER.marking
TOLD = module_parameters(PAPER, RATE_BPS)
LINK = [RATE_BPS, DELAY_NS, [MARKING.kmin, MARKING.kmax, MARKING.pmax]]


def fan_in(flows: int, control: str, duration_s: float) -> Any:
    return measured("congestion", "fan_in", flows, control, TOLD, LINK, duration_s, duration_s / 1000)


def test_a_port_marks_as_its_curve_says() -> None:
    """Of 64 frames that come at once, each leaves fewer behind than the one before it."""
    rounds, frames = 150, 64
    found = measured("marking", "curve", 10 * FRAME_BYTES, 40 * FRAME_BYTES, 0.2, frames, rounds, True)
    behind = range(frames - 1)  # The first frame is on its way before the second one comes.
    expected = [0.0 if one <= 10 else 1.0 if one > 40 else 0.2 * (one - 10) / 30 for one in behind]
    shares = [found["marked"][one] / found["seen"][one] for one in behind]
    assert [share for share, probability in zip(shares, expected, strict=True) if probability in (0, 1)] == [
        probability for probability in expected if probability in (0, 1)
    ]
    between = [one for one in behind if 0 < expected[one] < 1]
    off = [(shares[one] - expected[one]) ** 2 * rounds / (expected[one] * (1 - expected[one])) for one in between]
    print(f"chi-squared {sum(off):.1f} of {len(between)} degrees of freedom")
    assert sum(off) < len(between) + 3 * math.sqrt(2 * len(between))
    marked = sum(found["marked"])
    assert found["counted"] == [marked, marked * FRAME_BYTES]


@pytest.mark.parametrize("pmax", [0.05, 0.2])
def test_a_queue_of_htb_marks_as_often_as_its_curve_says(pmax: float) -> None:
    marking = Marking(kmin=10 * FRAME_BYTES, kmax=40 * FRAME_BYTES, pmax=pmax)
    found = measured("marking", "held_in_htb", marking.model_dump(), [9, 22, 32, 40, 50], 4000)
    expected = [marking.probability(length * FRAME_BYTES) for length in found["lengths"]]
    print(f"{pmax}: {found['shares']}, configured {expected}, frames {found['lengths']}")
    assert found["shares"] == [pytest.approx(share, rel=0.25) for share in expected]
    assert expected[0] == 0 < expected[1] < expected[2] < expected[3] < expected[4] == 1
    assert (found["marked_packets"], found["drops_packets"]) == (found["came"], 0)


def test_frames_of_connections_without_ecn_are_not_marked() -> None:
    found = measured("marking", "curve", 0, FRAME_BYTES, 1.0, 16, 2, False)
    assert (sum(found["marked"]), found["counted"]) == (0, [0, 0])


def test_two_flows_share_a_link_and_hold_the_queue_at_the_thresholds() -> None:
    found = fan_in(2, "dcqcn", 0.08)
    mean = sum(found["backlogs"]) / len(found["backlogs"])
    print(f"{found['rates_bps']} bit/s, {mean:.0f} B wait, thresholds {MARKING.kmin} and {MARKING.kmax} B")
    assert found["ecn"] == [True] * 4
    assert sum(found["rates_bps"]) == pytest.approx(RATE_BPS, rel=0.01)
    assert found["rates_bps"] == [pytest.approx(RATE_BPS / 2, rel=0.1)] * 2
    assert MARKING.kmin < mean < MARKING.kmax
    assert found["dropped"] == found["counted"]["flows_without_ecn"] == 0
    assert 0 < found["counted"]["cnps"] <= found["marked"]


@pytest.mark.parametrize(
    ("flows", "off"),
    [pytest.param(2, 0.25, marks=pytest.mark.soak), (8, 0.25), pytest.param(16, 0.3, marks=pytest.mark.soak)],
)
def test_the_queue_rests_where_the_fluid_model_has_it(flows: int, off: float) -> None:
    """With 16 flows the model is at the end of the curve, above which all is marked."""
    found = fan_in(flows, "dcqcn", 0.08)
    mean, theory = sum(found["backlogs"]) / len(found["backlogs"]), fixed_point(flows, RATE_BPS, FRAME_BYTES, PAPER)
    fairness = sum(found["rates_bps"]) ** 2 / (flows * sum(rate**2 for rate in found["rates_bps"]))
    print(f"{flows} flows: {mean:.0f} B wait, in theory {theory.queue_bytes:.0f} B; Jain's index {fairness:.4f}")
    assert mean == pytest.approx(theory.queue_bytes, rel=off)
    assert fairness > 0.98
    assert found["dropped"] == 0


def test_flow_control_alone_shares_by_ports_and_dcqcn_by_flows() -> None:
    """The paper's parking lot, with one uplink: half of the link for who is near, a sixth each for the three others."""
    lossless = [*LINK, 4 * MARKING.kmax]
    near = {name: measured("congestion", "parking_lot", name, TOLD, lossless, 0.04) for name in ("line", "dcqcn")}
    print({name: found["rates_bps"] for name, found in near.items()})
    expected = [RATE_BPS / 6] * 3 + [RATE_BPS / 2]
    assert near["line"]["rates_bps"] == [pytest.approx(rate, rel=0.05) for rate in expected]
    assert near["dcqcn"]["rates_bps"] == [pytest.approx(RATE_BPS / 4, rel=0.25)] * 4
    assert near["line"]["dropped"] == near["dcqcn"]["dropped"] == 0


def test_a_flow_recovers_in_the_time_that_its_parameters_imply() -> None:
    """The rate is read every 2 us, and TCP brings it up to date whenever it may send: every 7 us at 5 Gbit/s."""
    found = measured("congestion", "recovery", TOLD, LINK, 60, 0.006, 2e-6)
    assert found["undisturbed_bps"] == pytest.approx(RATE_BPS, rel=1e-3)
    rates, times = found["rates_bps"], found["at_s"]
    cuts = [place for place in range(1, len(rates)) if rates[place] < 0.999 * rates[place - 1]]
    assert len(cuts) == found["cnps"] > 0
    theory = implied(rates, times, cuts)
    for place in range(cuts[-1] + 6, len(rates) - 2):
        lowest, highest = min(theory[place - 6 : place + 1]), max(theory[place : place + 3])
        assert 0.99 * lowest <= rates[place] <= 1.01 * highest, times[place]
    low, end, took_s = rates[cuts[-1]] / 1e9, rates[-1] / 1e9, times[-1] - times[cuts[-1]]
    print(f"cut {len(cuts)} times to {low:.1f} Gbit/s, {took_s * 1e3:.1f} ms later {end:.2f}; theory: {theory[-1]:.4g}")
    assert end > 3 * low


def implied(rates: list[float], times: list[float], cuts: list[int]) -> list[float]:
    """Return the rates that the parameters imply, with cuts where they were, and bytes as they were sent.

    A cut was between two readings, before or after an increase that was due between them: what follows tells which.
    """
    found = [
        implied_by(rates, times, dict(zip(cuts, are_late, strict=True)))
        for are_late in itertools.product((False, True), repeat=len(cuts))
    ]
    return min(found, key=lambda theory: sum(abs(one - other) for one, other in zip(theory, rates, strict=True)))


def implied_by(rates: list[float], times: list[float], cuts: dict[int, bool]) -> list[float]:
    """Return these rates if of the cuts, by the readings that first show them, some came as late as possible."""
    flow = ReactionPoint(KernelParameters(**TOLD))
    found: list[float] = []
    next_cut_ns = 0
    for place, at_s in enumerate(times):
        sent = rates[place - 1] * (at_s - times[place - 1]) / 8 if place else 0
        if place in cuts:
            heard_ns = max(round((at_s if cuts[place] else times[place - 1]) * 1e9), next_cut_ns)
            flow.advance(heard_ns, 0)
            assert flow.hear(heard_ns)
            next_cut_ns = heard_ns + TOLD["cnp_ns"]
        flow.advance(round(at_s * 1e9), round(sent))
        found.append(flow.rate_bps)
    return found


def test_a_connection_whose_listening_end_has_another_control_has_no_ecn_and_is_counted() -> None:
    assert measured("congestion", "ecn_by_ends", TOLD) == {"dcqcn": [True, 0], "cubic": [False, 1]}


def test_line_fills_the_link_and_the_queue_whatever_marks_say() -> None:
    """What the receiver's windows let senders have under way, 4 MiB each, is all in the queue soon."""
    found = fan_in(4, "line", 0.01)
    assert sum(found["rates_bps"]) == pytest.approx(RATE_BPS, rel=0.01)
    assert min(found["backlogs"]) > 2 * 2**20 > 20 * MARKING.kmax
    assert (found["marked"], found["dropped"]) == (0, 0)
