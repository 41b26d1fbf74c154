"""How far a life of a job has come by a time, and what of that is kept when it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.faults.classes import Effect
from cluster.simulation.costs import Costs
from cluster.simulation.goodput import Cause
from cluster.tasks import Priority

RESTS = frozenset({Cause.CUT, Cause.STORAGE, Cause.CAPACITY})
"""Why a life stands still and goes on by itself."""


@dataclass(frozen=True)
class Job:
    """What is submitted: ``work_s`` seconds of steps on ``nodes`` nodes. ``limit_s``: when it ends at the latest, by
    its user, which only backfilling asks for; the job itself is not ended by it. ``answers``: whether its program
    answers a notice; one that does not is killed."""

    number: int
    user: str
    nodes: int
    work_s: float
    submitted_s: float = 0.0
    priority: Priority = Priority.NORMAL
    group: str = "training"
    limit_s: float | None = None
    answers: bool = True

    def __post_init__(self) -> None:
        if self.nodes < 1 or not self.work_s > 0 or self.submitted_s < 0:
            raise ValueError(
                f"job {self.number}: {self.nodes} nodes, {self.work_s} s of work, submitted at {self.submitted_s} s; "
                "it needs at least one node, some work, and a time from 0 on"
            )


class Life:
    """One life: it has its nodes from ``began_s`` on, and goes on from ``saved_s`` seconds of work.

    Its clock runs slower than time while it straggles, and stands while it is stuck; :meth:`move` says why the
    difference is lost.
    """

    def __init__(self, job: Job, began_s: float, saved_s: float, costs: Costs) -> None:
        self.job, self.began_s, self.saved_s, self.costs = job, began_s, saved_s, costs
        self._at_s, self._clock_s = began_s, 0.0
        self._speed, self._why = 1.0, Cause.STRAGGLING
        self._rests_until_s, self._after = -math.inf, (1.0, Cause.STRAGGLING)
        self._aside: dict[Cause, float] = {}
        self.lost_by: Effect | None = None
        """What a node of it has failed by, so that it cannot save any more."""

    # Time -----------------------------------------------------------------------------------------------------------

    def move(self, now_s: float) -> None:
        """Let time pass until ``now_s``."""
        passed_s = now_s - self._at_s
        self._at_s = now_s
        self._clock_s += passed_s * self._speed
        if self._speed < 1:
            self._aside[self._why] = self._aside.get(self._why, 0.0) + passed_s * (1 - self._speed)

    @property
    def broken(self) -> bool:
        """Whether a node of it has failed."""
        return self.lost_by is not None

    def straggle(self, now_s: float, slowdown: float, why: Cause = Cause.STRAGGLING) -> None:
        """Let steps take ``slowdown`` times as long from now on; a life that is stuck stays so."""
        self.move(now_s)
        if self.rests:
            self._after = 1 / slowdown, why
        elif not self.stuck:
            self._speed, self._why = 1 / slowdown, why

    def stick(self, now_s: float, why: Cause) -> None:
        """Let no more steps be made from now on."""
        self.move(now_s)
        self._speed, self._why = 0.0, why

    def rest(self, now_s: float, seconds: float, why: Cause = Cause.CUT) -> None:
        """Let no steps be made for a while, for one of :data:`RESTS`; a life that is stuck stays so. See
        :meth:`go_on`."""
        self.move(now_s)
        if self.stuck or seconds <= 0:
            return
        if not self.rests:
            self._after = self._speed, self._why
        elif now_s + seconds <= self._rests_until_s:
            return
        self._speed, self._why, self._rests_until_s = 0.0, why, now_s + seconds

    def go_on(self, now_s: float) -> bool:
        """Let steps be made again if the last rest is over by now; return whether that is so."""
        if not self.rests or now_s < self._rests_until_s:
            return False
        self.move(now_s)
        self._speed, self._why = self._after
        return True

    @property
    def rests(self) -> bool:
        """Whether it stands still for a while, and goes on by itself."""
        return self._speed == 0 and self._why in RESTS

    def fail(self, now_s: float, effect: Effect = Effect.GPU_ERROR) -> None:
        """Let a node of it fail: the others wait for it from now on."""
        self.lost_by = self.lost_by or effect
        if not self.stuck:
            self.stick(now_s, Cause.DETECTION)

    @property
    def stuck(self) -> bool:
        """Whether no steps are made any more."""
        return self._speed == 0 and not self.rests

    @property
    def ends_s(self) -> float:
        """When all its work is done, if it goes on as now; never if no steps are made."""
        if self._speed == 0:
            return math.inf
        return self._at_s + max(0.0, self.length_s - self._clock_s) / self._speed

    @property
    def in_last_step(self) -> bool:
        """Whether the step under way, of those of the length that the costs have, is the last one."""
        return self.costs.step > 0 and self.length_s - self._clock_s <= self.costs.step

    # What its clock says --------------------------------------------------------------------------------------------

    @property
    def _head_s(self) -> float:
        return self.costs.start + (self.costs.restore if self.saved_s > 0 else 0.0)

    @property
    def length_s(self) -> float:
        """How long it takes without any trouble."""
        left_s = self.job.work_s - self.saved_s
        saves = max(0, math.ceil(left_s / self.costs.interval) - 1)
        return self._head_s + left_s + saves * self.costs.save + max(0, saves - 1) * self.costs.wait_s

    @property
    def _period_s(self) -> float:
        """How long an interval takes with its checkpoint, and with the wait for the one before, which the first has
        not."""
        return self.costs.interval + self.costs.save + self.costs.wait_s

    def _steps_s(self) -> float:
        """Return the seconds of steps that it has made."""
        inside_s = max(0.0, self._clock_s - self._head_s)
        costs = self.costs
        if inside_s < costs.interval:
            return inside_s
        inside_s += costs.wait_s
        full = math.floor(inside_s / self._period_s)
        rest_s = inside_s - full * self._period_s
        return full * costs.interval + min(rest_s, costs.interval)

    def _checkpointed_s(self) -> float:
        """Return the seconds of steps that its last complete checkpoint has."""
        costs = self.costs
        inside_s = self._clock_s - self._head_s - costs.durable
        if inside_s <= 0 or math.isinf(costs.interval):
            return 0.0
        return math.floor((inside_s + costs.wait_s) / self._period_s) * costs.interval

    def ended(self, keeps_all: bool) -> tuple[float, Mapping[Cause, float]]:
        """Return the seconds of work that the job has done for good, and where this life's time went: what ends by
        itself or has saved keeps all steps, what is killed those of its last checkpoint, and what computed wrong those
        of the one before: steps that a life before had kept may be among those that are lost then."""
        clock_s, head_s = self._clock_s, self._head_s
        steps_s = self._steps_s()
        kept_s = steps_s if keeps_all else min(steps_s, self._checkpointed_s())
        if not keeps_all and self.lost_by is Effect.CORRUPTION:
            kept_s = max(-self.saved_s, kept_s - self.costs.interval)
        start_s = min(clock_s, self.costs.start)
        restore_s = min(clock_s, head_s) - start_s
        causes = {
            Cause.START: start_s,
            Cause.RESTORE: restore_s,
            Cause.KEPT: kept_s,
            Cause.LOST: steps_s - kept_s,
            Cause.SAVE: max(0.0, clock_s - head_s) - steps_s,
        }
        for cause, seconds in self._aside.items():
            causes[cause] = causes.get(cause, 0.0) + seconds
        return self.saved_s + kept_s, causes
