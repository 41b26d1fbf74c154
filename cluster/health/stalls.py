"""Whether the ranks of a job still move, and who of them the others wait for. Pure.

Ranks tell each step that they complete (``cluster.platform.user.step``). In a job whose ranks wait for each other in
every step, all stop within a step of each other once one does, so that a stall is the whole gang's; and whoever has
not completed a step that the others have is who they wait for. If all stopped at the same step, steps do not say who.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from cluster.health.config import StallWatch

MOST_STEPS = 32
"""Of the last so many steps the median is the usual one."""
LEAST_STEPS = 3


@dataclass(frozen=True)
class Stall:
    """A job that is stalled: for how long, what its usual step takes (None: not known yet), and by rank the last step.
    ``blamed``: the ranks that others wait for; none if steps do not say."""

    still_s: float
    usual_s: float | None
    steps: dict[int, int]
    blamed: tuple[int, ...]

    def words(self, nodes: tuple[str, ...]) -> str:
        """Say it, with the names of nodes in the order of ranks."""
        usual = "" if self.usual_s is None else f", and a step takes {self.usual_s:.3g} s"
        text = f"stalled: no rank has moved for {self.still_s:.0f} s{usual}"
        if self.blamed:
            behind = ", ".join(f"{nodes[rank]} (step {self.steps.get(rank, 0)})" for rank in self.blamed)
            return f"{text}; the others, at step {max(self.steps.values())}, wait for {behind}"
        return f"{text}; all are at step {max(self.steps.values(), default=0)}, so which node is to blame is not known"


@dataclass
class JobSteps:
    """The steps of one life of a job of ``world`` ranks, which began at ``began_s``."""

    world: int
    began_s: float
    steps: dict[int, int] = field(default_factory=dict)
    moved_s: float | None = None
    front_s: float | None = None
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))

    def tell(self, rank: int, step: int, at_s: float) -> None:
        """Take a step that a rank has completed; one that is not beyond its last is not a move."""
        before = self.steps.get(rank)
        if before is not None and step <= before:
            return
        front = max(self.steps.values(), default=None)
        self.steps[rank] = step
        self.moved_s = at_s
        if front is None or step > front:
            if self.front_s is not None and front is not None:
                self.lengths.append((at_s - self.front_s) / (step - front))
            self.front_s = at_s

    @property
    def usual_s(self) -> float | None:
        """What a step usually takes; None before a few were told."""
        return median(self.lengths) if len(self.lengths) >= LEAST_STEPS else None

    def stall(self, now_s: float, watch: StallWatch) -> Stall | None:
        """Return how it is stalled; None if it is not, or tells no steps."""
        if self.moved_s is None:
            return None
        usual_s = self.usual_s
        limit_s = watch.first if usual_s is None else max(watch.least, watch.factor * usual_s)
        still_s = now_s - self.moved_s
        if still_s < limit_s:
            return None
        return Stall(still_s, usual_s, dict(self.steps), self._blamed())

    def _blamed(self) -> tuple[int, ...]:
        """Return the ranks behind the front: none if nobody, or more than half, is behind. If not all ranks tell steps,
        those that never did are passed over."""
        front = max(self.steps.values())
        behind = tuple(sorted(rank for rank, step in self.steps.items() if step < front))
        return behind if 0 < 2 * len(behind) <= len(self.steps) else ()
