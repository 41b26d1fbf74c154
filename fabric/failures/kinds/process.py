"""Programs that fail: killed, started again, stopped or slow; how they then are, and what jobs offer for that.

A job that has programs says so by having what :class:`HasPrograms` asks for. Nothing here knows any kind of job.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from fabric.errors import TrafficError
from fabric.failures.injection import Effects, NotThereError, Part, ThreadInjector
from fabric.failures.kind import FailureKind
from fabric.failures.line import FailureConfig, Stretch
from fabric.failures.names import node_named
from fabric.failures.schedule import State
from fabric.model.network import Fabric

TURN_S = 0.01
"""How long slow programs run and stand still, together."""


@dataclass(frozen=True)
class ProgramTarget:
    """A job's programs on a host, by their names; ``job`` empty: those of all jobs."""

    host: str
    job: str = ""

    def covers(self, job: str, host: str) -> bool:
        """Return whether a job's programs on a host are among them."""
        return host == self.host and self.job in ("", job)

    def __str__(self) -> str:
        return f"{self.job or 'programs'} on {self.host}"


@dataclass(frozen=True)
class ProgramState(State):
    """How programs are: whether they were killed, and for what part of the time they run; 0: they are stopped.
    ``comes_back``: what was killed is started again once that is over."""

    share: float = 1.0
    is_killed: bool = False
    comes_back: bool = False

    @classmethod
    def composed(cls, states: Sequence[ProgramState]) -> ProgramState:
        """Return the least share; killed if any kills, for good if one of these does."""
        if killing := [state for state in states if state.is_killed]:
            return RESTARTED if all(state.comes_back for state in killing) else KILLED
        return ProgramState(min((state.share for state in states), default=1.0))

    @property
    def only_one(self) -> tuple[float, str] | None:
        """How much they are slowed: two shares cannot both be."""
        return (self.share, "of its CPU time") if 0 < self.share < 1 else None

    def __str__(self) -> str:
        if self.is_killed:
            return "killed, to be started again" if self.comes_back else "killed"
        if self.share == 1:
            return "whole"
        return f"runs {self.share:.0%} of the time" if self.share else "stopped"


STOPPED = ProgramState(share=0.0)
KILLED = ProgramState(is_killed=True)
RESTARTED = ProgramState(is_killed=True, comes_back=True)


class FailingPrograms(Protocol):
    """Programs of a job that failures can hit, by the names of their hosts. Several threads may use it at once, each
    for hosts of its own. All but :meth:`restart_on` may raise NotThereError: there is no such program now. One that
    something else begins again has ``begun``, a function that it calls then with the host."""

    @property
    def hosts(self) -> Collection[str]:
        """Where there are programs, those that were killed left out."""

    def stop_on(self, host: str) -> None:
        """Let the programs on a host run no longer (SIGSTOP), nor those that are started there meanwhile."""

    def resume_on(self, host: str) -> None:
        """Let them run again (SIGCONT)."""

    def kill_on(self, host: str) -> None:
        """End them at once (SIGKILL); whoever orders them expects nothing of them any more."""

    def restart_on(self, host: str) -> None:
        """Start them again that were killed. Raises TrafficError if that cannot be."""


@runtime_checkable
class HasPrograms(Protocol):
    """A job whose programs failures can hit."""

    name: str

    @property
    def failing_programs(self) -> Sequence[FailingPrograms]:
        """All of its programs."""


class ProcessFailureConfig(FailureConfig):
    """Programs of jobs on a host that fail."""

    targets: ClassVar[tuple[str, ...]] = ("process",)

    process: str = Field(description="The host whose programs fail: those of `job`, or of all jobs. See `effect`.")
    job: str | None = Field(default=None, description="The job whose programs fail. Without it, those of all jobs.")
    effect: Literal["kill", "restart", "stop", "slow"] = Field(
        description=(
            "`kill` (SIGKILL), `restart` (so, and started again after `for`), `stop` (SIGSTOP, then SIGCONT) or `slow` "
            "(see `share`)."
        )
    )
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Fraction of the time for which slow programs may compute, in turns of 10 ms; only in real time.",
    )

    @property
    def endless(self) -> str:
        """What is killed stays dead."""
        return "effect kill: what is killed does not come back" if self.effect == "kill" else ""

    @property
    def ended_by(self) -> str:
        """What is to be started again needs a time."""
        return "effect restart: the program is started again" if self.effect == "restart" else ""

    @property
    def ends_programs(self) -> bool:
        """Whether it kills them for good."""
        return self.effect == "kill"

    def own_faults(self) -> Iterator[str]:
        """Yield that ``share`` is missing, or goes with another effect."""
        if self.effect == "slow" and self.share is None:
            yield "effect slow: how slow is missing; give share"
        if self.effect != "slow" and self.share is not None:
            yield f"share: not of effect {self.effect}; leave it out"

    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
        """Yield the programs of the host. Raises ValueError for a host that the fabric does not have."""
        states = {"kill": KILLED, "restart": RESTARTED, "stop": STOPPED}
        state = states.get(self.effect, ProgramState(share=self.share or 1.0))
        yield ProgramTarget(node_named(self.process, "process", fabric).name, self.job or ""), began_s, ended_s, state


class ProgramEffects(Effects):
    """Stops, slows and kills the programs of jobs."""

    def __init__(self, jobs: Iterable[object]) -> None:
        super().__init__()
        self._jobs = {job.name: job for job in jobs if isinstance(job, HasPrograms)}
        self._now: dict[tuple[int, str], ProgramState] = {}
        self._turns: dict[tuple[int, str], _Turns] = {}
        for name, job in self._jobs.items():
            for group in job.failing_programs:
                if hasattr(group, "begun"):
                    group.begun = partial(self._begun, name)

    def parts(self, target: ProgramTarget) -> Iterator[Part]:
        """Yield each job's programs on the host."""
        for name, job in self._jobs.items():
            if target.covers(name, target.host):
                is_there = bool(target.job) or any(target.host in group.hosts for group in job.failing_programs)
                yield Part(ProgramTarget(target.host, name), name, is_there)

    def bring(self, part: Part, before: ProgramState, state: ProgramState) -> str:
        """Bring a job's programs on a host into a state."""
        assert isinstance(part.target, ProgramTarget), "parts are of programs"
        host, job = part.target.host, self._jobs[part.job]
        absent = NotThereError(f"no program of {job.name} lives on {host}")
        found = False
        for group in job.failing_programs:
            if host in group.hosts or self._is_held(group, host):
                try:
                    self._set(group, host, state)
                    found = True
                except NotThereError as error:
                    absent = error
        if not found:
            raise absent
        return ""

    def mended(self, state: ProgramState) -> State | None:
        """Return that it runs as before, unless it was killed or does."""
        is_for_good = state.is_killed and not state.comes_back
        return None if is_for_good or state == ProgramState() else ProgramState()

    def _begun(self, job: str, host: str) -> None:
        """Know that what supervises a job's programs has begun them again."""
        self.became(Part(ProgramTarget(host, job), job), ProgramState())

    def _is_held(self, group: FailingPrograms, host: str) -> bool:
        """Return whether programs are stopped or slow, or come back: those of a job that begins again may be gone for a
        moment."""
        return self._now.get((id(group), host), KILLED) not in (KILLED, ProgramState())

    def _set(self, group: FailingPrograms, host: str, wanted: ProgramState) -> None:
        key = (id(group), host)
        now = self._now.get(key, ProgramState())
        if now.is_killed and host in group.hosts:
            now = ProgramState()  # It has been begun again meanwhile.
        if wanted == now:
            return
        if (turns := self._turns.pop(key, None)) is not None:
            turns.end()
        if now.is_killed and not wanted.is_killed:
            group.restart_on(host)
        if wanted.is_killed:
            if not now.is_killed:
                group.kill_on(host)
        elif wanted.share == 0:
            group.stop_on(host)
        elif not now.is_killed or wanted.share < 1:
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


KIND = FailureKind("process", ProgramTarget, lambda scene: ThreadInjector(ProgramEffects(scene.jobs), scene.hit))
