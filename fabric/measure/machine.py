"""One look at the emulating machine: its cores, its switches' process, its input queues and its clock."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from fabric.measure.cores import CoreReader, CoreTime, process_time, usable_cores

NOT_COUNTED = -1
"""What this kernel does not tell."""
_LARGEST_BYTES = 1 << 16
_SAME_MOMENT_S = 2e-5
"""Two clocks read within this time are read at once; if not, it is tried again."""
_DROPPED, _SQUEEZED, _BACKLOG, _BACKLOG_COLUMNS = 1, 2, 11, 13
_PROCESSOR = 36
"""The core that a process ran on last, in its stat file behind the name."""


@dataclass(frozen=True)
class Softnet:
    """The kernel's input queues of all cores: frames dropped since boot, frames waiting, how often work was put off."""

    dropped: int
    backlog: int
    squeezed: int


def parse_softnet(text: bytes) -> Softnet:
    """Return what /proc/net/softnet_stat says, a line a core; kernels before 5.10 do not tell what waits."""
    rows = [line.split() for line in text.splitlines()]
    tells_backlog = all(len(row) >= _BACKLOG_COLUMNS for row in rows)
    dropped, squeezed = (sum(int(row[column], 16) for row in rows) for column in (_DROPPED, _SQUEEZED))
    backlog = sum(int(row[_BACKLOG], 16) for row in rows) if tells_backlog else NOT_COUNTED
    return Softnet(dropped, backlog, squeezed)


def clock_offset_s() -> float:
    """Return by how much the date is ahead of ``time.monotonic()``: it jumps when somebody sets the date."""
    for _ in range(3):
        before, date, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < _SAME_MOMENT_S:
            break
    return date - (before + after) / 2


class MachineReader:
    """Reads all of it, from files that stay open: opening them costs as much as reading.

    ``counts_niced``: see :class:`fabric.measure.cores.CoreReader`. ``switch_s`` is ovs-vswitchd's CPU time by the core
    on which it was last seen.
    """

    def __init__(self, switch_pid: int, counts_niced: bool) -> None:
        self.cores = usable_cores()
        self._times = CoreReader(self.cores, counts_niced)
        self._switch = os.open(f"/proc/{switch_pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._softnet = os.open("/proc/net/softnet_stat", os.O_RDONLY | os.O_CLOEXEC)
        self._switch_total_s = 0.0
        self.switch_s = dict.fromkeys(self.cores, 0.0)

    def core_times(self) -> list[CoreTime]:
        """Return the times of each of ``cores``."""
        return self._times.read()

    def switch_seconds(self) -> float:
        """Return the CPU seconds that ovs-vswitchd has used, and book them on the core it ran on; what it had used if
        it has ended."""
        try:
            stat = os.pread(self._switch, _LARGEST_BYTES, 0).decode()
        except ProcessLookupError:
            return self._switch_total_s
        used = process_time(stat)
        core = int(stat.rpartition(")")[2].split()[_PROCESSOR])
        total_s = used.user_s + used.kernel_s
        if core in self.switch_s:
            self.switch_s[core] += total_s - self._switch_total_s
        self._switch_total_s = total_s
        return total_s

    def softnet(self) -> Softnet:
        """Return the kernel's input queues."""
        return parse_softnet(os.pread(self._softnet, _LARGEST_BYTES, 0))

    def close(self) -> None:
        """Let go of the files."""
        self._times.close()
        os.close(self._switch)
        os.close(self._softnet)
