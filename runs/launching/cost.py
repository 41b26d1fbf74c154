"""What a run costs the machine that plays it: wall time, by what it is spent on, and memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from fabric.errors import ResultError
from fabric.free_memory import available_bytes
from fabric.results import COST_FILE
from runs.launching.events import Event, PhaseProgress

_LOOK_S = 0.5


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time and bytes of memory.

    ``setup_s``: from the start of the run's process until its first phase begins; ``phases_s``: what phases took, all
    together; ``wall_s``: until everything that was measured is in a directory. ``memory_bytes``: by how much the memory
    that this machine had available fell at most, half a second's peaks aside. It counts what others took meanwhile.
    """

    setup_s: float
    phases_s: float
    wall_s: float
    memory_bytes: int

    def write(self, directory: Path) -> None:
        """Write it into a run's directory, which has none yet. Raises ResultError if that cannot be written."""
        try:
            with (directory / COST_FILE).open("x") as file:
                file.write(json.dumps(asdict(self), indent=1) + "\n")
        except OSError as error:
            raise ResultError(f"{directory / COST_FILE}: cannot be written ({error})") from error


class CostMeter:
    """Measures a run for the time of a block, in which each of its events is reported to it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._first_phase: float | None = None
        self._phase: float | None = None
        self._phases_s = 0.0
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
        """Note when a phase begins (a fraction of 0) and ends (of 1)."""
        if not isinstance(event, PhaseProgress):
            return
        now = self._clock()
        if self._phase is None:
            self._phase = now
        if self._first_phase is None:
            self._first_phase = now
        if event.fraction >= 1:
            self._phases_s += now - self._phase
            self._phase = None

    def cost(self) -> Cost:
        """Return the cost up to now."""
        now = self._clock()
        return Cost(
            setup_s=(now if self._first_phase is None else self._first_phase) - self._started,
            phases_s=self._phases_s,
            wall_s=now - self._started,
            memory_bytes=self._had_bytes - self._least_bytes,
        )
