"""Times of arrival while the machine's clock is set."""

from __future__ import annotations

import time

import pytest

from traffic.flows.arrival_clock import ArrivalClock

MS = 1_000_000


class Clocks:
    """Both clocks of a machine, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000 * MS
        self.ahead_ns = 1_700_000_000 * 1000 * MS
        self.look_ns = 0
        self.first_look_ns = 0

    def real_ns(self) -> int:
        self.now_ns += self.look_ns
        found_ns = self.now_ns + self.ahead_ns
        self.now_ns += self.first_look_ns
        self.first_look_ns = 0
        return found_ns

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> ArrivalClock:
    return ArrivalClock(clocks.real_ns, clocks.monotonic_ns)


def test_a_packet_came_when_it_was_stamped(clocks: Clocks, clock: ArrivalClock) -> None:
    came_ns, stamp_ns = clocks.now_ns, clocks.real_ns()
    clocks.now_ns += 3 * MS
    assert clock.arrived_ns(stamp_ns) == came_ns
    assert clock.steps_s == []


@pytest.mark.parametrize("step_ms", [-60_000, -50, 50, 3_600_000])
def test_a_clock_that_is_set_moves_no_arrival(clocks: Clocks, clock: ArrivalClock, step_ms: int) -> None:
    """Packets come each ms, are looked at 5 ms later, and the clock is set in their midst."""
    came: list[int] = []
    stamps: list[int] = []
    found: list[int] = []
    for number in range(100):
        if number == 40:
            clocks.ahead_ns += step_ms * MS
        came.append(clocks.now_ns)
        stamps.append(clocks.real_ns())
        if number >= 5:
            found.append(clock.arrived_ns(stamps[number - 5]))
        clocks.now_ns += MS
    assert found == came[:95]
    assert clock.steps_s == [step_ms / 1000]


def test_drift_is_followed_and_is_no_step(clocks: Clocks, clock: ArrivalClock) -> None:
    for _ in range(1000):
        clocks.now_ns += 100 * MS
        clocks.ahead_ns += 50_000
        came_ns, stamp_ns = clocks.now_ns, clocks.real_ns()
        clocks.now_ns += MS
        assert clock.arrived_ns(stamp_ns) == came_ns
    assert clock.steps_s == []


def test_a_look_that_was_interrupted_is_not_believed(clocks: Clocks, clock: ArrivalClock) -> None:
    came_ns, stamp_ns = clocks.now_ns, clocks.real_ns()
    clocks.look_ns = 30 * MS
    clocks.ahead_ns += 7 * MS
    assert clock.arrived_ns(stamp_ns) == came_ns
    assert clock.steps_s == []


def test_a_first_look_that_was_interrupted_is_no_step(clocks: Clocks) -> None:
    clocks.first_look_ns = 300 * MS
    clock = ArrivalClock(clocks.real_ns, clocks.monotonic_ns)
    came_ns, stamp_ns = clocks.now_ns, clocks.real_ns()
    assert clock.arrived_ns(stamp_ns) == came_ns
    assert clock.steps_s == []


def test_the_machines_own_clocks() -> None:
    clock = ArrivalClock()
    before_ns, stamp_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    assert before_ns - MS <= clock.arrived_ns(stamp_ns) <= after_ns + MS
