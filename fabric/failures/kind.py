"""A kind of failure: the class of its targets, and what carries it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric.failures.injection import Injector
from fabric.failures.report import Change

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation
    from fabric.world.programs.agents import AgentPool


@dataclass(frozen=True)
class Scene:
    """Where failures happen: the fabric that is up, the pool that starts programs, the jobs of a phase, the seed, and
    who hears of each change of a program or a disk at once. ``link_hit``: who hears of those of links, before the end
    of the schedule; None: nobody."""

    pool: AgentPool
    emulation: Emulation
    jobs: Sequence[object]
    seed: int
    hit: Callable[[Change], None]
    link_hit: Callable[[Change], None] | None = None


@dataclass(frozen=True)
class FailureKind:
    """A kind of failures: its name in tables, the class of its targets, and what makes an injector of it."""

    name: str
    target: type
    injector: Callable[[Scene], Injector]
