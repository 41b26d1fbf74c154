"""A list of jobs for a cluster: drawn as of a published one, or a user's trace, made to fit in size and in time."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from cluster.jobs.clusters import cluster_summary, published_clusters
from cluster.jobs.fitting import JobModel, fit
from cluster.jobs.records import GPUS_PER_NODE, JobRecord
from cluster.jobs.traces import read_trace
from cluster.simulation.composing import LIMIT_FACTOR, at_load, jobs_of
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from cluster.tasks import Priority
from fabric.config import Strict, TimeS, note_file
from fabric.errors import ConfigError

_SAME_LOAD = 0.01
"""A part of the load that rounding may change: arrivals are whole steps, too, and no more exact than that."""
Part = Annotated[float, Field(ge=0, le=1)]
RunTime = Annotated[TimeS, Field(ge=0)]


class GivenChoices(Strict):
    """What users choose, by parts of all jobs; lists tell none of it."""

    high: Part = Field(default=0.1, description="Jobs of the priority HIGH.")
    under_normal: Part = Field(default=0.2, description="Jobs of the priority UNDER_NORMAL; the rest is NORMAL.")
    deaf: Part = Field(default=0.0, description="Jobs whose program does not answer a suspend command, and is killed.")

    @model_validator(mode="after")
    def _verify(self) -> GivenChoices:
        if self.high + self.under_normal > 1:
            raise ValueError(
                f"high, under_normal: {self.high:g} and {self.under_normal:g} are more than all; lower them"
            )
        return self


class ListConfig(Strict):
    """Which jobs, and how they are made to fit."""

    jobs_from: str = Field(
        default="kalos",
        min_length=1,
        max_length=4096,
        description="Whose jobs: `seren`, `kalos`, `philly`, `helios`, as published, or a trace's file (Acme, Helios).",
    )
    count: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=500, description="How many: drawn, or the first of the trace; those that do not fit are left out."
    )
    users: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=30, description="Users of drawn jobs; a few of them submit most (Zipf)."
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=GPUS_PER_NODE,
        description="GPUs that a node stands for. More of them keep the mix of sizes on a smaller cluster.",
    )
    largest: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None,
        description="Nodes of the largest job; larger ones are left out. Without it, those of the cluster.",
    )
    faster: Annotated[float, Field(gt=0, le=1e6)] = Field(default=1.0, description="Run times are divided by it.")
    shortest: RunTime = Field(default=0.0, description="Jobs that run for less, after `faster`, are left out.")
    longest: RunTime | None = Field(
        default=None, description="Jobs that run for more, after `faster`, are left out; without it, none are."
    )
    load: Annotated[float, Field(gt=0, le=100)] = Field(
        default=0.9,
        description="Work that comes per time, of what the nodes can do. Arrivals are moved closer together or apart.",
    )
    given: GivenChoices = Field(default_factory=GivenChoices, description="What lists of jobs do not say.")
    step: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description="Run times are whole steps of this length, and jobs come half a step after one; without it, exact.",
    )

    @model_validator(mode="after")
    def _verify(self) -> ListConfig:
        if self.jobs_from not in published_clusters():
            path = Path(self.jobs_from)
            if not path.is_file():
                known = ", ".join(published_clusters())
                raise ValueError(f"jobs_from: {self.jobs_from!r} is not a file, and none of {known}")
            note_file(path)
        if self.longest is not None and self.longest <= self.shortest:
            raise ValueError(f"longest: {self.longest:g} s is not above shortest, {self.shortest:g} s; raise it")
        return self


@dataclass(frozen=True)
class FittedList:
    """Jobs by the time of their submission. ``left_out``: how many records are none, by the reason; ``what``: whose
    they are."""

    jobs: tuple[Job, ...]
    left_out: Mapping[str, int]
    what: str

    def said(self) -> str:
        """Return what was left out, in words."""
        return "; ".join(f"{count} left out: {why}" for why, count in self.left_out.items())


def fitted_list(config: ListConfig, nodes: int, costs: Costs, seed: int) -> FittedList:
    """Return a list for a cluster of ``nodes`` nodes. Raises ConfigError for a file that is none, or if no job fits."""
    records, what = _records(config, seed)
    left_out: Counter[str] = Counter()
    faster = [replace(one, run_s=one.run_s / config.faster) for one in records]
    kept = [one for one in faster if not _too_short_or_long(config, one, left_out)]
    listed = jobs_of(kept, min(nodes, config.largest or nodes), costs, seed, config.gpus_per_node)
    left_out.update(listed.left_out)
    if not listed.jobs:
        raise ConfigError(
            "job_list", [f"none of {len(records)} jobs fits: {dict(left_out)}; change its limits or nodes"]
        )
    jobs = at_load(listed.jobs, nodes, config.load)
    if config.step is not None:
        jobs = _in_steps(jobs, config, nodes, costs)
    return FittedList(_with_choices(jobs, config.given, seed), left_out, what)


@cache
def _model_of(cluster: str) -> JobModel:
    """Return the model of a published cluster's jobs, which many lists of one config are drawn from."""
    return fit(cluster_summary(cluster))


def _records(config: ListConfig, seed: int) -> tuple[Sequence[JobRecord], str]:
    if config.jobs_from in published_clusters():
        model = _model_of(config.jobs_from)
        return model.draw(config.count, 1.0, config.users, seed), f"drawn as of {config.jobs_from}"
    path = Path(config.jobs_from)
    trace = read_trace(path)
    return trace.jobs[: config.count], f"{trace.format}, {path.name}"


def _too_short_or_long(config: ListConfig, job: JobRecord, left_out: Counter[str]) -> bool:
    if job.run_s < config.shortest:
        left_out[f"ran for less than {config.shortest:g} s"] += 1
        return True
    if config.longest is not None and job.run_s > config.longest:
        left_out[f"ran for more than {config.longest:g} s"] += 1
        return True
    return False


def _in_steps(jobs: Sequence[Job], config: ListConfig, nodes: int, costs: Costs) -> tuple[Job, ...]:
    """Return jobs of whole steps, at the load of the config. They come half a step after a whole one: no job comes in
    the moment of a decision, where the order would be by chance."""
    step_s = config.step
    assert step_s is not None
    whole: Sequence[Job] = [_of_whole_steps(job, step_s, costs) for job in jobs]
    work_s, before_s = (sum(job.nodes * job.work_s for job in some) for some in (whole, jobs))
    if abs(work_s / before_s - 1) > _SAME_LOAD:
        whole = at_load(whole, nodes, config.load)
    return tuple(replace(job, submitted_s=(math.floor(job.submitted_s / step_s) + 0.5) * step_s) for job in whole)


def _of_whole_steps(job: Job, step_s: float, costs: Costs) -> Job:
    """Return a job that makes whole steps, at least one. A user whose jobs take longer than the limit by that states
    another."""
    work_s = max(1, round(job.work_s / step_s)) * step_s
    limit_s = job.limit_s
    if limit_s is not None and work_s > limit_s - costs.start:
        limit_s = LIMIT_FACTOR * work_s + costs.start
    return replace(job, work_s=work_s, limit_s=limit_s)


def _with_choices(jobs: Sequence[Job], given: GivenChoices, seed: int) -> tuple[Job, ...]:
    """Return jobs with what lists do not tell: their priorities, and whether their programs answer a notice."""
    rng = random.Random(f"users' choices {seed}")
    levels = (Priority.HIGH, Priority.UNDER_NORMAL, Priority.NORMAL)
    parts = (given.high, given.under_normal, max(0.0, 1 - given.high - given.under_normal))
    return tuple(
        replace(job, priority=rng.choices(levels, parts)[0], answers=rng.random() >= given.deaf) for job in jobs
    )
