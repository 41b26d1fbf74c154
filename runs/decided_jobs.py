"""Jobs that come, pause, resume and go by decision while a phase plays: what a scheduler has of a running timeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue
from typing import Protocol, runtime_checkable

from fabric.errors import FabricError, TrafficError
from runs.known_tables import of_job
from traffic.job import Job, Records

HALT_S = 900.0
"""How long the control of a job may take to halt it: a collective ends its step first, which may take minutes."""


@dataclass(frozen=True)
class Played:
    """When a job played: when it was told to begin, when it was told to halt and when it had ended, all
    ``time.monotonic()``. Its load plays until it is told to halt; what is under way then still ends.

    ``failed``: why it could not go on, if failures that were asked for have hit it, and which; its rows are missing.
    """

    job: Job
    began: float
    halted: float
    ended: float
    failed: str = ""


class JobState(str, Enum):
    """Where a job is in its life. READY: its programs are up and connected, and it plays no load, not yet or no
    more."""

    STARTING = "starting"
    READY = "ready"
    BEGINNING = "beginning"
    PLAYING = "playing"
    HALTING = "halting"
    CLOSING = "closing"
    CLOSED = "closed"


@runtime_checkable
class Decider(Protocol):
    """Decides which jobs play during a phase."""

    def decide(self, jobs: DecidedJobs) -> None:
        """Give orders to jobs, from the start of the phase on, in a thread of its own.

        Returns once there is nothing more to decide; at the latest when :meth:`DecidedJobs.wait` says that the phase
        is over. What it raises ends the run.
        """


class DecidedJobs:
    """The jobs of a decider in a phase. Orders return at once: each job carries out its own, one after the other, in a
    thread of its own, and none waits for another job.

    At the end of the phase jobs that play are halted, and those that :meth:`start` started are closed. Orders raise
    TrafficError if they do not follow on those given before, or if a name is another job's.
    """

    def __init__(self, phase: str, decider: Decider, taken: Collection[str] = ()) -> None:
        self._phase = phase
        self._decider = decider
        self._taken = frozenset(taken)
        self._controls: dict[str, _Control] = {}
        self._changed = threading.Condition()
        self._changes = self._seen = 0
        self._over = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._origin = 0.0

    # For the decider.

    @property
    def now_s(self) -> float:
        """The time in the phase, in seconds."""
        return time.monotonic() - self._origin

    @property
    def states(self) -> Mapping[str, JobState]:
        """The state of each job by its name; closed ones are among them."""
        return {name: control.state for name, control in self._controls.items()}

    def wait(self, until_s: float | None = None) -> bool:
        """Return at a time of the phase, in seconds (None: at no certain one), or as soon as the state of a job has
        changed since the last call, or the phase is over: whether it goes on."""
        with self._changed:
            left_s = None if until_s is None else max(0.0, self._origin + until_s - time.monotonic())
            self._changed.wait_for(lambda: self._over or self._changes != self._seen, left_s)
            self._seen = self._changes
            return not self._over

    def wait_until(self, until_s: float) -> bool:
        """Return at a time of the phase, in seconds, or as soon as the phase is over: whether it goes on."""
        while self.now_s < until_s:
            if not self.wait(until_s):
                return False
        return True

    def reach(self, state: JobState, *names: str) -> bool:
        """Return once jobs are in a state, or the phase is over: whether it goes on. Raises what has made one fail."""
        while any(self.states[name] is not state for name in names):
            self.verify()
            if not self.wait():
                return False
        return True

    def start(self, job: Job) -> None:
        """Fork the programs of a job and connect them: it comes."""
        self._add(job, is_started=False).order(_Order.START)

    def take(self, job: Job) -> None:
        """Order a job from now on that somebody else has started, and will close."""
        self._add(job, is_started=True)

    def play(self, name: str) -> None:
        """Begin the load of a job, for the first time or again."""
        self._control(name).order(_Order.PLAY)

    def halt(self, name: str) -> None:
        """End the load of a job for now: its programs and their connections stay."""
        self._control(name).order(_Order.HALT)

    def close(self, name: str) -> None:
        """End the programs of a job that does not play: it goes."""
        self._control(name).order(_Order.CLOSE)

    def _add(self, job: Job, is_started: bool) -> _Control:
        if job.name in self._taken or job.name in self._controls:
            raise TrafficError(f"job {job.name}: the phase {self._phase} has another of this name; give it its own")
        control = self._controls[job.name] = _Control(job, self._phase, is_started, self._tell_change)
        return control

    def _control(self, name: str) -> _Control:
        if name not in self._controls:
            known = ", ".join(self._controls) or "none"
            raise TrafficError(f"job {name}: is not one of this decider's ({known}); start or take it first")
        return self._controls[name]

    def _tell_change(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    # For the timeline.

    def begin(self, origin: float) -> None:
        """Let the decider decide from now on; ``origin``: the begin of the phase (``time.monotonic()``)."""
        self._origin = origin
        self._thread.start()

    def _run(self) -> None:
        try:
            self._decider.decide(self)
        except Exception as error:  # Whatever it is, verify() or end() raises it where the run sees it.
            self._error = error

    def verify(self) -> None:
        """Raise what has made the decider or a job fail."""
        if self._error is not None:
            raise self._error
        for control in list(self._controls.values()):
            control.verify()

    def tell_end(self) -> None:
        """Let the decider return now."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def end(self) -> tuple[Records, list[Played]]:
        """Wait for the decider, halt and close what still plays, and return all rows and when each job played. Raises
        TrafficError as jobs do, and if the decider does not return."""
        if self._thread.ident is not None:
            self._thread.join(HALT_S)
        if self._thread.is_alive():
            raise TrafficError(f"phase {self._phase}: waited {HALT_S:g} s for its decider to return, and it has not")
        self.verify()
        for control in self._controls.values():
            control.tell_end()
        records, played = Records(), []
        for control in self._controls.values():
            found, times = control.end()
            records.extend(found)
            played += times
        return records, played

    def abandon(self) -> None:
        """Close what :meth:`start` started: the phase has failed."""
        self.tell_end()
        for control in list(self._controls.values()):
            control.abandon()


class _Order(Enum):
    """What a job is told: the state that it must be in, and those while it carries the order out and afterwards."""

    START = (JobState.STARTING, JobState.STARTING, JobState.READY)
    PLAY = (JobState.READY, JobState.BEGINNING, JobState.PLAYING)
    HALT = (JobState.PLAYING, JobState.HALTING, JobState.READY)
    CLOSE = (JobState.READY, JobState.CLOSING, JobState.CLOSED)


class _Control:
    """The thread in which one job carries out its orders."""

    def __init__(self, job: Job, phase: str, is_started: bool, tell_change: Callable[[], None]) -> None:
        self.state = self._due = JobState.READY if is_started else JobState.STARTING
        self._job = job
        self._phase = phase
        self._is_owned = not is_started
        self._tell_change = tell_change
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._records = Records()
        self._played: list[Played] = []
        self._error: Exception | None = None
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def order(self, order: _Order) -> None:
        """Carry out an order after those given before. Raises TrafficError if it cannot follow on them."""
        needed, _, after = order.value
        if self._due is not needed:
            words = f"by then it is {self._due.value}, and must be {needed.value}"
            raise TrafficError(f"job {self._job.name}: cannot {order.name.lower()}: {words}")
        self._due = after
        self._orders.put(order)

    def _run(self) -> None:
        try:
            while (order := self._orders.get()) is not None and not self._is_abandoned:
                _, meanwhile, after = order.value
                self._enter(meanwhile)
                self._carry_out(order)
                self._enter(after)
        except Exception as error:  # Whatever it is, verify() or end() raises it where the run sees it.
            self._error = error
            self._tell_change()

    def _enter(self, state: JobState) -> None:
        if self.state is not state:
            self.state = state
            self._tell_change()

    def _carry_out(self, order: _Order) -> None:
        now = time.monotonic()
        if order is _Order.START:
            self._job.start()
        elif order is _Order.PLAY:
            self._played.append(Played(self._job, now, now, now))
            self._job.play(self._phase)
        elif order is _Order.HALT:
            self._records.extend(of_job(self._job.halt(), self._job.name))
            self._played[-1] = Played(self._job, self._played[-1].began, now, time.monotonic())
        else:
            self._job.close()

    def verify(self) -> None:
        """Raise what has made the job fail."""
        if self._error is not None:
            raise self._error

    def tell_end(self) -> None:
        """Let the job halt, if it plays, and end, if it was started here; then no more."""
        if self._due is JobState.PLAYING:
            self.order(_Order.HALT)
        if self._due is JobState.READY and self._is_owned:
            self.order(_Order.CLOSE)
        self._orders.put(None)

    def end(self) -> tuple[Records, list[Played]]:
        """Wait until all is done; return the job's rows and when it played."""
        self._thread.join(HALT_S)
        if self._thread.is_alive():
            raise TrafficError(f"job {self._job.name}: waited {HALT_S:g} s for it to end, and it is {self.state.value}")
        self.verify()
        return self._records, self._played

    def abandon(self) -> None:
        """Close the job, if it was started here, whatever it does: its thread sees its programs go, and carries out no
        more orders."""
        self._is_abandoned = True
        self._orders.put(None)
        if self._is_owned and self.state is not JobState.CLOSED:
            with suppress(FabricError):  # What has made the phase fail is the cause of this, too.
                self._job.close()
