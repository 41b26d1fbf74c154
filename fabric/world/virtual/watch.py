"""Watches a running guest's clock from outside: reports its progress, and when to give up."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from fabric.errors import UsageError
from fabric.world.isolation.processes import all_stats
from fabric.world.virtual.running import HANG, REMEDY, CallWatch, read_memory
from fabric.world.virtual.spent import touched_bytes

LEAST_UPTIME_S = 12.0
"""Open vSwitch counts the CPU cores at most every 10 s of uptime, from 0: started sooner it believes in none, runs no
handler threads and drops every first packet. Waiting costs nothing."""
PROGRESS_S = 0.5
LONGEST_LOOK_S = 1.0
END_OF_TIME_NS = 1 << 62
"""Where the clock jumps to when no event is left."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SURE_FRACTION = 0.25
"""A guest that stood still for ``hang_s`` is ended once it has computed for this part of it more, without any time."""
_HANG_S_PER_GIB = 60.0
_ALL_OF_MEMORY = 0.9
"""A guest that has touched this part of its memory may lack some: the kernel keeps a reserve free."""
PATIENCE = 10
"""How many times ``hang_s`` a guest may stand still that gets no CPU."""


@dataclass(frozen=True)
class Limits:
    """When a run that does not end by itself is ended."""

    hang_s: float = 120.0
    """Wall time without virtual time: a loop that makes no system call, or a very long computation. A guest that other
    programs keep from computing has longer."""
    least_ratio: float = 1e-7
    """What must pass of virtual time in ``hang_s``, for a second of wall time: less is a hang, too. Loops that look at
    the clock, or try in vain, pass 0.03; fabrics that are too large to be of use, 0.0001."""
    wall_s: float | None = None
    virtual_s: float = 86_400.0
    """Programs that wait for each other forever let virtual time fly; this ends it."""
    memory_bytes: int | None = None
    """The guest's memory: one that stands still may lack some."""

    @classmethod
    def of_guest(cls, memory_bytes: int) -> Limits:
        """Return those of a guest with so much memory: the larger a fabric, the more its programs have to do in one
        moment. 1,200 clients of storage link up for three minutes or more. The environment (HANG) may choose. Raises
        UsageError."""
        if chosen := os.environ.get(HANG):
            return cls(hang_s=_seconds(chosen))
        return cls(hang_s=max(cls.hang_s, _HANG_S_PER_GIB * memory_bytes / 2**30))


@dataclass(frozen=True)
class GuestTime:
    """How far a run is."""

    virtual_s: float
    """The guest's uptime. The program starts at LEAST_UPTIME_S."""
    wall_s: float
    process: int = 0
    """The process of the guest's kernel."""
    watched_by: int = 0
    """The process that started it."""

    @property
    def of_program_s(self) -> float:
        """The virtual time that the program has had: the uptime before its start costs nothing and is nobody's."""
        return max(0.0, self.virtual_s - LEAST_UPTIME_S)

    @property
    def ratio(self) -> float:
        """Virtual seconds of the program per wall-clock second."""
        return self.of_program_s / self.wall_s if self.wall_s > 0 else 0.0

    def __str__(self) -> str:
        if self.virtual_s < LEAST_UPTIME_S:
            return f"booting the guest, wall time {self.wall_s:.1f} s"
        return f"virtual time {self.of_program_s:.2f} s, wall time {self.wall_s:.1f} s, ratio {self.ratio:.2f}"


Progress = Callable[[GuestTime], None]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise UsageError(f"{HANG}={text}: not a number of seconds, 1 or more, such as 1800; unset it for the default")
    return seconds


def session_cpu_s(session: int) -> float:
    """Return the CPU time that the processes of a session have used."""
    used = 0
    for _, values in all_stats():
        used += int(values[11]) + int(values[12]) if int(values[3]) == session else 0
    return used / _TICKS_PER_S


class ClockWatch:
    """Looks at the guest's clock from outside, tells of it, and finds out when to give up."""

    def __init__(
        self,
        limits: Limits,
        progress: Progress | None,
        clock_address: int,
        running_address: int | None = None,
        cpu_s: Callable[[int], float] = session_cpu_s,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._cpu_s = cpu_s
        self._suspected_cpu_s: float | None = None
        self._limits, self._progress, self._clock_address = limits, progress, clock_address
        self._calls = None if running_address is None else CallWatch(running_address, tell, cpu_s)
        self._looked_s = time.monotonic()
        self._wall_s = self._moved_s = self._told_s = 0.0
        self._virtual_ns = self._moved_ns = 0

    def look(self, pid: int) -> str | None:
        """Return why to end the guest, if there is a reason."""
        self._count_wall_time()
        self._virtual_ns = _read_clock_ns(pid, self._clock_address) or self._virtual_ns
        if self._virtual_ns - self._moved_ns > self._limits.least_ratio * (self._wall_s - self._moved_s) * 1e9:
            self._moved_ns, self._moved_s = self._virtual_ns, self._wall_s
        if self._progress is not None and self._wall_s - self._told_s >= PROGRESS_S:
            self._told_s = self._wall_s
            self._progress(GuestTime(self._virtual_ns / 1e9, self._wall_s, pid, os.getpid()))
        if self._calls is not None:
            if self._limits.wall_s is not None:
                self._calls.busy.look(self._calls.running(pid))
            self._calls.look(pid, self._wall_s, self._wall_s - self._moved_s, self._limits.hang_s)
        return self._excess(pid)

    def end(self, ended_ns: int) -> None:
        """Report the guest's clock for the last time, as it was when its program ended (ns of uptime)."""
        self._count_wall_time()
        self._virtual_ns = ended_ns
        if self._progress is not None:
            self._progress(GuestTime(ended_ns / 1e9, self._wall_s))

    def _count_wall_time(self) -> None:
        """Leave out the time for which this process, and likely the guest with it, was stopped."""
        now_s = time.monotonic()
        self._wall_s += min(now_s - self._looked_s, LONGEST_LOOK_S)
        self._looked_s = now_s

    def _is_hung(self, pid: int) -> bool:
        """Whether the guest has computed for long without virtual time: one that gets no CPU, because others have it
        all, has not."""
        still_s = self._wall_s - self._moved_s
        if still_s <= self._limits.hang_s:
            self._suspected_cpu_s = None
            return False
        used_s = self._cpu_s(pid)
        if self._suspected_cpu_s is None:
            self._suspected_cpu_s = used_s
        computed_s = used_s - self._suspected_cpu_s
        return computed_s >= SURE_FRACTION * self._limits.hang_s or still_s > PATIENCE * self._limits.hang_s

    def _excess(self, pid: int) -> str | None:
        limits, virtual_s = self._limits, self._virtual_ns / 1e9
        if self._virtual_ns >= END_OF_TIME_NS:
            return "nothing is left to happen in the guest: every program waits for another"
        if virtual_s > limits.virtual_s:
            return f"the guest is not done after {limits.virtual_s:g} s of virtual time: do programs wait for nothing?"
        if self._is_hung(pid):
            how = "stood still" if self._virtual_ns == self._moved_ns else "hardly moved"
            running = None if self._calls is None else self._calls.running(pid)
            return (
                f"the guest's clock {how} at {virtual_s:.6f} s for {self._wall_s - self._moved_s:.0f} s of wall time: "
                f"{running or 'a program'} computes for longer than that ({HANG}=SECONDS is another limit), or loops: "
                f"{REMEDY}{lacking_memory(limits.memory_bytes, touched_bytes(pid))}"
            )
        if limits.wall_s is not None and self._wall_s > limits.wall_s:
            return (
                f"the guest is not done after {limits.wall_s:g} s of wall time (at {virtual_s:.6f} s of virtual time)"
                f"{'' if self._calls is None else self._calls.busy}"
            )
        return None


def _read_clock_ns(pid: int, address: int) -> int | None:
    """Return the guest's virtual time, None while its process starts or ends."""
    content = read_memory(pid, address, 8)
    return None if content is None else int.from_bytes(content, sys.byteorder)


def lacking_memory(memory_bytes: int | None, touched_bytes: int) -> str:
    """Return, of a guest that stands still, that it may lack memory, if it has touched all of it; else nothing.

    A kernel that frees what is needed at once, and reads it again in no time, does not find out that it lacks memory.
    """
    if memory_bytes is None or touched_bytes < _ALL_OF_MEMORY * memory_bytes:
        return ""
    memory = f"{memory_bytes / (1 << 30):.1f} GiB of memory"
    return f"; or the guest ran out of its {memory}, all in use: give it more (--memory)"
