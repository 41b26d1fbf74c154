"""Disks that fail: each access does, reads are slow, or chunks hold wrong data; and what jobs offer for that.

A job that has disks says so by having what :class:`HasDisks` asks for. Nothing here knows any kind of job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from fabric.config import TimeS
from fabric.failures.injection import Effects, Injector, NotThereError, Part, ThreadInjector
from fabric.failures.kind import FailureKind, Scene
from fabric.failures.line import FailureConfig, Stretch
from fabric.failures.names import disk_named
from fabric.failures.schedule import State
from fabric.model.network import Fabric


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


_OF_EFFECT: dict[str, tuple[str, ...]] = {"slow": ("factor", "latency"), "rot": ("chunks",)}
"""Keys that go with one effect only."""


class DiskFailureConfig(FailureConfig):
    """A disk of a storage service that fails, or all of a node's."""

    targets: ClassVar[tuple[str, ...]] = ("disk",)

    disk: str = Field(
        description="The disk of a storage service that fails, such as `st001/2`, or all of a node's (`st001`)."
    )
    effect: Literal["error", "slow", "rot"] = Field(
        description="`error` (each access fails), `slow` (`factor`, `latency`) or `rot` (`chunks`)."
    )
    factor: Annotated[float, Field(gt=1, le=1e6)] | None = Field(
        default=None, description="How many times its time each read of a slow disk takes."
    )
    latency: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="Time that each read of a slow disk takes in addition."
    )
    chunks: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        default=None, description="How many chunks of the disk get a wrong bit, drawn by the seed. Without it, 1."
    )

    @property
    def endless(self) -> str:
        """Wrong data has no end."""
        return "effect rot: what is rotten stays so until it is written anew" if self.effect == "rot" else ""

    def own_faults(self) -> Iterator[str]:
        """Yield that how slow it is is missing, and which keys go with other effects."""
        mine = _OF_EFFECT.get(self.effect, ())
        given = [key for keys in _OF_EFFECT.values() for key in keys if getattr(self, key) is not None]
        if self.effect == "slow" and not set(mine) & set(given):
            yield f"effect slow: how slow is missing; give {' or '.join(mine)}"
        if strange := [key for key in given if key not in mine]:
            yield f"{', '.join(strange)}: not of effect {self.effect}; leave it out"

    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
        """Yield the disk. Raises ValueError for a host that the fabric does not have."""
        node, number = disk_named(self.disk, fabric)
        state = DiskState(self.effect == "error", self.factor or 1.0, self.latency or 0.0)
        if self.effect == "rot":
            state = DiskState(rotten=self.chunks or 1)
        yield DiskTarget(node.name, number), began_s, ended_s, state


class DiskEffects(Effects):
    """Lets disks of jobs fail, be slow and hold wrong data; ``seed`` chooses which chunks."""

    def __init__(self, jobs: Iterable[object], seed: int) -> None:
        super().__init__()
        self._jobs = {job.name: job for job in jobs if isinstance(job, HasDisks)}
        self._seed = seed
        self.withdraw = self._withdraw

    def parts(self, target: DiskTarget) -> Iterator[Part]:
        """Yield each disk of each job."""
        for name, job in self._jobs.items():
            for number in range(job.disks_on(target.host)):
                if target.covers(target.host, number):
                    yield Part(DiskTarget(target.host, number), name)

    def bring(self, part: Part, before: DiskState, state: DiskState) -> str:
        """Bring a disk into a state; return which chunks have become rotten."""
        (host, number), job = _place(part), self._jobs[part.job]
        if replace(before, rotten=0) != replace(state, rotten=0):
            job.set_disk(host, number, state)
        more = state.rotten - before.rotten
        if more <= 0:
            return ""
        return ", ".join(job.rot(host, number, more, f"{self._seed}/rot/{host}/{number}/{state.rotten}"))

    def _withdraw(self, part: Part, state: Any) -> None:
        """Let the service have the disk so that is started there next: its job keeps what it was asked for."""
        with suppress(NotThereError):
            self._jobs[part.job].set_disk(*_place(part), state)

    def mended(self, state: DiskState) -> State | None:
        """Return that it is as before but for what is rotten, unless it is."""
        left = DiskState(rotten=state.rotten)
        return None if state == left else left


def _place(part: Part) -> tuple[str, int]:
    """Return the host and the number of a part, which is one disk."""
    assert isinstance(part.target, DiskTarget) and part.target.number is not None, "a part is one disk"
    return part.target.host, part.target.number


def _injector(scene: Scene) -> Injector:
    return ThreadInjector(DiskEffects(scene.jobs, scene.seed), scene.hit)


KIND = FailureKind("disk", DiskTarget, _injector)
