"""Jobs that come and go within a phase: in windows that are known beforehand, or by decision while it plays.

Each is controlled by a thread of its own, apart from those that play the whole phase.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fabric.errors import TrafficError
from runs.decided_jobs import HALT_S, DecidedJobs, Decider, Played
from runs.known_tables import of_job
from traffic.job import FiniteJob, Job, Records, WatchedJob

DoneTo = Callable[[str], str]
"""Returns what failures have done to a job of some name, in words; nothing if they have done nothing."""


@dataclass(frozen=True)
class JobWindow:
    """When a job plays: seconds from the start of a phase; ``until_s`` None: to its end."""

    job: Job
    from_s: float = 0.0
    until_s: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole phase."""
        return self.from_s == 0 and self.until_s is None


@dataclass(frozen=True)
class PlayedTimeline:
    """What all jobs did: their rows, when each played, and when the first of those that played to the end was told to
    halt (``time.monotonic()``): from then on not all of the load plays."""

    records: Records
    played: list[Played]
    halted: float


class Timeline:
    """Plays jobs in their windows. Those of the whole phase begin first and end last, in their order, in the caller's
    thread; the others have a thread each, so that none waits for another to end its step. ``decider``: brings more of
    them from when those of the whole phase have begun.

    A job that fails after failures have hit it, as ``done_to`` says, is not a fault of the run: that is its result.
    """

    def __init__(
        self,
        phase: str,
        windows: Sequence[JobWindow],
        decider: Decider | None = None,
        done_to: DoneTo = lambda job: "",
    ) -> None:
        self._phase = phase
        self._done_to = done_to
        self._whole = [window.job for window in windows if window.is_whole]
        self._began: list[float] = []
        self._controls = [_Control(phase, found, done_to) for found in _by_job(windows)]
        self.names = tuple(dict.fromkeys(window.job.name for window in windows))
        """The names of the jobs that are known beforehand."""
        self._decided = None if decider is None else DecidedJobs(phase, decider, self.names)
        self._failed: dict[str, str] = {}

    def begin(self) -> float:
        """Begin, and return when: all that play the whole phase do by now. Raises TrafficError."""
        for job in self._whole:
            self._began.append(time.monotonic())
            _play(job, self._phase, self._done_to)
        began = time.monotonic()
        for control in self._controls:
            control.start(began)
        if self._decided is not None:
            self._decided.begin(began)
        return began

    def verify(self) -> None:
        """Raise what has made a job fail so far."""
        for job in self._whole:
            if isinstance(job, WatchedJob) and job.name not in self._failed:
                try:
                    job.verify()
                except TrafficError as error:
                    self._failed[job.name] = _excused(job, error, self._done_to)
        for control in self._controls:
            control.verify()
        if self._decided is not None:
            self._decided.verify()

    def finish(self) -> None:
        """Return once jobs that have a fixed amount to do have done it. Raises TrafficError as they do."""
        for job in self._whole:
            if isinstance(job, FiniteJob):
                try:
                    job.finish()
                except TrafficError as error:
                    self._failed[job.name] = _excused(job, error, self._done_to)

    def end(self) -> PlayedTimeline:
        """End all jobs; return their rows and when each played. Raises TrafficError as they do."""
        records, played, first_halted = Records(), [], time.monotonic()
        several: list[_Control | DecidedJobs] = [*self._controls, *([] if self._decided is None else [self._decided])]
        for one in several:
            one.tell_end()
        for one in several:
            found, times = one.end()
            records.extend(found)
            played += times
        for job, began in zip(self._whole, self._began, strict=True):
            found, last = _halted(job, began, self._done_to)
            records.extend(found)
            played.append(replace(last, failed=self._failed.get(job.name, last.failed)))
        return PlayedTimeline(records, played, first_halted)

    def abandon(self) -> None:
        """Close the jobs that were started while the phase played, since it has failed. Those of windows are closed by
        who made them."""
        if self._decided is not None:
            self._decided.abandon()


def _play(job: Job, phase: str, done_to: DoneTo) -> None:
    """Let a job play. Raises TrafficError, naming what failures have done to it before."""
    try:
        job.play(phase)
    except TrafficError as error:
        if not (words := done_to(job.name)):
            raise
        raise TrafficError(
            f"job {job.name}: cannot play phase {phase}, after {words}: {error}; let that happen in its last phase "
            "only: later in a phase than the others last, or for a time"
        ) from error


def _halted(job: Job, began: float, done_to: DoneTo) -> tuple[Records, Played]:
    """Halt a job; return its rows and when it played. Raises TrafficError as it does, unless failures have hit it."""
    halted = time.monotonic()
    try:
        records, failed = of_job(job.halt(), job.name), ""
    except TrafficError as error:
        records, failed = Records(), _excused(job, error, done_to)
    return records, Played(job, began, halted, time.monotonic(), failed)


def _excused(job: Job, error: TrafficError, done_to: DoneTo) -> str:
    """Return why a job failed that failures have hit. Raises the error if none has."""
    if not (words := done_to(job.name)):
        raise error
    return f"{error}; asked for: {words}"


def _by_job(windows: Sequence[JobWindow]) -> Iterator[list[JobWindow]]:
    """Yield the windows of each job that comes or goes, in their order. Raises TrafficError if two of one overlap."""
    names = dict.fromkeys(window.job.name for window in windows if not window.is_whole)
    for name in names:
        found = sorted((one for one in windows if one.job.name == name), key=lambda one: one.from_s)
        for one, following in pairwise(found):
            if one.until_s is None or one.until_s > following.from_s:
                raise TrafficError(
                    f"job {name}: is to play again at {following.from_s:g} s, before it has ended; end it sooner"
                )
        yield found


class _Control:
    """The thread that lets one job begin and end."""

    def __init__(self, phase: str, windows: Sequence[JobWindow], done_to: DoneTo) -> None:
        self._phase = phase
        self._done_to = done_to
        self._windows = tuple(windows)
        self._over = threading.Event()
        self._records = Records()
        self._played: list[Played] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._origin = 0.0

    def start(self, origin: float) -> None:
        """Begin to count from ``origin``."""
        self._origin = origin
        self._thread.start()

    def _run(self) -> None:
        try:
            for window in self._windows:
                if self._wait(window.from_s):
                    return
                began = time.monotonic()
                _play(window.job, self._phase, self._done_to)
                self._wait(window.until_s)
                found, played = _halted(window.job, began, self._done_to)
                self._records.extend(found)
                self._played.append(played)
        except Exception as error:  # Whatever it is, verify() or end() raises it where the run sees it.
            self._error = error

    def _wait(self, at_s: float | None) -> bool:
        """Wait for a time of the phase, None: its end; return early, and True, if it ends."""
        return self._over.wait(None if at_s is None else max(0.0, self._origin + at_s - time.monotonic()))

    def verify(self) -> None:
        """Raise what has made the job fail."""
        if self._error is not None:
            raise self._error

    def tell_end(self) -> None:
        """Let the job end now, unless it has."""
        self._over.set()

    def end(self) -> tuple[Records, list[Played]]:
        """Wait for the job's end; return its rows and when it played."""
        self._thread.join(HALT_S)
        if self._thread.is_alive():
            raise TrafficError(f"job {self._windows[0].job.name}: waited {HALT_S:g} s for it to end, and it has not")
        self.verify()
        return self._records, self._played
