"""Which program a guest runs, looked at from outside; and who computes for long without a system call."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("=i4xQQ16s")  # clock.c.inc: time_travel_running.
_NAME_BYTES = 16
HANG = "FABRIC_GUEST_HANG_S"
"""The environment's choice of how long a guest's clock may stand still: seconds of wall time."""
TELLS_AFTER_S = 8.0
"""Wall time in which one program computes without a call, after which it is named."""
SURE_CPU_S = 2.0
"""CPU time of the guest in the second half of that: less if others keep it from computing."""
REMEDY = (
    "if it polls memory, nothing will come: let its loop wait, yield (sched_yield), poll a descriptor or read the clock"
)


@dataclass(frozen=True)
class Running:
    """The program that a guest runs, and how many system calls all of its programs have made."""

    process: int
    name: str
    """Linux keeps 15 letters of it."""
    calls: int
    host: str
    """Where it runs; empty: beside the switches."""

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.process}{f' on {self.host}' if self.host else ''})"


def read_running(pid: int, address: int) -> Running | None:
    """Return what the guest with the kernel's process ``pid`` runs; None if that holds nothing there."""
    content = read_memory(pid, address, _LAYOUT.size)
    if content is None:
        return None
    process, name_address, calls, host = _LAYOUT.unpack(content)
    name = read_memory(pid, name_address, _NAME_BYTES)
    return None if name is None else Running(process, _text(name), calls, _text(host))


def read_memory(pid: int, address: int, size_bytes: int) -> bytes | None:
    """Return what a process holds there; None if it holds nothing."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            content = memory.read(size_bytes)
    except (OSError, ValueError, OverflowError):
        return None
    return content if len(content) == size_bytes else None


def _text(field: bytes) -> str:
    return field.split(bytes(1))[0].decode(errors="replace")


_BUSY_PART, _MOST_BUSY = 0.2, 3


@dataclass
class _Suspect:
    running: Running
    since_s: float
    cpu_s: float | None = None


class BusyPrograms:
    """Which programs of hosts ran in looks at a guest."""

    def __init__(self) -> None:
        self._looks = 0
        self._ran: Counter[str] = Counter()

    def look(self, running: Running | None) -> None:
        """Count what runs, None if nobody knows."""
        self._looks += 1
        if running is not None and running.host:
            self._ran[f"{running.name!r} on {running.host}"] += 1

    def __str__(self) -> str:
        busy = [(name, seen) for name, seen in self._ran.most_common(_MOST_BUSY) if seen >= _BUSY_PART * self._looks]
        said = " and ".join(f"{name} ran in {seen}" for name, seen in busy)
        return f": {said} of {self._looks} looks at it" if said else ""


class CallWatch:
    """Finds a program that computes without a system call while the clock stands still, and tells of each once."""

    def __init__(self, address: int, tell: Callable[[str], None], cpu_s: Callable[[int], float]) -> None:
        self._address, self._tell, self._cpu_s = address, tell, cpu_s
        self._suspect: _Suspect | None = None
        self._told: set[tuple[int, str]] = set()
        self.busy = BusyPrograms()

    def running(self, pid: int) -> Running | None:
        """Return what the guest runs."""
        return read_running(pid, self._address)

    def look(self, pid: int, wall_s: float, still_s: float, hang_s: float) -> None:
        """Look at a guest whose clock has stood still for ``still_s`` of ``wall_s``, and is ended after ``hang_s``."""
        running = self.running(pid) if still_s >= TELLS_AFTER_S / 4 else None
        if running is None or self._suspect is None or running != self._suspect.running:
            self._suspect = None if running is None else _Suspect(running, wall_s - TELLS_AFTER_S / 4)
            return
        suspect, computed_s = self._suspect, wall_s - self._suspect.since_s
        if computed_s >= TELLS_AFTER_S / 2 and suspect.cpu_s is None:
            suspect.cpu_s = self._cpu_s(pid)
        is_new = (running.process, running.name) not in self._told
        if is_new and computed_s >= TELLS_AFTER_S and self._has_computed(pid, suspect):
            self._told.add((running.process, running.name))
            self._tell(
                f"note: {running} has computed for {computed_s:.0f} s of wall time without a system call, and no "
                f"virtual time passes meanwhile. The run ends if that lasts {hang_s:.0f} s ({HANG}=SECONDS is another "
                f"limit); {REMEDY}"
            )

    def _has_computed(self, pid: int, suspect: _Suspect) -> bool:
        return suspect.cpu_s is not None and self._cpu_s(pid) - suspect.cpu_s >= SURE_CPU_S
