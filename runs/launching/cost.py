"""What a run costs the machine that plays it: wall time and CPU time, by what they are spent on, and memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from fabric.errors import ResultError
from fabric.free_memory import available_bytes
from fabric.results import COST_FILE
from fabric.world.virtual.spent import Spent, cpu_s, spent
from fabric.world.virtual.watch import GuestTime
from runs.launching.events import Event, PhaseProgress

_LOOK_S = 0.5


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time and of CPU time, and bytes of memory.

    ``setup_s``: from the start of the run's process until its first phase begins; ``phases_s``: what phases took, all
    together; ``wall_s``: until everything that was measured is in a directory. ``memory_bytes``: what the guest has
    touched of its memory; in real time by how much the memory that this machine had available fell at most, half a
    second's peaks aside, which counts what others took meanwhile.

    CPU time in virtual time, None in real time, where phases measure it by what used it, and for several guests:
    ``host_cpu_s`` of the processes around the guest, ``kernel_cpu_s`` of its kernel, ``programs_cpu_s`` of all that it
    runs; ``phases_cpu_s``: of both while phases played.
    """

    setup_s: float
    phases_s: float
    wall_s: float
    memory_bytes: int
    host_cpu_s: float | None = None
    kernel_cpu_s: float | None = None
    programs_cpu_s: float | None = None
    phases_cpu_s: float | None = None

    def as_json(self) -> dict[str, float]:
        """Return what is known of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def write(self, directory: Path) -> None:
        """Write it into a run's directory, which has none yet. Raises ResultError if that cannot be written."""
        try:
            with (directory / COST_FILE).open("x") as file:
                file.write(json.dumps(self.as_json(), indent=1) + "\n")
        except OSError as error:
            raise ResultError(f"{directory / COST_FILE}: cannot be written ({error})") from error


class CostMeter:
    """Measures a run for the time of a block, in which each of its events is reported to it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, guests: int = 1) -> None:
        self._clock, self._guests = clock, guests
        self._started = clock()
        self._first_phase: float | None = None
        self._phase: float | None = None
        self._phases_s = 0.0
        self._own_cpu_s = time.process_time()
        self._guest: _GuestMeter | None = None
        self._had_bytes = self._least_bytes = available_bytes()
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> CostMeter:
        self._looking.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._least_bytes = min(self._least_bytes, available_bytes())

    def report(self, event: Event) -> None:
        """Note which guest plays, and when a phase begins (a fraction of 0) and ends (of 1)."""
        if isinstance(event, GuestTime) and event.process and self._guest is None and self._guests == 1:
            self._guest = _GuestMeter(event)
        if self._guest is not None:
            self._guest.look()
        if isinstance(event, PhaseProgress):
            self._note(event.fraction)

    def _note(self, fraction: float) -> None:
        now = self._clock()
        if self._phase is None:
            self._phase = now
            if self._guest is not None:
                self._guest.begin()
        if self._first_phase is None:
            self._first_phase = now
        if fraction >= 1:
            self._phases_s += now - self._phase
            self._phase = None
            if self._guest is not None:
                self._guest.end()

    def cost(self) -> Cost:
        """Return the cost up to now."""
        now = self._clock()
        cost = Cost(
            setup_s=(now if self._first_phase is None else self._first_phase) - self._started,
            phases_s=self._phases_s,
            wall_s=now - self._started,
            memory_bytes=self._had_bytes - self._least_bytes,
        )
        return cost if self._guest is None else self._guest.added_to(cost, time.process_time() - self._own_cpu_s)


class _GuestMeter:
    """What a guest has used since it was first heard of, and while phases played."""

    def __init__(self, heard: GuestTime) -> None:
        self._process, self._watched_by = heard.process, heard.watched_by
        self._used, self._watching_s = Spent(), 0.0
        self._at_begin = self._in_phases = 0.0

    @property
    def _cpu_s(self) -> float:
        return self._used.kernel_cpu_s + self._used.programs_cpu_s

    def look(self) -> None:
        """See what it has used; what it had used by the last look stays true when it has ended."""
        if (used := spent(self._process)) is not None:  # One that ends has no memory any more.
            self._used = replace(used, memory_bytes=max(used.memory_bytes, self._used.memory_bytes))
        self._watching_s = cpu_s(self._watched_by) or self._watching_s

    def begin(self) -> None:
        """Begin to count for phases."""
        self._at_begin = self._cpu_s

    def end(self) -> None:
        """End that."""
        self._in_phases += self._cpu_s - self._at_begin

    def added_to(self, cost: Cost, own_cpu_s: float) -> Cost:
        """Return a cost with the guest's; ``own_cpu_s``: of this process."""
        return replace(
            cost,
            memory_bytes=self._used.memory_bytes,
            host_cpu_s=round(own_cpu_s + self._watching_s, 2),
            kernel_cpu_s=round(self._used.kernel_cpu_s, 2),
            programs_cpu_s=round(self._used.programs_cpu_s, 2),
            phases_cpu_s=round(self._in_phases, 2),
        )
