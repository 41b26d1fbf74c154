from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fabric.virtual import watch
from fabric.virtual.watch import GuestTime, Limits, Watch


@pytest.mark.parametrize("found", [b"", b"123"])
def test_a_guest_whose_memory_has_gone_before_it_has_no_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: bytes
) -> None:
    (tmp_path / "mem").write_bytes(found)
    monkeypatch.setattr(watch, "Path", lambda _: tmp_path / "mem")
    assert watch._read_clock_ns(1, 0) is None
    (tmp_path / "mem").write_bytes((7).to_bytes(8, sys.byteorder))
    assert watch._read_clock_ns(1, 0) == 7


def test_the_ratio_counts_from_the_start_of_the_program() -> None:
    assert GuestTime(virtual_s=13.0, wall_s=2.0).ratio == 0.5
    assert GuestTime(virtual_s=5.0, wall_s=2.0).ratio == 0


def test_time_for_which_we_were_stopped_ourselves_makes_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    monkeypatch.setattr(watch, "_read_clock_ns", lambda pid, address: 5 * 10**9)
    looked = Watch(Limits(hang_s=10), None, 0)
    clock_s[0] = 3600
    assert looked.look(1) is None
    reasons = []
    for _ in range(30):
        clock_s[0] += 0.5
        reasons.append(looked.look(1))
    assert "stood still at 5.000000 s for 10 s" in str(reasons[-1])
    assert reasons[:18] == [None] * 18
