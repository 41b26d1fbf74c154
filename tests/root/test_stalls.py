"""What a verdict must see on a live fabric: switches that stand still once, and a link slower than it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.root.stalls import LYING_FRACTION, STOPPED_S
from tests.worlds import Command

pytestmark = pytest.mark.root

SCRIPT = Path(__file__).with_name("stalls.py")


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> dict[str, Any]:
    """What stalls.stalls() saw."""
    return shared_command.play("fire_flyer_2_tiny", script=SCRIPT)


def test_switches_that_are_stopped_once_make_a_run_invalid(seen: dict[str, Any]) -> None:
    """They stood still for a second and a half of five, and no frame was lost."""
    found = seen["checks"]["switch_stall_s"]
    print(found)
    assert found["by_phase"]["stopped"] == pytest.approx(STOPPED_S, abs=0.3)
    assert found["by_phase"]["healthy"] < STOPPED_S / 2
    assert (found["phase"], found["status"]) == ("stopped", "invalid")
    assert seen["checks"]["unaccounted_packets_fraction"]["status"] == "faithful"


def test_a_link_that_is_slower_than_it_says_is_found_while_it_is_full(seen: dict[str, Any]) -> None:
    found = seen["checks"]["full_port_rate_error"]
    print(found)
    assert found["by_phase"]["slowed"] == pytest.approx(1 - LYING_FRACTION, abs=0.03)
    assert (found["phase"], found["status"]) == ("slowed", "invalid")


def test_a_link_that_is_as_fast_as_it_says_is_seen_full_and_passes(seen: dict[str, Any]) -> None:
    found = seen["checks"]["full_port_rate_error"]
    print(found["by_phase"], seen["cpu"])
    assert found["by_phase"]["healthy"] < 0.02
    assert "full for" in found["text"]


def test_what_each_phase_used_of_the_cpu_is_told(seen: dict[str, Any]) -> None:
    for phase, used in seen["cpu"].items():
        print(phase, used)
        assert used["switches_s"] + used["switches_kernel_s"] > 0.05
        assert used["programs_s"] + used["programs_kernel_s"] > 0.05
        assert 0 <= used["idle_fraction"] < 1
