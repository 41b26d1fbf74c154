"""What do the flash cuts of Fire-Flyer 2's year cost, by repair policy?

The paper's year (213 cuts on 100 days, arXiv 2408.14158v2, Table VIII) is replayed in compressed time under training
and storage, once for each policy and duration, the same cuts each time. Compression is of the time between cuts, not of
cuts: it makes them overlap more often, and take a larger share of the time, than in the paper's year; the summary
states by how much. What carries over is what a cut costs; a year costs that as often as it has cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AfterValidator, Field

from experiments.flash_cut_year.flash_cuts import FlashCutReplay, flash_cut_days, flash_cut_replay
from experiments.flash_cut_year.goodput import (
    Spans,
    hits,
    lost_fraction,
    overlapping_fraction,
    rate_per_s,
    spans,
    work_done,
)
from experiments.flash_cut_year.summary import PlayedYear, YearScenario, summarize
from experiments.flash_cut_year.tables import TABLES
from experiments.link_flap.cuts import covering_flows, crossed_links
from experiments.link_flap.run import ComparedPolicies
from fabric.config import Strict, TimeS
from fabric.errors import ConfigError, TrafficError
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric, Tier
from fabric.units import exact_in, format_time
from runs.config import Duration, each_once, storage_faults
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import PhaseOutcome, Session
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.flows.probes import ProbeConfig, ProbeJob
from traffic.job import Job
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob

UNDISTURBED = "undisturbed"


class YearConfig(Strict):
    """The replay (see :class:`experiments.flash_cut_year.flash_cuts.FlashCutReplay`)."""

    day: Duration = Field(
        default=0.25,
        description="Length of a day here. Shorter replays faster; cuts keep their length, so more of them overlap.",
    )
    days: Annotated[int, Field(ge=1, le=36_500)] = Field(default=365, description="Days to replay.")
    block_days: Annotated[int, Field(ge=1, le=36_500)] = Field(
        default=7, description="Days of the paper that are drawn together, which keeps its bursts of cuts."
    )
    tiers: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: [tier.value for tier in Tier], description="Tiers whose links are cut."
    )
    scale_by_links: bool = Field(
        default=False, description="Whether a fabric with fewer links than the paper's has fewer cuts in proportion."
    )

    def replay(self, duration_s: float) -> FlashCutReplay:
        """Return the replay with cuts of a duration."""
        return FlashCutReplay.model_validate({"for": duration_s, **self.model_dump(), "tiers": tuple(self.tiers)})


class FlashCutYearConfig(ComparedPolicies):
    """Each policy plays the year once for every duration of its cuts.

    ``sample_period`` may be longer here than in other experiments, for a year has many samples of every queue, all in
    memory at the end: in virtual time a program can have a few hundred MB (see ``explain_failure`` of the guest).
    """

    sample_period: Annotated[TimeS, Field(gt=0, le=1)] = Field(
        default=0.25,
        description=(
            "Time between two samples of every queue. Long here, since a year has many samples, all in memory "
            "at the end."
        ),
    )
    durations: Annotated[list[Duration], Field(min_length=1), AfterValidator(each_once)] = Field(
        description="How long each cut lasts; the year is played once per duration. The paper does not give it."
    )
    year: YearConfig = Field(default_factory=YearConfig, description="The days to replay, and how long one takes here.")
    undisturbed_time: Duration = Field(
        default=15.0,
        description=(
            "Length of the first phase, in which nothing is cut, for comparison. It must hold two steps of a job."
        ),
    )
    jobs_per_zone: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=2, description="Training jobs to which the compute nodes of each zone are dealt."
    )
    checkpoint_interval: Annotated[TimeS, Field(gt=0)] = Field(
        default=300.0, description="Time between two checkpoints; a job that fails loses half of it on average."
    )
    probes: ProbeConfig = Field(
        default_factory=lambda: ProbeConfig(period=0.01), description="Probes that measure blackouts."
    )
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce of each training job.")
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="The reads and writes of the training jobs."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """That in which nothing is cut, and those of the year."""
        year_s = self.year.day * self.year.days
        return PhaseLengths({"undisturbed_time": self.undisturbed_time, "year.day x year.days": year_s})

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        try:
            self.year.replay(min(self.durations)).links(fabric)
        except (ConfigError, ValueError) as error:
            yield f"year: {error}"
        for zone in range(fabric.zones):
            computes = len(fabric.with_role(Role.COMPUTE, zone))
            if computes < 2 * self.jobs_per_zone:
                jobs = f"{self.jobs_per_zone} jobs of 2 nodes or more"
                yield f"jobs_per_zone: {jobs} exceed the {computes} computes of zone {zone}; lower it"
        yield from storage_faults(fabric, "storage is part of the question")


def training_groups(fabric: Fabric, jobs_per_zone: int) -> dict[str, tuple[NodeId, ...]]:
    """Return the nodes of each training job by its name: those of a zone dealt in turn, so that jobs share leaves."""
    return {
        f"z{zone}j{number}": fabric.with_role(Role.COMPUTE, zone)[number::jobs_per_zone]
        for zone in range(fabric.zones)
        for number in range(jobs_per_zone)
    }


@dataclass(frozen=True)
class _Jobs:
    training: tuple[HFReduceJob, ...]
    storage: StorageJob
    probes: ProbeJob

    @property
    def all(self) -> list[Job]:
        return [*self.training, self.storage, self.probes]


@dataclass(frozen=True)
class _Calm:
    """What jobs do when nothing is cut: steps a second and the slowest step of each, storage's bytes a second."""

    steps_per_s: tuple[float, ...]
    slowest_s: tuple[float, ...]
    storage_Bps: float  # noqa: N815 - bytes, not bits, as metrics call it


def run_flash_cut_year(session: Session, config: FlashCutYearConfig) -> dict[str, Any]:
    """Play an undisturbed phase, then a year for each policy and duration; return the summary."""
    session.use_queueing(Queueing.LANES)
    first = next(iter(config.policies))
    session.use_routing(config.policies[first], first)
    played: list[PlayedYear] = []
    with _playing(session, config) as jobs:
        outcome = session.run_phase(UNDISTURBED, "nothing is cut", jobs.all, config.undisturbed_time)
        calm = _calm(session, jobs, outcome, config.undisturbed_time)
        for name, routing in config.policies.items():
            session.use_routing(routing, name)
            for duration_s in config.durations:
                played.append(_play_year(session, config, jobs, calm, duration_s))
        verification = jobs.storage.verify_acknowledged()
    return summarize(session, played, config.checkpoint_interval, verification)


@contextmanager
def _playing(session: Session, config: FlashCutYearConfig) -> Iterator[_Jobs]:
    stage, fabric = session.stage, session.live.fabric
    training = [
        HFReduceJob(stage, config.hfreduce, nodes, name=name)
        for name, nodes in training_groups(fabric, config.jobs_per_zone).items()
    ]
    flows = covering_flows(crossed_links(fabric, session.live.plan), fabric.computes)
    probes = ProbeJob(stage, config.probes, flows, ServiceLevel.CONTROL)
    jobs = _Jobs(tuple(training), StorageJob(stage, config.storage, fabric.computes), probes)
    session.tell(f"{len(training)} training jobs, storage and {len(flows)} flows of probes")
    with started(session, jobs.all):
        yield jobs


def _calm(session: Session, jobs: _Jobs, outcome: PhaseOutcome, seconds: float) -> _Calm:
    """Return what a phase of some seconds had while all jobs played: from the last one's first step until they halt.

    Raises TrafficError if that is no time.
    """
    phase = outcome.phase
    steps = _steps(session, jobs, outcome)
    from_s = max(found[0, 1] if len(found) else phase.ended_s for found in steps)
    to_s = phase.started_s + seconds
    if from_s >= to_s:
        raise TrafficError(f"phase {phase.name}: no job ended two steps within {seconds:g} s; raise undisturbed_time")
    return _Calm(
        tuple(rate_per_s(found, from_s, to_s) for found in steps),
        tuple(float((found[:, 1] - found[:, 0]).max()) for found in steps),
        _storage_bytes_per_s(session, phase.name, from_s, to_s),
    )


def _steps(session: Session, jobs: _Jobs, outcome: PhaseOutcome) -> list[Spans]:
    """Return the steps of each training job in a phase, in seconds of the run."""
    rows = outcome.records.rows("steps")
    return [
        spans(
            [
                (row["started_s"] - session.origin, row["ended_s"] - session.origin)
                for row in rows
                if row["job"] == job.name
            ]
        )
        for job in jobs.training
    ]


def _storage_bytes_per_s(session: Session, phase: str, from_s: float, to_s: float) -> float:
    operations = session.table("operations")
    inside = operations[(operations["phase"] == phase) & operations["operation"].isin(["read", "write"])]
    return metrics.operation_bandwidth(inside, from_s, to_s)


def _play_year(session: Session, config: FlashCutYearConfig, jobs: _Jobs, calm: _Calm, duration_s: float) -> PlayedYear:
    """Play the year under the routing in use and return what it cost; adds its days to the tables."""
    fabric, replay = session.live.fabric, config.year.replay(duration_s)
    schedule = flash_cut_replay(replay, fabric, config.seed)
    days = flash_cut_days(replay, len(replay.links(fabric)), config.seed)
    label = session.routing_label
    outcome = session.run_phase(
        f"{label}_{exact_in(duration_s, 1000)}ms",
        f"{label}: a year of cuts of {format_time(duration_s)}",
        jobs.all,
        replay.length_s,
        schedule,
    )
    failures = session.table("failures")
    failures = failures[failures["phase"] == outcome.phase.name]
    cuts = down_spans(failures, outcome.phase.ended_s)
    edges = outcome.began_s + np.arange(len(days) + 1) * replay.day
    steps = _steps(session, jobs, outcome)
    lost_by_day = _lost_by_day(steps, calm, edges)
    blackouts = _blackouts(session, outcome.phase.name, config.probes.period)
    session.keep_frame("days", _day_rows(outcome, duration_s, days, lost_by_day, blackouts, edges))
    felt = np.array([hits(found, cuts, slow) for found, slow in zip(steps, calm.slowest_s, strict=True)])
    storage = _storage_bytes_per_s(session, outcome.phase.name, edges[0], edges[-1])
    return PlayedYear(
        YearScenario(label, duration_s, outcome.phase.name, replay.length_s, replay.compression, days),
        cuts=len(cuts),
        overlapping=overlapping_fraction(cuts),
        training_lost=float(np.mean(lost_by_day)),
        storage_lost=lost_fraction(storage, calm.storage_Bps),
        hits=int(felt.sum()),
        cuts_felt=int(felt.any(axis=0).sum()) if len(cuts) else 0,
        jobs=len(jobs.training),
        jobs_hit=int(felt.any(axis=1).sum()),
        blackout_s=float(blackouts["blackout_s"].sum()),
        probe_flows=len(jobs.probes.flows),
        failed=len(outcome.records.rows("restarts")),
    )


def down_spans(failures: pd.DataFrame, ended_s: float) -> Spans:
    """Return when links were down, by rows of the ``failures`` table, in order of their beginning."""
    found = []
    for _, rows in failures.sort_values("asked_s", kind="stable").groupby("link", observed=True):
        began: float | None = None
        for up, asked_s, done_s in zip(rows["up"], rows["asked_s"], rows["done_s"], strict=True):
            if not up and began is None:
                began = asked_s
            elif up and began is not None:
                found.append((began, done_s))
                began = None
        if began is not None:
            found.append((began, ended_s))
    return spans(sorted(found))


def _lost_by_day(steps: Sequence[Spans], calm: _Calm, edges: Any) -> Any:
    """Return what part of the training of an undisturbed day each day lacks, over all jobs alike; shape (days,)."""
    relative = [
        work_done(found, edges) / np.diff(edges) / rate for found, rate in zip(steps, calm.steps_per_s, strict=True)
    ]
    return 1 - np.mean(relative, axis=0)


def _blackouts(session: Session, phase: str, period_s: float) -> pd.DataFrame:
    found = session.table("blackouts")
    found = found[found["phase"] == phase]
    return found.assign(blackout_s=(found["ended_s"] - found["began_s"] - period_s).clip(lower=0))


def _day_rows(
    outcome: PhaseOutcome, duration_s: float, days: Sequence[int], lost: Any, blackouts: pd.DataFrame, edges: Any
) -> pd.DataFrame:
    places = np.clip(np.searchsorted(edges, blackouts["began_s"], side="right") - 1, 0, len(days) - 1)
    seconds = np.bincount(places, weights=blackouts["blackout_s"], minlength=len(days))
    columns: Mapping[str, Any] = {
        "phase": outcome.phase.name,
        "routing": outcome.phase.routing,
        "duration_s": duration_s,
        "day": np.arange(len(days)),
        "cuts": np.array(days),
        "goodput_lost": lost,
        "blackout_s": seconds,
    }
    return pd.DataFrame(columns, columns=list(TABLES["days"].columns))
