"""What a verdict must see on a live fabric: switches that stand still once, and a link slower than it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.world.datapath import Datapath
from tests.real_time import Seen, in_real_time
from tests.root.stalls import LYING_FRACTION, PHASE_S, STOPPED_S
from tests.worlds import Command

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("stalls.py")
NEVER_FULL = "the port was not seen full for long enough: the machine was too busy"


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What stalls.stalls() saw."""
    return Seen(lambda: shared_command.play("fire_flyer_2_tiny", script=SCRIPT))


@in_real_time
def test_switches_that_are_stopped_once_make_a_run_invalid(seen: Seen) -> None:
    """They stood still for 1.5 s of 5 s. Where the kernel switches, what was stopped only makes flows."""
    found = seen["checks"]["switch_stall_s"]
    print(seen["datapath"], found)
    if seen["datapath"] == Datapath.KERNEL.value:
        assert found["status"] == "faithful"
        assert seen["full"]["stopped"][0]["rate"] == pytest.approx(1, abs=0.02)
        return
    assert found["by_phase"]["stopped"] == pytest.approx(STOPPED_S, abs=0.3)
    assert found["by_phase"]["healthy"] < STOPPED_S / 2
    assert (found["phase"], found["status"]) == ("stopped", "invalid")


def test_switches_that_are_stopped_lose_nothing(seen: Seen) -> None:
    assert seen["checks"]["unaccounted_packets_fraction"]["status"] == "faithful"


@in_real_time
def test_a_link_that_is_slower_than_it_says_is_found_while_it_is_full(seen: Seen) -> None:
    found = seen["checks"]["full_port_rate_error"]
    print(found)
    assert "slowed" in found["by_phase"], NEVER_FULL
    assert found["by_phase"]["slowed"] == pytest.approx(1 - LYING_FRACTION, abs=0.03)
    assert (found["phase"], found["status"]) == ("slowed", "invalid")


@in_real_time
def test_a_link_that_is_as_fast_as_it_says_is_seen_full_and_passes(seen: Seen) -> None:
    print(seen["full"])
    assert len(seen["full"]["healthy"]) == 1, NEVER_FULL
    (full,) = seen["full"]["healthy"]
    assert full["seconds"] > 1.5
    assert full["rate"] == pytest.approx(1, abs=0.02)
    assert seen["checks"]["full_port_rate_error"]["by_phase"]["healthy"] < 0.02


def test_what_each_phase_used_of_the_cpu_is_told(seen: Seen) -> None:
    for phase, used in seen["cpu"].items():
        print(phase, used)
        assert used["switches_s"] + used["switches_kernel_s"] > 0.05
        assert used["programs_s"] + used["programs_kernel_s"] > 0.05
        assert 0 <= used["idle_fraction"] < 1


def test_a_phase_that_the_machine_disturbed_is_played_again_and_its_first_attempt_set_aside(seen: Seen) -> None:
    """Switches stood still in the first attempt. Where the kernel switches, what was stopped only makes flows."""
    if seen["datapath"] == Datapath.KERNEL.value:
        return
    (first,) = seen["set_aside"]
    again = seen["again"]
    assert (first["phase"], first["number"]) == ("again", 1)
    assert any("stood still" in reason or "stall" in reason for reason in first["reasons"]), first["reasons"]
    assert first["ended_s"] <= again["started_s"]
    assert again["ended_s"] - again["started_s"] >= PHASE_S
    aside, counted = (seen["flows"][name] for name in ("aside", "counted"))
    assert first["started_s"] <= aside[0] < aside[1] <= first["ended_s"]
    assert again["started_s"] <= counted[0] < counted[1] <= again["ended_s"]
    stalls = seen["checks"]["switch_stall_s"]["by_phase"]
    assert stalls["again"] < STOPPED_S / 2 or stalls["stopped"] > stalls["again"], (
        "the verdict is of the attempt that counts"
    )
