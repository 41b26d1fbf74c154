"""What the cores do: read from what /proc says, of those cores alone that the run may use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.measure.cores import (
    CoreReader,
    CoreTime,
    CpuSnapshot,
    ProcessTime,
    core_times,
    cpu_use,
    process_time,
    take_snapshot,
    throttled_s,
    usable_cores,
)

STAT = b"""cpu  9 9 9 9 9 9 9 9 0 0
cpu0 100 2000 30 4000 50 6 7 80 0 0
cpu2 1000 0 0 4000 50 0 0 0 0 0
intr 3144797 0 0
ctxt 1
"""


def test_only_the_cores_that_may_be_used_are_read() -> None:
    (found,) = core_times(STAT, [2], counts_niced=False)
    assert found == CoreTime(10.0, 0.0, 0.0, 0.0)


def test_niced_programs_are_format_apart_and_stolen_time_is_busy() -> None:
    (found,) = core_times(STAT, [0], counts_niced=False)
    assert (found.busy_s, found.niced_s, found.softirq_s) == pytest.approx((2.23, 20.0, 0.07))
    assert found.stolen_s == pytest.approx(0.8)


def test_a_run_that_is_niced_itself_counts_its_own_time() -> None:
    (found,) = core_times(STAT, [0], counts_niced=True)
    assert (found.busy_s, found.niced_s, found.softirq_s) == pytest.approx((22.23, 0.0, 0.07))


def test_a_core_that_has_gone_is_named() -> None:
    with pytest.raises(EmulationError, match="core 1: is no longer in /proc/stat"):
        list(core_times(STAT, [0, 1], counts_niced=False))


def test_time_passes_no_faster_than_cores_can_be_busy() -> None:
    reader = CoreReader(usable_cores(), counts_niced=False)
    started, before = time.monotonic(), reader.read()
    while time.monotonic() < started + 0.2:
        pass
    after, elapsed = reader.read(), time.monotonic() - started
    reader.close()
    used = [new.busy_s + new.niced_s - old.busy_s - old.niced_s for old, new in zip(before, after, strict=True)]
    assert sum(used) > 0.1
    assert max(used) <= elapsed + 0.05


def test_the_time_of_a_process_is_its_own_or_with_that_of_its_children() -> None:
    stat = "7 (a b) c) S " + " ".join(["0"] * 10 + ["150", "50", "700", "10"] + ["0"] * 30)
    assert process_time(stat) == ProcessTime(1.5, 0.5)
    assert process_time(stat, with_children=True) == ProcessTime(8.5, 0.6)


def test_what_a_run_used_is_told_by_what_used_it() -> None:
    before = CpuSnapshot(10.0, (CoreTime(1, 0, 0), CoreTime(2, 0, 1)), ProcessTime(1, 1), ProcessTime(0.5, 0.5), 0.25)
    after = CpuSnapshot(
        20.0, (CoreTime(9, 1, 2, 0.5), CoreTime(8, 0, 2, 1)), ProcessTime(6, 4), ProcessTime(2, 2), 0.75
    )
    used = cpu_use(before, after)
    assert (used.programs_s, used.programs_kernel_s) == (3.5, 1.5)
    assert (used.switches_s, used.switches_kernel_s) == (1.5, 1.5)
    assert used.stolen_s == 1.5
    assert used.others_s == pytest.approx(14 - 1.5 - 8)
    assert (used.niced_s, used.softirq_s, used.throttled_s) == (1, 3, 0.5)
    assert used.idle_s == pytest.approx(20 - 14 - 1)
    assert used.as_json()["idle_fraction"] == pytest.approx(0.25)


def test_a_snapshot_has_this_process_in_it() -> None:
    reader = CoreReader(usable_cores(), counts_niced=False)
    before = take_snapshot(time.monotonic(), reader, os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    used = cpu_use(before, take_snapshot(time.monotonic(), reader, os.getpid()))
    reader.close()
    assert used.switches_s + used.switches_kernel_s >= 0.08, "this process stands for the switches"


V2 = "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"
V1 = "nr_periods 4\nnr_throttled 3\nthrottled_time 1500000000\n"


@pytest.mark.parametrize(
    ("place", "text", "membership", "seconds"),
    [
        ("cpu.stat", V2, "0::/\n", 2.5),  # A container's own root.
        ("a/b/cpu.stat", V2, "0::/a/b\n", 2.5),
        ("a/cpu.stat", V2, "0::/a/b\n", 2.5),  # The quota of the group above.
        ("other/cpu.stat", V2, "0::/a/b\n", 0.0),
        ("cpu/a/cpu.stat", V1, "4:memory:/\n1:cpu:/a\n0::/\n", 1.5),
        ("cpu,cpuacct/a/cpu.stat", V1, "1:cpu,cpuacct:/a\n0::/\n", 1.5),
        ("cpu.stat", "usage_usec 5\n", "0::/\n", 0.0),  # No quota.
    ],
)
def test_what_quotas_take_is_found_in_either_version(
    tmp_path: Path, place: str, text: str, membership: str, seconds: float
) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(text)
    assert throttled_s(tmp_path, membership) == pytest.approx(seconds)
