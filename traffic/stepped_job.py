"""Jobs of ranks that carry out one step after another: the run's side, which starts ranks and orders their steps.

Steps are ordered over pipes, so the fabric carries only the job's own bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.units import format_time
from fabric.world.programs.agents import Program
from traffic.job import Halt, Play, Records, Stage
from traffic.program_group import FAILURES_TIMEOUT_S, ProgramGroup, ProgramsFailedError, StalledError
from traffic.repeating import Repeating

START_TIMEOUT_S = 60.0
REPORT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class StepOrder:
    """The order to carry out one step, of the whole size or, to warm up, of its first few MiB."""

    step: int
    warms_up: bool = False


@dataclass(frozen=True)
class StepDone:
    """A rank's report that a step ended with the right result; times are ``time.monotonic()``."""

    step: int
    started: float
    ended: float


@dataclass(frozen=True)
class StepLimits:
    """How long a job waits for its steps. ``title``: what messages call it; ``ideal_step_s``: the step time of an idle
    fabric; ``stall_timeout_s``: a rank without a byte for so long fails its job, which begins again; None: it ends."""

    title: str
    ideal_step_s: float
    step_timeout_s: float
    stall_timeout_s: float | None

    @property
    def patience_s(self) -> float:
        """How long a step may take: a rank that stalls says so itself, unless it is the one that has stopped."""
        if self.stall_timeout_s is None:
            return self.step_timeout_s
        return min(self.step_timeout_s, 2 * self.stall_timeout_s)


@dataclass(frozen=True)
class StartedRanks:
    """What is started: a program in the host of each rank, with a name and arguments, so many in a process."""

    program: Program
    starts: Mapping[int, tuple[str, NodeId, object]]
    per_process: int | None


@dataclass(frozen=True)
class _Phase:
    """A phase that is played, with the rows of its steps and restarts so far."""

    name: str = ""
    records: Records = field(default_factory=Records)


class SteppedJob:
    """A :class:`traffic.job.Job` that repeats a step over ``ranks``, one after another, while it plays.

    Steps are numbered from 0 over the job's life; one that stalled and was begun again keeps its number. A kind of job
    says what its ranks are (:meth:`_prepare`, :meth:`_ranks_to_start`), how they are connected (:meth:`_wiring`), and
    which rows a step has (:meth:`_step_records`).
    """

    def __init__(
        self, stage: Stage, level: ServiceLevel, name: str, ranks: Sequence[NodeId], limits: StepLimits
    ) -> None:
        self.level = level
        self.name = name
        self.ranks = tuple(ranks)
        self._stage = stage
        self._limits = limits
        self._programs: ProgramGroup[int] = ProgramGroup(stage, limits.title, survives=False)
        self._has_started = False
        self._next_step = 0
        self._phase = _Phase()
        self._stepping = Repeating()

    # What a kind of job says ------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make what all starts of the ranks share."""

    def _ranks_to_start(self) -> StartedRanks:
        """Return the ranks' programs. Each reports where it listens, then that it is ready."""
        raise NotImplementedError

    def _wiring(self, listening: Sequence[Any]) -> object:
        """Return the order to connect, by what ranks report once they listen."""
        raise NotImplementedError

    def _order_of(self, number: int, warms_up: bool) -> StepOrder:
        """Return the order to carry out a step."""
        return StepOrder(number, warms_up)

    def _step_records(self, phase: str, done: Sequence[Any]) -> Records:
        """Return the rows of a step that the ranks have done."""
        raise NotImplementedError

    def _remove(self) -> None:
        """Remove what :meth:`_prepare` made, if it did."""

    # The life of the job ----------------------------------------------------------------------------------------------

    @property
    def step_timeout_s(self) -> float:
        """What a step may take."""
        return self._limits.step_timeout_s

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """Its ranks, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork the ranks and connect them. Raises TrafficError naming a rank that did not come up."""
        self._prepare()
        self._has_started = True
        self._start_ranks()

    def _start_ranks(self) -> None:
        started = self._ranks_to_start()
        self._programs.start_all(started.program, started.starts, started.per_process)
        listening = self._collect("listening", START_TIMEOUT_S)
        self._programs.order(self._wiring(listening))
        self._collect("connections", START_TIMEOUT_S)

    def play(self, phase: str) -> None:
        """Begin to repeat steps; returns once every rank samples its connections.

        Ranks that were still waiting to begin again when the phase before ended are started anew.
        """
        self._begin(phase)
        self._stepping.start(self._step_or_restart)

    def halt(self) -> Records:
        """End after the step under way and return rows of all steps of the phase.

        Waits for that step at most its timeout, and for one attempt to begin again, if one is under way. Raises
        TrafficError if a rank failed or its result was wrong.
        """
        self._stepping.halt()
        # Longer than the step waits itself, which then says for whom.
        if not self._stepping.join(self.step_timeout_s + 2 * REPORT_TIMEOUT_S + self._restart_patience_s()):
            raise TrafficError(self._not_ended())
        self._stepping.raise_error()
        return self._finish()

    def run_steps(self, count: int, phase: str = "") -> Records:
        """Carry out exactly ``count`` steps and return their rows. Raises TrafficError as :meth:`halt` does."""
        self._begin(phase)
        for _ in range(count):
            self._step()
        return self._finish()

    def warm_up(self) -> None:
        """Carry out a short step that no row tells of: in it TCP opens its windows. Its result is checked, too.

        Raises TrafficError as :meth:`halt` does.
        """
        self._start_missing_ranks()
        self._order_step(warms_up=True)

    def close(self) -> None:
        """End the ranks and remove what was made for them."""
        self._stepping.halt()
        if self._stepping.thread is None:
            self._programs.close()
        else:
            self._programs.close_at_once()  # The thread sees them go, whatever it waits for.
            self._stepping.join(CLOSE_TIMEOUT_S)
        self._remove()

    def _begin(self, phase: str) -> None:
        if not self._has_started:
            raise TrafficError(f"{self._limits.title}: has not started; call start() before play()")
        self._start_missing_ranks()
        self._phase = _Phase(phase)
        self._stepping.prepare()
        self._sample()

    def _start_missing_ranks(self) -> None:
        """Start the ranks if the last phase ended before they could begin again."""
        if not self._programs.handles:
            self._start_ranks()

    def _sample(self) -> None:
        self._programs.order(Play(self._phase.name))
        self._collect("samples begun", REPORT_TIMEOUT_S)

    def _finish(self) -> Records:
        records = self._phase.records
        self._programs.order(Halt())
        for message in self._collect("rows", REPORT_TIMEOUT_S):
            records.extend(message)
        return records

    def _step_or_restart(self) -> None:
        try:
            self._step()
        except StalledError as stall:
            if self._limits.stall_timeout_s is None:
                raise
            self._restart(str(stall))

    def _restart(self, reason: str) -> None:
        """Begin again from the last whole step, as a job does whose ranks have given up, and if that stalls, too, again
        until it works or the phase ends: then ``resumed_s`` is NaN, and the next phase starts the ranks."""
        failed = time.monotonic()
        resumed = math.nan
        self._programs.end_at_once()
        while math.isnan(resumed) and not self._stepping.is_halting:
            try:
                self._start_ranks()
                self._sample()
                resumed = time.monotonic()
            except StalledError:
                self._programs.end_at_once()
        row = {
            "phase": self._phase.name,
            "service_level": self.level.label,
            "step": self._next_step,
            "failed_s": failed,
            "resumed_s": resumed,
            "reason": reason,
        }
        self._phase.records.add("restarts", [row])

    def _restart_patience_s(self) -> float:
        """Return how long one attempt to begin again may take: to listen, to connect, to sample."""
        if self._limits.stall_timeout_s is None:
            return 0.0
        return 2 * (START_TIMEOUT_S + FAILURES_TIMEOUT_S) + REPORT_TIMEOUT_S

    def _step(self) -> None:
        done = self._order_step()
        self._phase.records.extend(self._step_records(self._phase.name, done))

    def _order_step(self, warms_up: bool = False) -> list[Any]:
        number = self._next_step
        self._programs.order(self._order_of(number, warms_up))
        done = self._collect(f"end of step {number}", self._limits.patience_s + REPORT_TIMEOUT_S)
        self._next_step += 1
        return done

    def _not_ended(self) -> str:
        ideal = format_time(self._limits.ideal_step_s)
        return (
            f"{self._limits.title}: step {self._next_step} did not end within {self.step_timeout_s:g} s of halt "
            f"(its ideal time is {ideal}); look for cut links or raise step_timeout"
        )

    def _collect(self, what: str, timeout_s: float) -> list[Any]:
        """Return every rank's next message. Raises StalledError or TrafficError, with the failure that came first."""
        try:
            return list(self._programs.collect(what, timeout_s).values())
        except ProgramsFailedError as error:
            raise (StalledError if error.is_stall else TrafficError)(str(error)) from error


class FiniteSteps:
    """A :class:`SteppedJob` as a job of a phase with a fixed amount to do: ``steps`` plays it in a phase, by its name,
    however long that takes, and returns its rows. A stepped job that has started is closed by who started it."""

    def __init__(self, job: SteppedJob, steps: Callable[[str], Records]) -> None:
        self.level = job.level
        self.name = job.name
        self._job = job
        self._steps = steps
        self._phase = ""
        self._records = Records()

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """The job's programs, for failures."""
        return self._job.failing_programs

    def start(self) -> None:
        """Start the job, and open its windows. Raises TrafficError as the job does."""
        self._job.start()
        self._job.warm_up()

    def play(self, phase: str) -> None:
        """Note the phase."""
        self._phase = phase

    def finish(self) -> None:
        """Play the steps. Raises TrafficError as the job does."""
        self._records = self._steps(self._phase)

    def halt(self) -> Records:
        """Return the rows of the steps, which have ended."""
        records, self._records = self._records, Records()
        return records

    def close(self) -> None:
        """Close the job."""
        self._job.close()
