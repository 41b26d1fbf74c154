"""Looks at a running guest's clock from outside: says how far it is, and when to give up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LEAST_UPTIME_S = 12.0
"""Open vSwitch counts the CPU cores at most every 10 s of uptime, from 0: started sooner it believes in none, runs no
handler threads and drops every first packet. Waiting costs nothing."""
PROGRESS_S = 0.5
LONGEST_LOOK_S = 1.0
END_OF_TIME_NS = 1 << 62
"""Where the clock jumps to when no event is left."""


@dataclass(frozen=True)
class Limits:
    """When a run that does not end by itself is ended."""

    hang_s: float = 120.0
    """Wall time without virtual time: a loop that neither sleeps nor reads the clock, or a very long computation."""
    wall_s: float | None = None
    virtual_s: float = 86_400.0
    """Programs that wait for each other for ever let virtual time fly; this ends it."""


@dataclass(frozen=True)
class GuestTime:
    """How far a run is."""

    virtual_s: float
    """The guest's uptime. The program starts at LEAST_UPTIME_S."""
    wall_s: float

    @property
    def ratio(self) -> float:
        """Virtual seconds of the program a wall-clock second."""
        return max(0.0, self.virtual_s - LEAST_UPTIME_S) / self.wall_s if self.wall_s > 0 else 0.0


Progress = Callable[[GuestTime], None]


class Watch:
    """Looks at the guest's clock from outside, tells of it, and finds out when to give up."""

    def __init__(self, limits: Limits, progress: Progress | None, clock_address: int) -> None:
        self._limits, self._progress, self._clock_address = limits, progress, clock_address
        self._looked_s = time.monotonic()
        self._wall_s = self._moved_s = self._told_s = 0.0
        self._virtual_ns = 0

    def look(self, pid: int) -> str | None:
        """Return why to end the guest, if there is a reason."""
        self._count_wall_time()
        virtual_ns = _read_clock_ns(pid, self._clock_address)
        if virtual_ns is not None and virtual_ns != self._virtual_ns:
            self._virtual_ns, self._moved_s = virtual_ns, self._wall_s
        if self._progress is not None and self._wall_s - self._told_s >= PROGRESS_S:
            self._told_s = self._wall_s
            self._progress(GuestTime(self._virtual_ns / 1e9, self._wall_s))
        return self._excess()

    def _count_wall_time(self) -> None:
        """Leave out the time for which this process, and likely the guest with it, was stopped."""
        now_s = time.monotonic()
        self._wall_s += min(now_s - self._looked_s, LONGEST_LOOK_S)
        self._looked_s = now_s

    def _excess(self) -> str | None:
        limits, virtual_s = self._limits, self._virtual_ns / 1e9
        if self._virtual_ns >= END_OF_TIME_NS:
            return "nothing is left to happen in the guest: every program waits for another"
        if virtual_s > limits.virtual_s:
            return f"the guest is not done after {limits.virtual_s:g} s of virtual time: programs that wait for ever?"
        if self._wall_s - self._moved_s > limits.hang_s:
            return (
                f"the guest's clock stood still at {virtual_s:.6f} s for {limits.hang_s:g} s of wall time: "
                "a program loops without sleeping, or computes for longer than that"
            )
        if limits.wall_s is not None and self._wall_s > limits.wall_s:
            return (
                f"the guest is not done after {limits.wall_s:g} s of wall time (at {virtual_s:.6f} s of virtual time)"
            )
        return None


def _read_clock_ns(pid: int, address: int) -> int | None:
    """Return the guest's virtual time, None while its process starts or ends."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            found = memory.read(8)
    except OSError:
        return None
    return int.from_bytes(found, sys.byteorder) if len(found) == 8 else None  # Its memory goes before its process.
