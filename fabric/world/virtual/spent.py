"""CPU time and memory of a guest so far, as the machine counts them for its processes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fabric.world.isolation.processes import stat_of

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 11, 12, 13, 14
"""Fields of :func:`stat_of`; the last two are of children that have ended."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds of a guest's kernel and of the programs that it runs, and bytes of memory that it has touched."""

    kernel_cpu_s: float = 0.0
    programs_cpu_s: float = 0.0
    memory_bytes: int = 0


def spent(process: int) -> Spent | None:
    """Return the use of the guest that a kernel's process runs; None once that has gone, and its counts with it."""
    if not (times := stat_of(process)):
        return None
    programs = sum(_ticks(stat_of(child), _USER, _SYSTEM) for child in _children(process))
    return Spent(
        kernel_cpu_s=_ticks(times, _USER, _SYSTEM) / _TICKS_PER_S,
        programs_cpu_s=(programs + _ticks(times, _ENDED_USER, _ENDED_SYSTEM)) / _TICKS_PER_S,
        memory_bytes=touched_bytes(process),
    )


def cpu_s(process: int) -> float | None:
    """Return the CPU seconds of a process itself; None if it has gone."""
    times = stat_of(process)
    return _ticks(times, _USER, _SYSTEM) / _TICKS_PER_S if times else None


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


def _ticks(fields: list[str], *places: int) -> int:
    return sum(int(fields[place]) for place in places) if fields else 0
