"""Looks at the emulating machine: its input queues, its switches' process, its clock."""

from __future__ import annotations

import os
import subprocess

import pytest

from fabric.measure.machine import NOT_COUNTED, MachineReader, Softnet, clock_offset_s, parse_softnet
from tests.waiting import until

TWO_CORES = (
    b"0030a1f1 00000002 00000001 0 0 0 0 0 0 0 0 00000003 00000000 00000001 00000002\n"
    b"0014cda5 00000010 00000000 0 0 0 0 0 0 0 0 00000004 00000001 00000004 00000000\n"
)


def test_input_queues_are_added_up_over_cores() -> None:
    assert parse_softnet(TWO_CORES) == Softnet(dropped=18, backlog=7, squeezed=1)


def test_a_kernel_that_does_not_tell_what_waits_is_not_taken_for_one_where_nothing_does() -> None:
    old = b"\n".join(b" ".join(line.split()[:11]) for line in TWO_CORES.splitlines())
    assert parse_softnet(old) == Softnet(dropped=18, backlog=NOT_COUNTED, squeezed=1)


def test_this_kernel_is_understood() -> None:
    reader = MachineReader(os.getpid(), counts_niced=False)
    assert reader.softnet().dropped >= 0
    assert reader.softnet().backlog >= NOT_COUNTED
    assert len(reader.core_times()) == len(reader.cores)
    reader.close()


def test_the_time_of_switches_is_booked_on_the_core_they_run_on() -> None:
    core = min(os.sched_getaffinity(0))
    spinning = subprocess.Popen(["taskset", "-c", str(core), "sh", "-c", "while :; do :; done"])
    try:
        until(lambda: os.sched_getaffinity(spinning.pid) == {core}, "the loop to be bound to its core")
        reader = MachineReader(spinning.pid, counts_niced=False)
        until(lambda: reader.switch_seconds() >= 0.1, "a tenth of a second that a loop uses")
    finally:
        spinning.kill()
        spinning.wait(60)
    assert {one: seconds for one, seconds in reader.switch_s.items() if seconds} == {core: reader.switch_s[core]}
    # Ticks are added up one by one, in floating point.
    assert reader.switch_s[core] == pytest.approx(reader.switch_seconds())
    reader.close()


def test_switches_that_have_ended_use_no_more_time() -> None:
    ended = subprocess.Popen(["sleep", "60"])
    reader = MachineReader(ended.pid, counts_niced=False)
    used = reader.switch_seconds()
    ended.kill()
    ended.wait(60)
    assert reader.switch_seconds() == used
    reader.close()


def test_the_dates_offset_stands_still() -> None:
    offsets = [clock_offset_s() for _ in range(100)]
    assert max(offsets) - min(offsets) < 0.01
