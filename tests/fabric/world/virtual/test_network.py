"""What a link of the guest does is what it was told to do. Needs no root."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from fabric.world.virtual.guest import GIB, run_in_guest

pytestmark = pytest.mark.guest
ROOT = Path(__file__).parents[4]
PROGRAM = Path(__file__).parent / "saturated_link.py"


def measured(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stdout = io.BytesIO()
    assert run_in_guest([sys.executable, str(PROGRAM), *arguments], seed=1, memory_bytes=GIB, stdout=stdout) == 0
    return stdout.getvalue().decode().split()


@pytest.mark.parametrize(
    ("rate_bps", "size_bytes"),
    [(20_000_000, 10_000_000), (10_000_000_000, 100_000_000), (200_000_000_000, 400_000_000)],
    ids=["20 Mbit/s", "10 Gbit/s", "200 Gbit/s"],
)
def test_a_saturated_link_carries_its_rate(monkeypatch: pytest.MonkeyPatch, rate_bps: int, size_bytes: int) -> None:
    (rate,) = measured(monkeypatch, str(rate_bps), str(size_bytes))
    assert float(rate) == pytest.approx(rate_bps, rel=0.001)


def test_a_delay_of_5_us_is_5_us_from_the_first_packet_on(monkeypatch: pytest.MonkeyPatch) -> None:
    round_trips_ns = [int(text) for text in measured(monkeypatch, "delay", "5000")]
    assert round_trips_ns == pytest.approx([10_000] * 5, rel=0.001)


def test_a_hosts_jitter_is_up_to_a_frames_time_costs_no_rate_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    rate_bps = 1_000_000_000
    frame_ns = 4214 * 8 * 10**9 // rate_bps
    *late_ns, rate, again = measured(monkeypatch, "jitter", str(rate_bps), "20000000")
    late = [int(text) for text in late_ns]
    assert min(late) < 0.2 * frame_ns
    assert 0.8 * frame_ns < max(late) < 1.02 * frame_ns
    assert float(rate) == pytest.approx(rate_bps, rel=0.001)
    assert again == "0"
    assert measured(monkeypatch, "jitter", str(rate_bps), "20000000") == [*late_ns, rate, again]


def test_two_runs_of_one_seed_measure_the_same_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (measured(monkeypatch, "10000000000", "20000000") for _ in range(2))
    assert first == second
