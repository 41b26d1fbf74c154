"""The paper's claim, judged by numbers that are made for it."""

from __future__ import annotations

import pytest

from experiments.dcqcn_frontier.claim import Got, frontier, judge

LANES = Got(6e9, 60e9, 200e-6)
ALONE = (12e9, 90e9)
SHARES = (0.5, 0.4)


def works(found: dict[str, Got]) -> dict[str, float]:
    """Return that lanes are stalled for a tenth of the time at each point."""
    return dict.fromkeys(found, 0.1)


def test_a_claim_holds_if_every_set_that_works_costs_one_program_more_than_the_tolerance() -> None:
    found = {"slow": Got(3e9, 70e9, 190e-6), "late": Got(6e9, 60e9, 400e-6), "near": Got(5.1e9, 66e9, 200e-6)}
    claim = judge(found, works(found), LANES, ALONE, SHARES, 0.9)
    assert (claim.holds, claim.lanes_do, claim.points, claim.suiting) == (True, True, 3, ())
    assert claim.nearest == "near"
    assert claim.nearest_shares == pytest.approx((0.85, 1.1, 1.0))
    assert claim.limiting == "allreduce bandwidth"
    assert claim.reference_shares == pytest.approx((1.0, 60 / 36))


def test_one_set_that_suits_both_and_works_ends_it() -> None:
    found = {"slow": Got(3e9, 70e9, 190e-6), "good": Got(5.5e9, 58e9, 210e-6)}
    claim = judge(found, works(found), LANES, ALONE, SHARES, 0.9)
    assert (claim.suiting, claim.working, claim.holds) == (("good",), ("good",), False)
    assert judge(found, works(found), LANES, ALONE, SHARES, 0.95).holds


def test_a_set_that_hardly_acts_does_not_end_it() -> None:
    found = {"idle": LANES, "starves": Got(1e9, 60e9, 200e-6)}
    claim = judge(found, {"idle": 0.51, "starves": 0.1}, LANES, ALONE, SHARES, 0.9)
    assert (claim.suiting, claim.working, claim.holds, claim.nearest) == (("idle",), (), True, "starves")
    assert judge(found, {"idle": 0.5, "starves": 0.1}, LANES, ALONE, SHARES, 0.9).working == ("idle",)
    assert judge(found, {"idle": 0.9, "starves": 0.9}, LANES, ALONE, SHARES, 0.9).nearest == "idle"


def test_lanes_that_do_not_give_what_they_promise_end_it_too() -> None:
    claim = judge({"slow": Got(3e9, 70e9, 190e-6)}, {"slow": 0.1}, LANES, (20e9, 90e9), SHARES, 0.9)
    assert (claim.working, claim.lanes_do, claim.holds) == ((), False, False)


def test_the_frontier_is_what_nobody_beats_in_both_bandwidths() -> None:
    found = {
        "a": Got(6e9, 10e9, 1.0),
        "b": Got(5e9, 20e9, 1.0),
        "beaten": Got(4e9, 20e9, 1.0),
        "inside": Got(4e9, 15e9, 1.0),
        "c": Got(1e9, 30e9, 1.0),
    }
    assert frontier(found) == ("a", "b", "c")


def test_a_point_whose_p99_is_not_known_suits_nothing_and_is_nearest_last() -> None:
    unknown = Got(9e9, 90e9, 2e-3, p99_is_known=False)
    far = Got(1e9, 90e9, 200e-6)
    assert unknown.shares(LANES) == (1.5, 1.5, None)
    claim = judge({"unknown": unknown, "far": far}, works({"unknown": unknown, "far": far}), LANES, ALONE, SHARES, 0.9)
    assert (claim.suiting, claim.nearest, claim.limiting) == ((), "far", "allreduce bandwidth")
    alone = judge({"unknown": unknown}, {"unknown": 0.1}, LANES, ALONE, SHARES, 0.9)
    assert (alone.nearest, alone.limiting, alone.working) == ("unknown", "read p99", ())


def test_nothing_is_known_beside_a_reference_whose_p99_is_not() -> None:
    reference = Got(6e9, 60e9, 0.0, p99_is_known=False)
    assert not reference.is_whole
    assert LANES.shares(reference) == (1.0, 1.0, None)
