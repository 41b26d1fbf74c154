"""Calibrations are measured again where the machine disturbed them."""

from __future__ import annotations

import time

from fabric.model.lanes import Queueing
from fabric.records.calibration import LinkCalibration
from runs.attempts import Attempts
from runs.calibrating import calibrated


def link(carried_bps: float) -> LinkCalibration:
    return LinkCalibration("leaf to compute", "z0l00:1", 100, carried_bps, carried_bps, {"all": 1.0}, {"all": 1.0})


def played(attempts: Attempts, rates: list[float]) -> tuple[list[LinkCalibration], list[str]]:
    """Return what counts of calibrations that measure these rates in turn, and what was said."""
    said: list[str] = []
    turns = iter(rates)
    return calibrated(
        Queueing.LANES, attempts, time.monotonic(), lambda: [link(100), link(next(turns))], said.append
    ), said


def test_one_that_the_machine_disturbed_is_set_aside_with_its_reason() -> None:
    attempts = Attempts(most=3)
    found, said = played(attempts, [97.5, 99.5, 50])
    assert [one.lane_alone_bps for one in found] == [100, 99.5]
    (aside,) = attempts.set_aside
    assert (aside.phase, aside.number) == ("calibration, lanes", 1)
    assert 0 <= aside.started_s <= aside.ended_s < 60
    assert aside.reasons == ("degraded: a lane alone gets 97.5% of the link (leaf to compute, port z0l00:1)",)
    assert said == [f"links are calibrated again: {aside.reasons[0]}"]


def test_a_link_that_is_slower_than_it_says_stays_so() -> None:
    attempts = Attempts(most=3)
    found, _ = played(attempts, [90, 91, 92, 100])
    assert found[1].lane_alone_bps == 92
    assert [one.number for one in attempts.set_aside] == [1, 2]


def test_without_further_attempts_the_first_counts() -> None:
    found, said = played(Attempts(most=1), [97.5, 100])
    assert (found[1].lane_alone_bps, said) == (97.5, [])
