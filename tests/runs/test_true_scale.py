"""Numbers of scaled rates beside those of real systems."""

from __future__ import annotations

import pytest

from runs.true_scale import scale_words, true_rate, true_time, why_alone
from topologies.load import load_fabric

TRUE = load_fabric("fire_flyer_2_tiny", ["nic_rate=200 Gbit/s", "uplink_rate=200 Gbit/s"])
SCALED = load_fabric("fire_flyer_2_tiny", ["nic_rate=5 Mbit/s", "uplink_rate=5 Mbit/s"])


def test_at_the_true_rate_numbers_are_as_they_were_measured_and_nothing_is_said() -> None:
    assert (true_rate(TRUE, 7.5), true_time(TRUE, 0.3)) == (7.5, 0.3)
    assert (scale_words(TRUE), why_alone(TRUE)) == ("", None)


def test_rates_are_times_the_scale_and_times_over_it() -> None:
    assert true_rate(SCALED, 1.0) == pytest.approx(40_000)
    assert true_time(SCALED, 40_000.0) == pytest.approx(1.0)
    assert scale_words(SCALED) == ", times the scale of 40,000"
    assert (why_alone(SCALED) or "").startswith("what is published is left out: rates here are 1 : 40,000")
