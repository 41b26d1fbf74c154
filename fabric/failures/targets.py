"""What fails beside links: programs, disks and GPUs; how they then are, and what jobs offer for that. Pure.

A job that has programs, disks or GPUs says so by having what :class:`HasPrograms`, :class:`HasDisks` or
:class:`HasGpus` asks for. Nothing here knows any kind of job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fabric.errors import TrafficError
from fabric.failures.schedule import State


class NotThereError(TrafficError):
    """What is to fail is not there now, as a program that was killed. It may be back."""


# Programs ------------------------------------------------------------------------------------------------------------


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


# Disks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiskTarget:
    """A disk of a host, by its number; None: each of them."""

    host: str
    number: int | None = None

    def covers(self, host: str, number: int) -> bool:
        """Return whether a disk of a host is among them."""
        return host == self.host and self.number in (None, number)

    def __str__(self) -> str:
        return f"disks of {self.host}" if self.number is None else f"{self.host}/{self.number}"


@dataclass(frozen=True)
class DiskState(State):
    """How a disk is: whether each access fails, how many times its time a read takes and how much is added to that, and
    how many of its chunks have wrong data since the failure began, which stay wrong until they are written anew."""

    fails: bool = False
    factor: float = 1.0
    added_s: float = 0.0
    rotten: int = 0

    @classmethod
    def composed(cls, states: Sequence[DiskState]) -> DiskState:
        """Return what fails if any does, the largest factor, and the sums of what is added and of what is rotten."""
        return DiskState(
            any(state.fails for state in states),
            max((state.factor for state in states), default=1.0),
            sum(state.added_s for state in states),
            sum(state.rotten for state in states),
        )

    @property
    def only_one(self) -> tuple[float, str] | None:
        """How many times its time a read takes: two factors cannot both be."""
        return None if self.factor == 1 else (self.factor, "times the time of a read")

    @property
    def is_slow(self) -> bool:
        """Whether reads take longer than they should."""
        return self.factor != 1 or self.added_s > 0

    def __str__(self) -> str:
        parts = ["fails"] if self.fails else []
        parts += [f"reads take {self.factor:g} times as long"] if self.factor != 1 else []
        parts += [f"reads take {self.added_s:g} s more"] if self.added_s else []
        parts += [f"{self.rotten} chunks rotten"] if self.rotten else []
        return ", ".join(parts) or "whole"


@runtime_checkable
class HasDisks(Protocol):
    """A job whose disks failures can hit."""

    name: str

    def disks_on(self, host: str) -> int:
        """Return how many disks it has on a host, numbered from 0; 0 where it has none. They outlast its programs."""

    def set_disk(self, host: str, number: int, state: DiskState) -> None:
        """Let a disk be so from now on, and return once it is, however long its program is stopped; ``rotten`` is not
        looked at. A program that is started again finds its disks so. Raises NotThereError if there is none that could
        notice, TrafficError if it cannot be."""

    def rot(self, host: str, number: int, count: int, seed: str) -> Sequence[str]:
        """Flip a bit in each of ``count`` chunks of a disk that are sound, chosen by a seed; return their names, fewer
        if it has not so many. Raises NotThereError, TrafficError."""


# GPUs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuTarget:
    """A GPU of a node, by its number."""

    host: str
    number: int = 0

    def __str__(self) -> str:
        return f"GPU {self.number} of {self.host}"


@dataclass(frozen=True)
class GpuState(State):
    """Which errors a GPU has had, by their Xid: they stay in its node's log, and what is done about them is the
    platform's business. ``wrong``: how often it has begun to compute wrong values, of which no log tells."""

    xids: tuple[int, ...] = ()
    wrong: int = 0

    @classmethod
    def composed(cls, states: Sequence[GpuState]) -> GpuState:
        """Return all of them."""
        return GpuState(tuple(xid for state in states for xid in state.xids), sum(state.wrong for state in states))

    def __str__(self) -> str:
        parts = [f"Xid {xid}" for xid in self.xids] + (["computes wrong values"] if self.wrong else [])
        return ", ".join(parts) or "whole"


@runtime_checkable
class HasGpus(Protocol):
    """A job that looks at errors of its nodes' GPUs."""

    name: str

    def gpus_on(self, host: str) -> int:
        """Return how many GPUs a host has whose errors it sees; 0 where it sees none."""

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        """Let a GPU have an error, as its driver tells of one."""

    def gpu_computes_wrong(self, host: str, number: int) -> None:
        """Let a GPU compute wrong values from now on, until its node is repaired."""
