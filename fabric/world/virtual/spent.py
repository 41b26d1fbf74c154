"""What a guest has used of the machine so far, by what the machine counts of its processes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 11, 12, 13, 14
"""Fields of /proc/PID/stat from the state on (proc(5)); the last two are of children that have ended."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds of a guest's kernel and of the programs that it runs, and bytes of memory that it has touched."""

    kernel_cpu_s: float = 0.0
    programs_cpu_s: float = 0.0
    memory_bytes: int = 0


def spent(process: int) -> Spent | None:
    """Return what the guest of a kernel's process has used; None if that has gone, and so has what was counted."""
    if (times := _times(process)) is None:
        return None
    programs = sum(_ticks(_times(child), _USER, _SYSTEM) for child in _children(process))
    return Spent(
        kernel_cpu_s=_ticks(times, _USER, _SYSTEM) / _TICKS_PER_S,
        programs_cpu_s=(programs + _ticks(times, _ENDED_USER, _ENDED_SYSTEM)) / _TICKS_PER_S,
        memory_bytes=touched_bytes(process),
    )


def cpu_s(process: int) -> float | None:
    """Return the CPU seconds of a process itself; None if it has gone."""
    times = _times(process)
    return None if times is None else _ticks(times, _USER, _SYSTEM) / _TICKS_PER_S


def touched_bytes(process: int) -> int:
    """Return how much of a guest's memory its kernel's process has touched; 0 if it has gone."""
    with suppress(OSError):
        found = re.search(r"^RssShmem:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    return 0


def _children(process: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, children.read_text().split())
    return found


def _times(process: int) -> list[str] | None:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return None


def _ticks(times: list[str] | None, *fields: int) -> int:
    return sum(int(times[field]) for field in fields) if times else 0
