"""Guests that play one run together agree on time, and frames between them arrive when they are to. Needs no root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual.watch import Limits
from tests.fabric.world.virtual.linked_guests import DELAY_NS, IDLE_S
from tests.guest_scripts import run_script_in_guests
from tests.virtual.guests import below

pytestmark = pytest.mark.guest
SCRIPT = Path(__file__).parent / "linked_guests.py"
LATE_NS = 100
"""Each of a program's readings of the clock is 1 ns later than the one before."""


def played(what: str, guests: int = 2) -> list[str]:
    """Run a part of the script in guests; return what guest 0 prints, in words."""
    limits = Limits(virtual_s=100_000.0)
    return run_script_in_guests(SCRIPT, what, guests=guests, lookahead_ns=DELAY_NS, limits=limits).split()


@pytest.mark.parametrize("guests", [2, 3])
def test_a_way_round_the_guests_takes_as_many_delays(guests: int) -> None:
    found = [int(word) for word in played("round_the_guests", guests)]
    assert len(found) == 5
    assert all(0 <= ns - guests * DELAY_NS < LATE_NS for ns in found), found


def test_what_arrives_at_one_moment_does_so_in_the_order_of_links() -> None:
    assert played("at_one_moment") == ["0", "1"] * 5


def test_what_two_guests_send_each_other_is_whole_and_comes_at_the_same_times_in_every_run() -> None:
    assert played("exchange") == played("exchange")


def test_guests_that_all_wait_go_to_the_next_event_at_once() -> None:
    (seconds,) = played("idle")
    assert int(seconds) == IDLE_S


def test_a_guest_that_waits_for_another_sleeps_and_is_woken() -> None:
    slept, overslept = map(int, played("busy_together"))
    assert slept > 0
    assert overslept == 0


def test_a_guest_that_ends_too_early_ends_the_run_which_says_so() -> None:
    before = set(below(os.getpid()))
    with pytest.raises(EmulationError, match=r"guest 1 of the run ended with exit code 3 before the run did"):
        played("end_early")
    assert set(below(os.getpid())) <= before


def test_guests_of_a_run_have_ended_with_it() -> None:
    before = set(below(os.getpid()))
    played("round_the_guests")
    assert set(below(os.getpid())) <= before
