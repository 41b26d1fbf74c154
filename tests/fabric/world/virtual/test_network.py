"""What a link of the guest does is what it was told to do. Needs no root."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.world.virtual.guest import GIB
from tests.guest_scripts import run_script

pytestmark = pytest.mark.guest
PROGRAM = Path(__file__).parent / "saturated_link.py"


def measured(*arguments: str) -> list[str]:
    return run_script(PROGRAM, *arguments, memory_bytes=GIB).split()


@pytest.mark.parametrize(
    ("rate_bps", "size_bytes"),
    [(20_000_000, 10_000_000), (10_000_000_000, 100_000_000), (200_000_000_000, 400_000_000)],
    ids=["20 Mbit/s", "10 Gbit/s", "200 Gbit/s"],
)
def test_a_saturated_link_carries_its_rate(rate_bps: int, size_bytes: int) -> None:
    (rate,) = measured(str(rate_bps), str(size_bytes))
    assert float(rate) == pytest.approx(rate_bps, rel=0.001)


def test_a_delay_of_5_us_is_5_us_from_the_first_packet_on() -> None:
    round_trips_ns = [int(text) for text in measured("delay", "5000")]
    assert round_trips_ns == pytest.approx([10_000] * 5, rel=0.001)


def test_a_hosts_jitter_is_up_to_a_frames_time_costs_no_rate_and_repeats() -> None:
    rate_bps = 1_000_000_000
    frame_ns = 4214 * 8 * 10**9 // rate_bps
    *late_ns, rate, again = measured("jitter", str(rate_bps), "20000000")
    late = [int(text) for text in late_ns]
    assert min(late) < 0.2 * frame_ns
    assert 0.8 * frame_ns < max(late) < 1.02 * frame_ns
    assert float(rate) == pytest.approx(rate_bps, rel=0.001)
    assert again == "0"
    assert measured("jitter", str(rate_bps), "20000000") == [*late_ns, rate, again]


def test_two_runs_of_one_seed_measure_the_same_to_the_last_digit() -> None:
    first, second = (measured("10000000000", "20000000") for _ in range(2))
    assert first == second
