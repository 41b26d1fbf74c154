"""A life of a job as it was: when it waited, which nodes it had until when, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class End(str, Enum):
    """How a life ended."""

    FINISHED = "finished"
    SUSPENDED = "suspended"
    """For another job, with what it had done saved."""
    KILLED = "killed"
    """For another job, and it had not saved in time."""
    LOST = "lost"
    """With a node, or a rank of it that failed."""
    STOPPED = "stopped"
    """By its user, or at the end of the time that was played."""


@dataclass(frozen=True)
class LifeSpan:
    """Times are in seconds of the list that was played. The life waited from ``queued_s`` on, had ``nodes`` (places)
    from ``began_s`` until ``left_s``, and was told to leave at ``told_s`` (None: it was not).

    ``first_step_s``: when it made steps at last; ``answered_s``: when it answered the notice; None: it did not, or
    nobody knows. ``lost_s``: seconds of its steps that were made in vain.
    """

    job: int
    queued_s: float
    began_s: float
    left_s: float
    nodes: tuple[int, ...]
    end: End
    told_s: float | None = None
    answered_s: float | None = None
    first_step_s: float | None = None
    lost_s: float = 0.0

    @property
    def waited_s(self) -> float:
        """How long it waited for its nodes."""
        return self.began_s - self.queued_s
