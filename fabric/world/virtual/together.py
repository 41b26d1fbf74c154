"""Runs a program in several guests that play one run: each on a core of its own, all on the same virtual time.

Guest 0's program is the run; the others' serve it, and end when it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fabric.errors import EmulationError, FabricError
from fabric.world.virtual.guest import CONTROL_DESCRIPTOR
from fabric.world.virtual.joining import REGION, Together, shared_memory

_ENDING_S = 30.0


@dataclass
class Member:
    """One of several guests, a :class:`fabric.world.virtual.guest.Companion`."""

    together: Together
    memory: Path
    _run: _Run

    @property
    def kernel_parameter(self) -> str:
        """What tells the kernel of the memory: its name in the control directory, which is the same in every run."""
        return f"iomem={REGION},/proc/self/fd/{CONTROL_DESCRIPTOR}/./{REGION}"

    @property
    def is_over(self) -> bool:
        """Whether the run is over: then the guests that serve it are ended."""
        return self.together.number > 0 and self._run.is_over.is_set()

    def must_end(self) -> bool:
        """Whether this guest must end now. Raises EmulationError if another one has failed."""
        if self._run.fault is not None and self.together.number == 0:
            raise self._run.fault
        return self.is_over


@dataclass
class _Run:
    is_over: threading.Event = field(default_factory=threading.Event)
    fault: EmulationError | None = None


def run_together(guests: int, lookahead_ns: int, run: Callable[[Member], int]) -> int:
    """Return what ``run`` returns for guest 0; it is called for each guest, for the others in threads of their own.

    Raises what it raises for guest 0, and EmulationError naming another guest that failed or ended before it.
    """
    state = _Run()
    with shared_memory(guests) as memory:
        members = [Member(Together(number, guests, lookahead_ns), memory, state) for number in range(guests)]
        others = [threading.Thread(target=_attended, args=(member, state, run)) for member in members[1:]]
        for thread in others:
            thread.start()
        try:
            return run(members[0])
        finally:
            state.is_over.set()
            for thread in others:
                thread.join(_ENDING_S)


def _attended(member: Member, state: _Run, run: Callable[[Member], int]) -> None:
    """Run one of the guests that serve; keep the reason if it ends before the run does."""
    number = member.together.number
    try:
        code = run(member)
    except FabricError as error:
        state.fault = EmulationError(f"guest {number} of the run: {error}")
        return
    except Exception as error:  # It would be lost in this thread, and guest 0 would wait for this guest.
        state.fault = EmulationError(f"guest {number} of the run: {type(error).__name__}: {error}")
        return
    if not state.is_over.is_set():
        state.fault = EmulationError(f"guest {number} of the run ended with exit code {code} before the run did")
