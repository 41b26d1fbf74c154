"""Closed forms of checkpoint intervals, against the sums that they are from and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cluster.checkpoints.intervals import (
    availability_interval_s,
    dalys_interval_s,
    expected_slowdown,
    stall_for,
    sweep,
    youngs_interval_s,
)
from cluster.faults.published import published


def test_young_and_daly_are_where_the_expected_time_is_least() -> None:
    """A search of the exact mean: Daly's optimum is within 1 % of it, Young's within 8 % where stalls are short."""
    for stall_s, mtbf_s in ((1.0, 3600.0), (60.0, 6 * 3600.0), (600.0, 24 * 3600.0)):
        tried = np.geomspace(stall_s / 10, mtbf_s, 20_000)
        best_s = tried[np.argmin([expected_slowdown(one, stall_s, mtbf_s, 100.0) for one in tried])]
        assert dalys_interval_s(stall_s, mtbf_s) == pytest.approx(best_s, rel=0.01)
        assert youngs_interval_s(stall_s, mtbf_s) == pytest.approx(best_s, rel=0.08)


def test_the_expected_time_is_that_of_many_drawn_failures() -> None:
    """Segments of work and stall are tried until no failure comes within one; a restart may fail, too."""
    interval_s, stall_s, mtbf_s, restart_s = 300.0, 20.0, 1000.0, 60.0
    rng, total_s, segments = np.random.default_rng(1), 0.0, 20_000
    for _ in range(segments):
        needed_s = interval_s + stall_s
        while (fails_s := rng.exponential(mtbf_s)) < needed_s:
            total_s += fails_s
            needed_s = restart_s + interval_s + stall_s
        total_s += needed_s
    expected = expected_slowdown(interval_s, stall_s, mtbf_s, restart_s)
    assert total_s / segments / interval_s == pytest.approx(expected, rel=0.01)


def test_five_minutes_are_youngs_optimum_for_short_stalls_only() -> None:
    """Of all of Fire-Flyer 2 and of 128 of its nodes: the paper's interval asks for stalls of less than a second."""
    table = published("fire_flyer_2")
    assert stall_for(300, table.mtbf_s(1250)) == pytest.approx(0.83, abs=0.005)
    assert stall_for(300, table.mtbf_s(128)) == pytest.approx(0.085, abs=0.0005)
    assert youngs_interval_s(0.83, table.mtbf_s(1250)) == pytest.approx(300, rel=0.01)


def test_forms_of_long_stalls_and_of_availability() -> None:
    assert dalys_interval_s(300.0, 100.0) == 100.0, "where a checkpoint takes longer than failures leave time for"
    assert availability_interval_s(2.0, 99.0, 1.0) == pytest.approx(2 + math.sqrt(2 * 100 * 2 + 4))
    assert math.isinf(expected_slowdown(1e6, 1.0, 10.0, 1.0))
    costs = sweep([60, 300, 1800], 1.0, 54_000, 30)
    assert [cost.interval_s for cost in costs] == [60, 300, 1800]
    assert min(costs, key=lambda cost: cost.wasted).interval_s == 300
