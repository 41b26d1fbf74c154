"""Published summaries of clusters' jobs, and how a user writes one of an own cluster."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from cluster.jobs.records import Outcome
from fabric.config import Strict, checked, read_yaml
from fabric.errors import ConfigError
from fabric.suggestions import one_of

_FILE = Path(__file__).with_name("clusters.yaml")
_Positive = Annotated[float, Field(gt=0, le=1e15)]


class Spread(Strict):
    """Mean, median and the largest of a column."""

    mean: _Positive = Field(description="The mean.")
    median: _Positive = Field(description="The median.")
    most: _Positive = Field(description="The largest.")

    @model_validator(mode="after")
    def _verify(self) -> Spread:
        if not self.median <= self.mean <= self.most:
            raise ValueError(f"median {self.median:g}, mean {self.mean:g}, most {self.most:g}; these must ascend")
        return self


class Waited(Strict):
    """How long jobs waited, in seconds."""

    mean: Annotated[float, Field(ge=0, le=1e15)] = Field(description="The mean.")
    median: Annotated[float, Field(ge=0, le=1e15)] = Field(description="The median.")


class ByOutcome(Strict):
    """A number per outcome of jobs."""

    completed: _Positive = Field(description="Of jobs that completed.")
    cancelled: _Positive = Field(description="Of jobs that their users cancelled.")
    failed: _Positive = Field(description="Of jobs that failed.")

    def of(self, outcome: Outcome) -> float:
        """Return the number of an outcome."""
        value: float = getattr(self, outcome.value)
        return value

    @property
    def total(self) -> float:
        """The sum."""
        return self.completed + self.cancelled + self.failed


class JobSummary(Strict):
    """What is known of a cluster's GPU jobs."""

    jobs: Annotated[int, Field(ge=1, le=10**9)] = Field(description="How many there were.")
    gpus: Spread = Field(description="GPUs per job.")
    run_s: Spread = Field(description="How long jobs had their GPUs, in seconds.")
    queue_s: Waited | None = Field(default=None, description="How long jobs waited for them, in seconds.")
    shares: ByOutcome = Field(description="The share of jobs by outcome; the sum is 1, as far as it was rounded.")
    gpu_s: ByOutcome = Field(description="GPUs times run time, summed by outcome, in GPU-seconds.")

    @model_validator(mode="after")
    def _verify(self) -> JobSummary:
        if abs(self.shares.total - 1) > 0.01:
            raise ValueError(f"shares: their sum is {self.shares.total:g}; it must be 1, to 0.01")
        return self


@cache
def published_clusters() -> dict[str, JobSummary]:
    """Return the published summaries by the name of the cluster."""
    return {name: checked(JobSummary, data, f"{_FILE}: {name}") for name, data in read_yaml(_FILE).items()}


def cluster_summary(name: str) -> JobSummary:
    """Return a published summary. Raises ConfigError for a name that is none."""
    known = published_clusters()
    if name not in known:
        raise ConfigError("jobs", [f"{name!r}: no such cluster; use {one_of(map(repr, known))}"])
    return known[name]
