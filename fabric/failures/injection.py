"""What carries out failures: the protocol of injectors, and those of programs and disks, through jobs' own handles.

One clock plays a schedule: every injector counts from the same ``time.monotonic()``. Links have a process of their own
(:mod:`fabric.failures.injector`), since cuts must come on time and reach into namespaces; what happens to programs and
disks is done in a thread of the run, since only the run has their handles.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fabric.errors import FabricError, TrafficError
from fabric.failures.report import Change, FaultReport
from fabric.failures.schedule import FailureEvent, FailureSchedule, State
from fabric.failures.targets import (
    KILLED,
    DiskState,
    DiskTarget,
    FailingPrograms,
    GpuState,
    GpuTarget,
    HasDisks,
    HasGpus,
    HasPrograms,
    ProgramState,
    ProgramTarget,
)

_END_TIMEOUT_S = 120.0
"""How long what is being done to a target may take once a schedule is to end: a storage job that halts answers late."""
TURN_S = 0.01
"""How long slow programs run and stand still, together."""


class Injector(Protocol):
    """Carries out what happens to targets of one kind. Each schedule takes :meth:`prepare`, :meth:`play`,
    :meth:`restore` and :meth:`release`, in this order. All raise FabricErrors."""

    def prepare(self, schedule: FailureSchedule) -> None:
        """Get everything ready, while nothing is sent."""

    def play(self, started: float) -> None:
        """Let the schedule begin at ``started`` (``time.monotonic()``); returns at once."""

    def restore(self) -> FaultReport:
        """End the schedule wherever it is, make whole what can be, and return what happened."""

    def release(self) -> None:
        """Take away what :meth:`prepare` made, once nothing is sent and all is counted."""

    def abandon(self) -> None:
        """Do what is left of both, wherever a schedule is."""


@dataclass(frozen=True)
class Hit:
    """What a change of a target met: the names of jobs, and what else there is to say of it."""

    jobs: tuple[str, ...]
    detail: str = ""


class Effects(Protocol):
    """How targets of one kind come into a state."""

    def apply(self, target: Any, state: Any) -> Hit | None:
        """Bring a target into a state; return what that met, None if there is no such target, or it is gone."""

    def mended(self, state: Any) -> State | None:
        """Return the state of a target after its schedule has ended; None if it stays as it is."""


class ThreadInjector:
    """An :class:`Injector` that brings targets into their states in a thread of this process. ``hit`` hears of each
    change at once."""

    def __init__(self, effects: Effects, hit: Callable[[Change], None] = lambda change: None) -> None:
        self._effects = effects
        self._hit = hit
        self._events: tuple[FailureEvent, ...] = ()
        self._last: dict[Hashable, FailureEvent] = {}
        self._changes: list[Change] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def prepare(self, schedule: FailureSchedule) -> None:
        """Take a schedule."""
        self._events = schedule.events
        self._last, self._changes, self._error = {}, [], None
        self._over.clear()

    def play(self, started: float) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True, name="failures")
        self._thread.start()

    def _run(self, started: float) -> None:
        try:
            for event in self._events:
                due = started + event.at_s
                if self._over.wait(max(0.0, due - time.monotonic())):
                    return
                self._apply(event, due)
        except Exception as error:  # Whatever it is, restore() raises it where the run sees it.
            self._error = error

    def _apply(self, event: FailureEvent, due: float) -> None:
        asked = time.monotonic()
        hit = self._effects.apply(event.target, event.state)
        if hit is None:
            return
        self._last[event.target] = event
        done = time.monotonic()
        change = Change(event.target, event.state, due, asked, done, event.causes, hit.detail, hit.jobs)
        self._changes.append(change)
        self._hit(change)

    def restore(self) -> FaultReport:
        """End it. Raises FabricError if something could not be done, TrafficError if it is not done in time."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_S)
            if self._thread.is_alive():
                raise TrafficError(f"failures: waited {_END_TIMEOUT_S:g} s for the last to be carried out: no answer")
            self._thread = None
        self._mend()
        if self._error is not None:
            raise self._error
        return FaultReport(tuple(self._changes))

    def _mend(self) -> None:
        for event in list(self._last.values()):
            state = self._effects.mended(event.state)
            if state is not None:
                now = time.monotonic()
                try:
                    self._apply(FailureEvent(0.0, event.target, state, event.causes), now)
                except FabricError as error:  # Others are mended all the same.
                    self._error = self._error or error

    def release(self) -> None:
        """There is nothing to take away."""

    def abandon(self) -> None:
        """End it."""
        if self._thread is not None:
            self.restore()


# Programs ------------------------------------------------------------------------------------------------------------


class ProgramEffects:
    """Stops, slows and kills the programs of jobs."""

    def __init__(self, jobs: Iterable[object]) -> None:
        self._jobs = [job for job in jobs if isinstance(job, HasPrograms)]
        self._wanted: dict[ProgramTarget, ProgramState] = {}
        self._now: dict[tuple[int, str], ProgramState] = {}
        self._turns: dict[tuple[int, str], _Turns] = {}

    def apply(self, target: ProgramTarget, state: ProgramState) -> Hit | None:
        """Bring programs into a state, or into what that and others that are wanted of them come to."""
        self._wanted[target] = state
        met = [job.name for job in self._jobs if target.covers(job.name, target.host) and self._bring(job, target.host)]
        return Hit(tuple(met)) if met else None

    def mended(self, state: ProgramState) -> State | None:
        """Return that it runs as before, unless it was killed or does."""
        is_for_good = state.is_killed and not state.comes_back
        return None if is_for_good or state == ProgramState() else ProgramState()

    def _bring(self, job: HasPrograms, host: str) -> bool:
        """Bring a job's programs on a host into the state that all targets come to; return whether it has any."""
        wanted = ProgramState.composed([one for of, one in self._wanted.items() if of.covers(job.name, host)])
        programs = [group for group in job.failing_programs if host in group.hosts or self._is_held(group, host)]
        for group in programs:
            self._set(group, host, wanted)
        return bool(programs)

    def _is_held(self, group: FailingPrograms, host: str) -> bool:
        """Return whether programs are stopped or slow: those of a job that begins again may be gone for a moment."""
        return self._now.get((id(group), host), KILLED) not in (KILLED, ProgramState())

    def _set(self, group: FailingPrograms, host: str, wanted: ProgramState) -> None:
        key = (id(group), host)
        if wanted == self._now.get(key, ProgramState()):
            return
        if (turns := self._turns.pop(key, None)) is not None:
            turns.end()
        is_dead = self._now.get(key, ProgramState()).is_killed
        if is_dead and not wanted.is_killed:
            group.restart_on(host)
        if wanted.is_killed:
            if not is_dead:
                group.kill_on(host)
        elif wanted.share == 0:
            group.stop_on(host)
        else:
            group.resume_on(host)
            if wanted.share < 1:
                self._turns[key] = _Turns(group, host, wanted.share)
        self._now[key] = wanted


class _Turns:
    """A thread that lets programs run and stand still in turns."""

    def __init__(self, group: FailingPrograms, host: str, share: float) -> None:
        self._group, self._host, self._share = group, host, share
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="slow programs")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._share * TURN_S):
            try:
                self._group.stop_on(self._host)
                self._over.wait((1 - self._share) * TURN_S)
                self._group.resume_on(self._host)
            except TrafficError:
                return  # They have gone; whoever waits for them says so.

    def end(self) -> None:
        """End it; the programs run."""
        self._over.set()
        self._thread.join()


# Disks ---------------------------------------------------------------------------------------------------------------


class DiskEffects:
    """Lets disks of jobs fail, be slow and hold wrong data; ``seed`` chooses which chunks."""

    def __init__(self, jobs: Iterable[object], seed: int) -> None:
        self._jobs = [job for job in jobs if isinstance(job, HasDisks)]
        self._seed = seed
        self._wanted: dict[DiskTarget, DiskState] = {}
        self._now: dict[tuple[str, str, int], DiskState] = {}

    def apply(self, target: DiskTarget, state: DiskState) -> Hit | None:
        """Bring disks into a state, or into what that and others that are wanted of them come to."""
        self._wanted[target] = state
        met: list[str] = []
        rotten: list[str] = []
        for job in self._jobs:
            numbers = [number for number in range(job.disks_on(target.host)) if target.covers(target.host, number)]
            for number in numbers:
                rotten += self._set(job, target.host, number)
            met += [job.name] if numbers else []
        return Hit(tuple(met), ", ".join(rotten)) if met else None

    def mended(self, state: DiskState) -> State | None:
        """Return that it is as before but for what is rotten, unless it is."""
        left = DiskState(rotten=state.rotten)
        return None if state == left else left

    def _set(self, job: HasDisks, host: str, number: int) -> Sequence[str]:
        """Bring a disk into the state that all targets come to; return which chunks have become rotten."""
        wanted = DiskState.composed([one for of, one in self._wanted.items() if of.covers(host, number)])
        key = (job.name, host, number)
        before, self._now[key] = self._now.get(key, DiskState()), wanted
        if (before.fails, before.factor, before.added_s) != (wanted.fails, wanted.factor, wanted.added_s):
            job.set_disk(host, number, wanted)
        more = wanted.rotten - before.rotten
        if more <= 0:
            return ()
        return job.rot(host, number, more, f"{self._seed}/rot/{host}/{number}/{wanted.rotten}")


# GPUs ----------------------------------------------------------------------------------------------------------------


class GpuEffects:
    """Lets GPUs of jobs' nodes have errors."""

    def __init__(self, jobs: Iterable[object]) -> None:
        self._jobs = [job for job in jobs if isinstance(job, HasGpus)]
        self._had: dict[GpuTarget, GpuState] = {}

    def apply(self, target: GpuTarget, state: GpuState) -> Hit | None:
        """Let a GPU have the errors of a state that it has not had yet."""
        before = self._had.get(target, GpuState())
        fresh, goes_wrong = state.xids[len(before.xids) :], state.wrong > before.wrong
        self._had[target] = state
        met = [job for job in self._jobs if target.number < job.gpus_on(target.host)]
        for job in met:
            for xid in fresh:
                job.gpu_error(target.host, target.number, xid)
            if goes_wrong:
                job.gpu_computes_wrong(target.host, target.number)
        return Hit(tuple(job.name for job in met)) if met and (fresh or goes_wrong) else None

    def mended(self, state: GpuState) -> State | None:
        """Return that errors stay as they are told."""
        return None
