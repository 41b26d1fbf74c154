"""The failures of a run: the injectors of all kinds as one, and what was done to whose programs and disks.

:mod:`fabric.failures.listing` has the kinds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from fabric.failures.injection import Injector
from fabric.failures.kind import Scene
from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.kinds.link import KIND as LINK
from fabric.failures.kinds.process import ProgramTarget
from fabric.failures.listing import KINDS
from fabric.failures.report import Change, FaultReport
from fabric.failures.schedule import FailureSchedule
from fabric.world.programs.agents import AgentPool

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation


def kind_of(target: Hashable) -> str:
    """Return the name of a target's kind."""
    return next(kind.name for kind in KINDS if isinstance(target, kind.target))


def failing_hosts(schedule: FailureSchedule | None) -> frozenset[str]:
    """Return the hosts whose programs a schedule stops or ends."""
    targets = () if schedule is None else schedule.targets
    return frozenset(target.host for target in targets if isinstance(target, ProgramTarget))


def rotten_hosts(schedule: FailureSchedule | None) -> frozenset[str]:
    """Return the hosts whose disks get wrong data by a schedule."""
    states = [] if schedule is None else [(event.target, event.state) for event in schedule.events]
    disks = [(disk, state) for disk, state in states if isinstance(disk, DiskTarget) and isinstance(state, DiskState)]
    return frozenset(disk.host for disk, state in disks if state.rotten)


class Injections:
    """All injectors of a run, as an :class:`fabric.failures.injection.Injector` whose :meth:`prepare` needs the jobs of
    the phase, too. ``tell``: hears of every change at once; without it, those of links are known at the end."""

    def __init__(
        self, pool: AgentPool, emulation: Emulation, seed: int, tell: Callable[[Change], None] | None = None
    ) -> None:
        self._pool = pool
        self._emulation = emulation
        self._seed = seed
        self._tell = tell
        self._links: Injector | None = None
        self._playing: dict[str, Injector] = {}
        self._scene: Scene | None = None
        self._hits: list[Change] = []

    def prepare(self, schedule: FailureSchedule, jobs: Sequence[object]) -> None:
        """Get everything ready for a schedule, while nothing is sent. Raises TrafficError if it cannot be played."""
        scene = Scene(self._pool, self._emulation, jobs, self._seed, self._heard, self._tell)
        self._scene = scene
        self._links = self._links or LINK.injector(scene)
        self._hits[:] = self.standing
        self._playing = {}
        for kind in KINDS:
            events = schedule.of_kind(kind.target)
            if kind is LINK or events.events:
                injector = self._links if kind is LINK else kind.injector(scene)
                self._playing[kind.name] = injector
                injector.prepare(events)

    def play(self, started: float) -> None:
        """Let the schedule begin at ``started`` (``time.monotonic()``); returns at once."""
        for injector in self._playing.values():
            injector.play(started)

    def carry_out(self, schedule: FailureSchedule) -> None:
        """Bring targets into states at once, by hand, while a schedule without events plays. Raises NotThereError
        before anything is done of its kind, and FabricError."""
        assert self._scene is not None, "a schedule plays"
        for kind in KINDS[::-1]:  # Links come last: others may be refused.
            events = schedule.of_kind(kind.target)
            if not events.events:
                continue
            if kind.name not in self._playing:
                injector = kind.injector(self._scene)
                injector.prepare(FailureSchedule())
                injector.play(time.monotonic())
                self._playing[kind.name] = injector
            self._playing[kind.name].carry_out(events)

    def restore(self) -> FaultReport:
        """End the schedule wherever it is, make whole what can be, and return what happened. Raises FabricError."""
        links, *others = [injector.restore() for injector in self._playing.values()]
        return links.with_others(others)

    def release(self) -> None:
        """Take away what was made for the schedule, once nothing is sent and all is counted. Raises FabricError."""
        for injector in self._playing.values():
            injector.release()

    def abandon(self) -> None:
        """Make everything whole, wherever a schedule is. Raises FabricError."""
        for injector in self._playing.values():
            injector.abandon()

    @property
    def standing(self) -> tuple[Change, ...]:
        """What of earlier phases lasts, such as programs that were killed: the last change of what each job has of a
        target."""
        last = {(change.target, change.jobs): change for change in self._hits}
        return tuple(change for change in last.values() if not is_whole(change))

    def _heard(self, change: Change) -> None:
        """Keep what has been done. What waits for a program may find it now."""
        self._hits.append(change)
        if self._tell is not None:
            self._tell(change)
        for injector in list(self._playing.values()):
            injector.look_again()

    def done_to(self, job: str) -> str:
        """Return what failures have done to a job's programs and disks, in words: in this phase, and before if that
        lasts, as of programs that were killed."""
        found = [change for change in self._hits if job in change.jobs and not is_whole(change)]
        return "; ".join(dict.fromkeys(map(in_words, found)))


def stopped_on(changes: Iterable[Change]) -> dict[str, tuple[str, ...]]:
    """Return the hosts whose programs failures hit, each with what was done to them, in words."""
    found: dict[str, dict[str, None]] = {}
    for change in changes:
        if isinstance(change.target, ProgramTarget) and not is_whole(change):
            found.setdefault(change.target.host, {})[in_words(change)] = None
    return {host: tuple(words) for host, words in found.items()}


def is_whole(change: Change) -> bool:
    """Return whether a target was brought back to how it should be."""
    return change.state == type(change.state).composed([])


def in_words(change: Change) -> str:
    """Return what was done to a program or a disk, and by which line of the config."""
    lines = " and ".join(f"failures.{cause}" for cause in change.causes)
    return f"{change.target} {change.state}" + (f" ({lines})" if lines else "")
