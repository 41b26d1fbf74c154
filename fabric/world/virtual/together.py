"""Runs a program in several guests that play one run, all on the same virtual time.

Guest 0's program is the run; the others' serve it, and end when it has ended. They may be on several machines
(:mod:`fabric.world.virtual.machines`); here are those of one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from fabric.errors import EmulationError, FabricError
from fabric.world.virtual.guest import CONTROL_DESCRIPTOR
from fabric.world.virtual.joining import REGION, Together, shared_memory

_ENDING_S = 30.0


@dataclass(frozen=True)
class Share:
    """The guests of this machine, ``own``, among all of a run, and by how much one may be ahead of another."""

    guests: int
    own: tuple[int, ...]
    lookahead_ns: int

    def together(self, number: int) -> Together:
        """Return what one of them is."""
        shares_cores = len(self.own) > len(os.sched_getaffinity(0))
        return Together(number, self.guests, self.lookahead_ns, shares_cores)


@dataclass
class RunState:
    """Whether a run is over, and why it cannot go on, if so."""

    is_over: threading.Event = field(default_factory=threading.Event)
    fault: EmulationError | None = None
    on_fault: Callable[[str], None] = lambda reason: None

    def fail(self, fault: EmulationError) -> None:
        """Let the run end because of a fault; the first one counts."""
        if self.fault is None:
            self.fault = fault
            self.on_fault(str(fault))


@dataclass
class Member:
    """One of several guests, a :class:`fabric.world.virtual.guest.Companion`."""

    together: Together
    memory: Path
    _state: RunState

    @property
    def kernel_parameter(self) -> str:
        """What tells the kernel of the memory: its name in the control directory, which is the same in every run."""
        return f"iomem={REGION},/proc/self/fd/{CONTROL_DESCRIPTOR}/./{REGION}"

    @property
    def is_over(self) -> bool:
        """Whether the run is over: then the guests that serve it are ended."""
        return self.together.number > 0 and self._state.is_over.is_set()

    def must_end(self) -> bool:
        """Whether this guest must end now. Raises EmulationError if another one has failed."""
        if self._state.fault is not None and self.together.number == 0:
            raise self._state.fault
        return self.is_over


Play = Callable[[Member], int]
"""Runs one guest, and returns its exit code."""
Beside = Callable[[Path, RunState], AbstractContextManager[None]]
"""What else takes part in a run, given the memory of its guests, while they play."""


def run_together(
    share: Share, run: Play, state: RunState | None = None, beside: Beside = lambda memory, state: nullcontext()
) -> int:
    """Return what ``run`` returns for guest 0; it is called for each guest, for the others in threads of their own.

    Raises what it raises for guest 0, and EmulationError naming another guest that failed or ended before it.
    """
    state = state or RunState()
    with shared_memory(share.guests) as memory, beside(memory, state), _serving(share, memory, state, run):
        return run(Member(share.together(0), memory, state))


def serve_together(share: Share, run: Play, state: RunState, beside: Beside) -> None:
    """Run guests other than guest 0 until the run is over."""
    with shared_memory(share.guests) as memory, beside(memory, state), _serving(share, memory, state, run):
        state.is_over.wait()


@contextmanager
def _serving(share: Share, memory: Path, state: RunState, run: Play) -> Iterator[None]:
    """Run the guests that serve, each in a thread, for the time of a block, at whose end the run is over."""
    members = [Member(share.together(number), memory, state) for number in share.own if number > 0]
    threads = [threading.Thread(target=_attended, args=(member, state, run)) for member in members]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        state.is_over.set()
        for thread in threads:
            thread.join(_ENDING_S)


def _attended(member: Member, state: RunState, run: Play) -> None:
    """Run one of the guests that serve; keep the reason if it ends before the run does."""
    number = member.together.number
    try:
        code = run(member)
    except FabricError as error:
        state.fail(EmulationError(f"guest {number} of the run: {error}"))
        return
    except Exception as error:  # It would be lost in this thread, and guest 0 would wait for this guest.
        state.fail(EmulationError(f"guest {number} of the run: {type(error).__name__}: {error}"))
        return
    if not state.is_over.is_set():
        state.fail(EmulationError(f"guest {number} of the run ended with exit code {code} before the run did"))
