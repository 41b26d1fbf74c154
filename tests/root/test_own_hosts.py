"""What programs find on a host of their own, in real time."""

from __future__ import annotations

import pytest

from tests import sent_checks
from tests.own_host_checks import COMMAND, HOSTS, check_both
from tests.worlds import TINY, Command, nothing_left

pytestmark = pytest.mark.root


def test_a_host_has_all_to_itself_but_what_is_shared_on_purpose(command: Command) -> None:
    with nothing_left(command):
        done = command.run("exec", TINY, *HOSTS, "--", *COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    check_both(done.stdout)


def test_each_program_is_said_to_have_sent_what_it_sent(command: Command) -> None:
    with nothing_left(command):
        done = command.run("exec", *sent_checks.WORDS)
    assert done.returncode == 0, done.stdout + done.stderr
    sent_checks.check(done.stderr)
