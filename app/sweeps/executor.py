"""What runs the runs of a sweep: its interface, and what it tells of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.sweeps.planning import PlannedRun, SweepPlan
from app.sweeps.store import Store
from fabric.errors import UsageError
from fabric.world.engines import engine_named


@dataclass(frozen=True)
class SweepWatch:
    """Is told of runs, in the thread that called the executor.

    ``running``: how many run now; ``ended``: that a run is finished, or why it failed; ``tell``: anything else.
    """

    running: Callable[[int], None]
    ended: Callable[[PlannedRun, str | None], None]
    tell: Callable[[str], None]


def require_shareable(plan: SweepPlan, where: str) -> None:
    """Raise UsageError if the runs of a plan cannot be given to machines that others use, too."""
    if engine_named(plan.engine).takes_machine:
        raise UsageError(f"--on {where}: engine {plan.engine} needs root and a machine to itself; use virtual")


class Executor(Protocol):
    """Runs runs. Which ones are missing, it is told; a finished one is in the store, under its key."""

    def run(self, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        """Run those that are missing and return when all have ended, each told to ``watch`` once.

        Raises FabricError if runs cannot be run at all.
        """
