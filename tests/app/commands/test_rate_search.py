"""The search for the highest rate that a machine carries, on machines that are formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.rate_search import CLOSE, LOWEST_BPS, MOST_MEASUREMENTS, Strain, find_rate
from fabric.errors import EmulationError

CEILING_BPS = 200 * 10**9


class Machine:
    """Carries up to ``limit_bps``; what it does at rest takes ``fixed`` of what is allowed."""

    def __init__(self, limit_bps: float, fixed: float = 0.0) -> None:
        self.limit_bps, self.fixed = limit_bps, fixed
        self.tried: list[int] = []

    def measure(self, rate_bps: int) -> Strain:
        self.tried.append(rate_bps)
        return Strain(rate_bps, self.fixed + (1 - self.fixed) * rate_bps / self.limit_bps, "core 1 is busy")


@given(
    limit_bps=st.floats(2 * LOWEST_BPS, 10**10),
    fixed=st.floats(0, 0.6),
    start_bps=st.sampled_from([10**6, 2 * 10**7, 10**9]),
)
def test_the_rate_found_holds_and_little_more_would_not(limit_bps: float, fixed: float, start_bps: int) -> None:
    machine = Machine(limit_bps, fixed)
    found = find_rate(machine.measure, start_bps, CEILING_BPS)
    assert found.rate_bps <= limit_bps * (1 + 1e-12)  # A machine that is a formula rounds.
    assert len(machine.tried) <= MOST_MEASUREMENTS
    assert len(set(machine.tried)) == len(machine.tried)
    if len(machine.tried) < MOST_MEASUREMENTS:
        assert found.rate_bps * CLOSE * 1.2 > limit_bps  # 1.2: rates are cut to two digits.


def test_a_machine_that_nearly_carries_the_rate_is_found_out_in_few_measurements() -> None:
    machine = Machine(12_400_000, fixed=0.2)
    assert find_rate(machine.measure, 20_000_000, CEILING_BPS).rate_bps in range(11_000_000, 12_400_001)
    assert len(machine.tried) <= 4


def test_nothing_above_what_the_topology_stands_for_is_tried() -> None:
    machine = Machine(10**13)
    assert find_rate(machine.measure, 20_000_000, 10**9).rate_bps == 10**9
    assert max(machine.tried) == 10**9


def test_rates_are_of_two_digits() -> None:
    machine = Machine(34_567_891, fixed=0.1)
    find_rate(machine.measure, 20_000_000, CEILING_BPS)
    assert [rate for rate in machine.tried if len(str(rate).rstrip("0")) > 2] == []


def test_a_machine_that_carries_nothing_is_told_what_it_lacks() -> None:
    with pytest.raises(EmulationError) as told:
        find_rate(Machine(LOWEST_BPS / 2).measure, 20_000_000, CEILING_BPS)
    assert "at 1 Mbit/s it does not keep up: core 1 is busy" in str(told.value)


def test_a_rate_above_one_that_failed_is_not_taken_though_it_held() -> None:
    """A moment's noise makes 40 hold where 20 had not: the search goes on below 20 and ends there."""
    values = {20_000_000: 1.5}
    tried: list[int] = []

    def noisy(rate_bps: int) -> Strain:
        tried.append(rate_bps)
        return Strain(rate_bps, values.get(rate_bps, 0.9), "")

    assert find_rate(noisy, 20_000_000, CEILING_BPS).rate_bps < 20_000_000
    assert max(tried) == 20_000_000
