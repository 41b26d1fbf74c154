"""How late programs wake, core by core: the worst counts, and none is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from fabric.measure.cores import usable_cores
from fabric.measure.lateness import HostLateness, WakeRecord
from tests.waiting import until


@pytest.fixture
def lateness() -> Iterator[HostLateness]:
    """Lateness on every core that this process may use."""
    watching = HostLateness(usable_cores())
    yield watching
    watching.close()


def pids_of(lateness: HostLateness) -> list[int]:
    return [heart.pid for heart in lateness._hearts]


def affinity(pid: int) -> set[int]:
    return os.sched_getaffinity(pid)


def test_one_process_a_core_is_pinned_to_it(lateness: HostLateness) -> None:
    deadline = time.monotonic() + 30
    while (pinned := [affinity(pid) for pid in pids_of(lateness)]) != [{core} for core in usable_cores()]:
        assert time.monotonic() < deadline, f"pinned to {pinned}"
        time.sleep(0.01)


def test_a_stall_on_one_core_counts_even_while_it_lasts_and_once_it_is_over_no_more(lateness: HostLateness) -> None:
    time.sleep(0.1)
    lateness.worst_s()
    os.kill(pids_of(lateness)[-1], signal.SIGSTOP)
    time.sleep(0.4)
    during = lateness.worst_s()
    assert 0.3 < during < 5
    os.kill(pids_of(lateness)[-1], signal.SIGCONT)
    time.sleep(0.1)
    assert lateness.worst_s() >= during
    deadline = time.monotonic() + 30
    while lateness.worst_s() >= 0.3:
        assert time.monotonic() < deadline, "waited 30 s for a stall that is over to count no more"
        time.sleep(0.1)


def test_a_late_wake_up_is_told_however_late_it_is_asked_for(lateness: HostLateness) -> None:
    time.sleep(0.1)
    lateness.worst_s()
    os.kill(pids_of(lateness)[0], signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(pids_of(lateness)[0], signal.SIGCONT)
    time.sleep(0.3)
    assert lateness.worst_s() > 0.2


def test_no_half_written_value_is_ever_read() -> None:
    """The times written are two whose bytes differ, as fast as they can be; a mixture would be neither."""
    early, late = 1.0, 12345.678901234567
    record = WakeRecord(early)
    writer = os.fork()
    if writer == 0:
        while os.getppid() != 1:
            record.expect(early)
            record.expect(late)
            record.add(late)
    try:
        seen: set[float] = set()

        def see() -> bool:
            seen.update(record.worst_s(now_s=20000.0) for _ in range(100))
            return late in seen

        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            see()
        until(see, "a value that the other process writes")
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert {20000.0 - early, late} <= seen <= {20000.0 - early, 20000.0 - late, late}
