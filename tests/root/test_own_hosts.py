"""What programs find on a host of their own, in real time."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from tests import sent_checks
from tests.own_host_checks import COMMAND, HOSTS, check_both
from tests.waiting import until
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
    sent_checks.check(done.stderr, sent_again=0.2)


def groups(held: bool) -> list[Path]:
    """Return the control groups of runs on this machine that are in use, or those that killed ones have left."""
    found = []
    for path in Path("/sys/fs/cgroup").rglob("fabric-*/"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = False
        except BlockingIOError:
            is_held = True
        finally:
            os.close(descriptor)
        if is_held == held:
            found.append(path)
    return found


def test_the_next_command_removes_what_a_killed_one_has_left(command: Command) -> None:
    before = groups(held=True)
    process = command.start("exec", TINY, "z0h000", "--", "sleep", "600")
    until(lambda: bool(set(groups(held=True)) - set(before)), "the group of the programs", 120)
    (own,) = set(groups(held=True)) - set(before)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: not command.processes(), "the end of all", 60)
    assert own in groups(held=False), "nobody was left to remove it"
    done = command.run("exec", TINY, "z0h000", "--", "true")
    assert done.returncode == 0, done.stderr
    assert not own.exists()
