"""A process that leads a session is as nice to other sessions as it is to be, where the kernel has such a thing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.world.isolation.priority import set_niceness, set_session_niceness

_LEAVE = """
import sys
from fabric.world.isolation.priority import leave_session
leave_session(7)
print(flush=True)
sys.stdin.read()
"""


def session_niceness(pid: int) -> int | None:
    """Return a session's niceness; None if it has none: this kernel has no such thing, or it is that of PID 1."""
    of_session = Path(f"/proc/{pid}/autogroup")
    told = of_session.read_text() if of_session.exists() else ""
    return int(told.rpartition(" nice ")[2]) if told else None


@pytest.fixture
def leader() -> Iterator[int]:
    """A process that leads a session."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process.pid
        process.kill()


def test_a_session_gets_a_niceness_of_its_own(leader: int) -> None:
    set_session_niceness(leader, 7)
    assert session_niceness(leader) in (7, None)
    assert os.getpriority(os.PRIO_PROCESS, leader) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_process_and_its_session_get_the_same_niceness(leader: int) -> None:
    set_niceness(leader, 7)
    assert os.getpriority(os.PRIO_PROCESS, leader) == 7
    assert session_niceness(leader) in (7, None)


def test_a_process_that_has_ended_has_no_session_to_set() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        set_session_niceness(process.pid, 7)


def test_a_process_that_leaves_its_session_takes_nobody_along() -> None:
    before = session_niceness(os.getpid())
    with subprocess.Popen([sys.executable, "-c", _LEAVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n", "it says that it has left"
        assert os.getsid(process.pid) == process.pid
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7
        assert session_niceness(process.pid) in (7, None)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert session_niceness(os.getpid()) == before
