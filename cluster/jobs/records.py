"""A job of a list, whether it is from a trace or drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

GPUS_PER_NODE = 8


class Outcome(str, Enum):
    """How a job ended, by its user's account."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class JobRecord:
    """One job. Times are in seconds, from the first submission of its list; ``run_s`` is how long it had its GPUs, and
    ``queue_s`` how long it waited for them, None where a list does not know (a drawn job has not waited yet)."""

    number: int
    user: str
    gpus: int
    submitted_s: float
    run_s: float
    outcome: Outcome
    queue_s: float | None = None
    group: str = ""

    @property
    def gpu_s(self) -> float:
        """GPUs times how long it had them."""
        return self.gpus * self.run_s

    def nodes(self, gpus_per_node: int = GPUS_PER_NODE) -> int:
        """Return how many whole nodes it needs."""
        return -(-self.gpus // gpus_per_node)


@dataclass(frozen=True)
class Figures:
    """What a list of jobs is told by, in the columns of published summaries. Shares are of jobs by their outcome."""

    jobs: int
    mean_gpus: float
    median_gpus: float
    mean_run_s: float
    median_run_s: float
    shares: dict[Outcome, float]
    gpu_s: dict[Outcome, float]


def figures_of(jobs: Iterable[JobRecord]) -> Figures:
    """Return the figures of a list that has at least one job."""
    found = list(jobs)
    gpus, runs = np.array([job.gpus for job in found]), np.array([job.run_s for job in found])
    return Figures(
        jobs=len(found),
        mean_gpus=float(gpus.mean()),
        median_gpus=float(np.median(gpus)),
        mean_run_s=float(runs.mean()),
        median_run_s=float(np.median(runs)),
        shares={one: sum(job.outcome is one for job in found) / len(found) for one in Outcome},
        gpu_s={one: sum(job.gpu_s for job in found if job.outcome is one) for one in Outcome},
    )
