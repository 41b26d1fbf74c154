"""Silent hosts, programs and disks that fail on purpose, in real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_time import Seen, in_real_time
from tests.root import seen_failures
from tests.worlds import TINY, Command

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("failing_programs.py")


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What failing_programs.failures() saw."""
    return Seen(lambda: shared_command.play(TINY, script=SCRIPT))


@pytest.mark.parametrize("name", ["silent", "stopped"])
@in_real_time
def test_peers_of_a_silent_host_see_neither_fin_nor_rst(seen: Seen, name: str) -> None:
    seen_failures.peers_hear_nothing(seen, name)


@in_real_time
def test_a_host_that_stays_dead_is_missed_once_it_is_up(seen: Seen) -> None:
    seen_failures.the_dead_are_missed_once_their_host_is_up(seen)


def test_chains_survive_a_killed_service(seen: Seen) -> None:
    seen_failures.chains_survive_a_killed_service(seen)


def test_rot_is_told_and_read_elsewhere(seen: Seen) -> None:
    seen_failures.rot_is_told_and_read_elsewhere(seen)


@in_real_time
def test_rotten_copies_are_counted(seen: Seen) -> None:
    seen_failures.rotten_copies_are_counted(seen)


@in_real_time
def test_rows_tell_what_was_done_and_the_verdict_what_was_asked_for(seen: Seen) -> None:
    seen_failures.rows_tell_it(seen, late_s=0.3)
