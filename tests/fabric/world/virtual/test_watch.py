from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabric.errors import UsageError
from fabric.world.virtual import running, watch
from fabric.world.virtual.watch import ClockWatch, GuestTime, Limits, lacking_memory


@pytest.mark.parametrize("found", [b"", b"123"])
def test_a_guest_whose_memory_has_gone_before_it_has_no_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: bytes
) -> None:
    (tmp_path / "mem").write_bytes(found)
    monkeypatch.setattr(running, "Path", lambda _: tmp_path / "mem")
    assert watch._read_clock_ns(1, 0) is None
    (tmp_path / "mem").write_bytes((7).to_bytes(8, sys.byteorder))
    assert watch._read_clock_ns(1, 0) == 7


def test_the_ratio_counts_from_the_start_of_the_program() -> None:
    assert GuestTime(virtual_s=13.0, wall_s=2.0).ratio == 0.5
    assert GuestTime(virtual_s=5.0, wall_s=2.0).ratio == 0


def test_what_is_shown_of_the_clock_adds_up() -> None:
    """The guest's boot is in neither the virtual time nor the ratio; it is in the wall time, for its user waits."""
    assert str(GuestTime(virtual_s=27.83, wall_s=13.8)) == "virtual time 15.83 s, wall time 13.8 s, ratio 1.15"
    assert str(GuestTime(virtual_s=12.0, wall_s=2.0)) == "virtual time 0.00 s, wall time 2.0 s, ratio 0.00"
    assert str(GuestTime(virtual_s=11.9, wall_s=1.5)) == "booting the guest, wall time 1.5 s"


def test_the_last_word_on_the_clock_is_the_programs_end() -> None:
    """Between two looks the clock jumps over all that programs wait for."""
    told: list[GuestTime] = []
    looked = ClockWatch(Limits(), told.append, 0)
    looked.end(72_500_000_000)
    assert [moment.of_program_s for moment in told] == [60.5]


def test_time_for_which_we_were_stopped_ourselves_makes_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: 5 * 10**9)
    looked = ClockWatch(Limits(hang_s=10), None, 0, cpu_s=lambda pid: clock_s[0])
    clock_s[0] = 3600
    assert looked.look(1) is None
    reasons = []
    for _ in range(30):
        clock_s[0] += 0.5
        reasons.append(looked.look(1))
    assert re.search(r"stood still at 5.000000 s for 1[2-6] s of wall time", str(reasons[-1]))
    assert reasons[:18] == [None] * 18


@pytest.mark.parametrize(("share", "ended_after_s"), [(1.0, 12.5), (0.1, 35.0), (0.0, 100.0)])
def test_a_guest_that_gets_no_cpu_has_longer(
    monkeypatch: pytest.MonkeyPatch, share: float, ended_after_s: float
) -> None:
    clock_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: 5 * 10**9)
    looked = ClockWatch(Limits(hang_s=10), None, 0, cpu_s=lambda pid: share * clock_s[0])
    while looked.look(1) is None:
        clock_s[0] += 0.25
        assert clock_s[0] < 200
    assert clock_s[0] == pytest.approx(ended_after_s, abs=1.0)


def test_cpu_time_is_of_all_processes_of_a_session() -> None:
    script = "import os, time\nos.fork()\nwhile time.process_time() < 0.5: pass\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while (used := watch.session_cpu_s(process.pid)) < 0.8:  # More than one of the two uses.
            assert time.monotonic() < deadline, f"used {used} s"
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def running_bytes(name: ctypes.Array[ctypes.c_char], calls: int, process: int = 64) -> bytes:
    """Return what a guest's kernel has of the program that it runs."""
    return struct.pack("=i4xQQ16s", process, ctypes.addressof(name), calls, b"z0h003")


@pytest.mark.parametrize(
    ("calls_per_s", "virtual_per_s", "share", "is_told"),
    [(0, 0, 1.0, True), (0, 0, 0.05, False), (1, 0, 1.0, False), (0, 10**6, 1.0, False)],
    ids=["computes", "gets no CPU", "makes calls", "time passes"],
)
def test_a_program_that_computes_without_a_call_is_told_once_within_10_s(
    monkeypatch: pytest.MonkeyPatch, calls_per_s: int, virtual_per_s: int, share: float, is_told: bool
) -> None:
    clock_s = [0.0]
    told: list[str] = []
    name = ctypes.create_string_buffer(b"poller", 16)
    there = ctypes.create_string_buffer(running_bytes(name, 0), 40)
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: 10**9 + round(virtual_per_s * clock_s[0]))
    address = ctypes.addressof(there)
    looked = ClockWatch(Limits(hang_s=240), None, 0, address, lambda pid: share * clock_s[0], told.append)
    for step in range(1, 101):
        clock_s[0] += 0.25
        ctypes.memmove(there, running_bytes(name, round(calls_per_s * clock_s[0])), 40)
        assert looked.look(os.getpid()) is None
        assert told == [] or clock_s[0] >= 8
        assert bool(told) == is_told or clock_s[0] < 10, step
    if is_told:
        (words,) = told
        assert words.startswith("note: 'poller' (process 64 on z0h003) has computed for 8 s of wall time without a")
        assert "ends if that lasts 240 s (FABRIC_GUEST_HANG_S=SECONDS is another limit)" in words
        assert "let its loop wait, yield (sched_yield), poll a descriptor or read the clock" in words


def test_how_long_the_clock_may_stand_still_is_the_environments_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_GUEST_HANG_S", "1800")
    assert Limits.of_guest(4 << 30).hang_s == 1800
    for wrong in ("soon", "0", "nan", "inf", "-5"):
        monkeypatch.setenv("FABRIC_GUEST_HANG_S", wrong)
        with pytest.raises(UsageError, match=f"FABRIC_GUEST_HANG_S={wrong}: not a number of seconds, 1 or more"):
            Limits.of_guest(4 << 30)


@pytest.mark.parametrize(("ns_per_s", "is_ended"), [(3, True), (3000, False)])
def test_a_clock_that_creeps_is_ended_and_the_program_that_runs_named(
    monkeypatch: pytest.MonkeyPatch, ns_per_s: int, is_ended: bool
) -> None:
    clock_s = [0.0]
    name = ctypes.create_string_buffer(b"spinner", 16)
    there = ctypes.create_string_buffer(running_bytes(name, calls=9), 40)
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: 12 * 10**9 + round(ns_per_s * clock_s[0]))
    looked = ClockWatch(Limits(hang_s=10), None, 0, ctypes.addressof(there), lambda pid: clock_s[0])
    reasons = []
    for _ in range(60):
        clock_s[0] += 0.5
        reasons.append(looked.look(os.getpid()))
    assert any(reasons) == is_ended
    if is_ended:
        assert "'spinner' (process 64 on z0h003) computes for longer than that" in str(reasons[-1])
        assert "or loops: if it polls memory, nothing will come" in str(reasons[-1])
        assert "hardly moved" in str(reasons[-1])


def test_which_host_was_busy_is_in_the_reason_to_end_a_run_after_so_much_wall_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_s = [0.0]
    name = ctypes.create_string_buffer(b"spinner", 16)
    there = ctypes.create_string_buffer(running_bytes(name, calls=9), 40)
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: round(1e9 * clock_s[0]))
    looked = ClockWatch(Limits(wall_s=9.9), None, 0, ctypes.addressof(there), lambda pid: clock_s[0])
    for _ in range(19):
        clock_s[0] += 0.5
        assert looked.look(os.getpid()) is None
    ctypes.memset(ctypes.addressof(there) + 24, 0, 16)  # Now a program of the fabric's own runs, on no host.
    clock_s[0] += 0.5
    reason = looked.look(os.getpid())
    assert reason is not None
    assert reason.endswith("of virtual time): 'spinner' on z0h003 ran in 19 of 20 looks at it")


def test_the_larger_a_guest_the_longer_its_clock_may_stand_still() -> None:
    waits = [Limits.of_guest(gib << 30).hang_s for gib in (1, 2, 4, 15)]
    assert waits == [120, 120, 240, 900]


def test_a_guest_that_stands_still_with_all_of_its_memory_touched_may_lack_some() -> None:
    assert "ran out of its 0.2 GiB of memory" in lacking_memory(1 << 28, int(0.95 * (1 << 28)))
    assert lacking_memory(1 << 28, 1 << 27) == lacking_memory(None, 1 << 30) == ""
