"""What does a flapping link cost training and storage, and which repair keeps it small?

The same cuts of the same links, under the same jobs on one fabric, once for each repair policy. Probe flows that cross
the cut measure how long the network was away; the controller's log shows when it noticed and reacted; steps of an
allreduce and operations of storage show the effect on programs. The share of TCP (it retransmits after 200 ms at the
earliest, then after twice as long each time) is the difference between a blackout and the stall of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from controllers.planning.policies import POLICIES
from controllers.planning.policies.policy import or_list
from controllers.routing import Routing
from experiments.link_flap.cuts import (
    Crossed,
    Cut,
    CutTarget,
    Place,
    choose_flows,
    choose_targets,
    crossed_links,
    crossing,
    cut_schedule,
    plan_cuts,
)
from experiments.link_flap.recovery import Outlasted, PhaseTables, cut_tables, outlasted, windows
from experiments.link_flap.summary import few_cuts_notes, outlasting_notes, summarize
from fabric.errors import ConfigError
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.units import exact_in, format_time
from runs.config import Choices, Duration, RunConfig, each_once
from runs.jobs import hfreduce_ranks, started
from runs.phase_lengths import PhaseLengths
from runs.placement import RankOrder
from runs.plans import planned
from runs.session import PhaseOutcome, Session
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.flows.probes import ProbeConfig, ProbeFlow, ProbeJob
from traffic.job import Job
from traffic.storage.client.verification import Verification
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob

UNDISTURBED = "undisturbed"
PolicyName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class LoadKind(str, Enum):
    """What plays beside the probes."""

    HFREDUCE = "hfreduce"
    STORAGE = "storage"


class ComparedPolicies(RunConfig):
    """Policies under which links are cut, each in its turn."""

    policies: Annotated[dict[PolicyName, Routing], Field(min_length=1)] = Field(
        description="Routing and repair policies to compare, by a name of your own."
    )

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Each in its turn."""
        return tuple(self.policies.values())

    @property
    def cuts_links(self) -> bool:
        """Whatever its config says."""
        return True

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric, policies under which nobody could say which flows a cut hits, and what
        would be cut beside what the experiment cuts."""
        yield from super().faults(fabric)
        for name, routing in self.policies.items():
            if not routing.policy.is_by_destination:
                others = or_list(policy for policy in POLICIES if policy.is_by_destination)
                why = "routes by more than the destination, so the plan cannot show which flows a cut hits"
                yield f"policies.{name}.policy: {routing.policy} {why}; use {others}"
        if self.failures:
            compared = "cuts links by itself, and compares with when nothing is cut"
            yield f"failures: {self.experiment} {compared}; remove them"
        if self.routing != Routing():
            yield f"routing: {self.experiment} compares its own policies; write it under policies"


class LinkFlapConfig(ComparedPolicies):
    """Cuts of every place, each of every duration, under every policy."""

    durations: Annotated[list[Duration], Field(min_length=1), AfterValidator(each_once)] = Field(
        description="How long a cut lasts; each is played."
    )
    places: Choices[Place] = Field(
        description="Where links are cut: at a host, between leaf and spine, between zones, or a whole spine switch."
    )
    cuts: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1,
        description="Cuts of each place, duration and policy. More narrow the intervals, and lengthen the run.",
    )
    targets: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=4, description="Links or switches of a place that are cut in turn, drawn by the seed."
    )
    flows: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=2, description="Probe flows that cross each link or switch that is cut, at least."
    )
    gap: Duration = Field(
        default=2.0,
        description=(
            "Time from a link's return to the next cut. Load should recover within it: what outlasts it disturbs the "
            "next cut, and a note beside the verdict says so."
        ),
    )
    undisturbed_time: Duration = Field(
        default=8.0, description="Length of the first phase, in which nothing is cut, for comparison."
    )
    loads: list[Annotated[LoadKind, Field(strict=False)]] = Field(
        default_factory=lambda: list(LoadKind), description="What plays beside the probes."
    )
    probes: ProbeConfig = Field(default_factory=ProbeConfig, description="Probes that measure blackouts.")
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce that plays.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The reads and writes that play.")

    @property
    def phase_lengths(self) -> PhaseLengths:
        """That in which nothing is cut; the others last as long as the cuts."""
        return PhaseLengths.of(self, "undisturbed_time", until="all cuts are over")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric, or cannot be compared."""
        yield from super().faults(fabric)
        shortest = min(self.durations)
        if shortest < 2 * self.probes.period:
            limit = f"a cut of {format_time(shortest)} would fall between two probes"
            yield f"probes.period: {format_time(self.probes.period)} is too long: {limit}; lower it"
        if LoadKind.STORAGE in self.loads and not fabric.storages:
            yield "loads: storage, yet the topology has no storage nodes; give it some, or remove storage"
        try:
            targets_of(self, fabric, crossed_links(fabric, planned(fabric, Routing())))
        except ConfigError as error:
            yield from error.faults


def targets_of(config: LinkFlapConfig, fabric: Fabric, crossed: Crossed) -> dict[Place, tuple[CutTarget, ...]]:
    """Return what is cut of each place. Raises ConfigError."""
    return {place: choose_targets(fabric, crossed, place, config.targets, config.seed) for place in config.places}


@dataclass(frozen=True)
class _Jobs:
    """The traffic of a run; what its config leaves out is None."""

    probes: ProbeJob
    hfreduce: HFReduceJob | None
    storage: StorageJob | None

    @property
    def all(self) -> list[Job]:
        """Those that play; the collective is halted first."""
        return [job for job in (self.hfreduce, self.storage, self.probes) if job is not None]


def run_link_flap(session: Session, config: LinkFlapConfig) -> dict[str, Any]:
    """Play an undisturbed phase, then one for each policy and duration; return the summary."""
    session.use_queueing(Queueing.LANES)
    first = next(iter(config.policies))
    session.use_routing(config.policies[first], first)
    crossed = crossed_links(session.live.fabric, session.live.plan)
    targets = targets_of(config, session.live.fabric, crossed)
    flows = choose_flows(crossed, [target for found in targets.values() for target in found], config.flows)
    with _playing(session, config, flows) as jobs:
        session.run_phase(UNDISTURBED, "nothing is cut", jobs.all, config.undisturbed_time)
        longer: list[Outlasted] = []
        for name, routing in config.policies.items():
            session.use_routing(routing, name)
            for duration_s in config.durations:
                longer += _cut_phase(session, config, jobs, targets, duration_s)
        written = _written(jobs)
    summary = summarize(session, config.policies, config.probes.period, written)
    cuts = session.table("cuts")
    return {**summary, "notes": [*outlasting_notes(longer, len(cuts)), *few_cuts_notes(cuts)]}


def _written(jobs: _Jobs) -> Verification | None:
    if jobs.storage is None:
        return None
    return jobs.storage.verify_acknowledged()


def _cut_phase(
    session: Session,
    config: LinkFlapConfig,
    jobs: _Jobs,
    targets: Mapping[Place, Sequence[CutTarget]],
    duration_s: float,
) -> list[Outlasted]:
    """Play the cuts of one duration under the routing in use, and keep what each did; return what outlasted a
    window."""
    lead_s = min(0.5, config.gap)
    cuts = plan_cuts(targets, config.cuts, duration_s, config.gap, lead_s, config.seed)
    label = session.routing_label
    outcome = session.run_phase(
        f"{label}_{exact_in(duration_s, 1000)}ms",
        f"{label}: cuts of {format_time(duration_s)}",
        jobs.all,
        cuts[-1].ends_s + config.gap,
        cut_schedule(cuts),
    )
    return keep_cuts(session, outcome, cuts, jobs.probes.flows, config.probes.period)


def keep_cuts(
    session: Session, outcome: PhaseOutcome, cuts: Sequence[Cut], flows: Sequence[ProbeFlow], period_s: float
) -> list[Outlasted]:
    """Add what the cuts of a phase did to the tables of the run; return what outlasted a window."""
    live, phase = session.live, outcome.phase
    crossed = crossed_links(live.fabric, live.plan)
    felt = felt_in(session, phase.name)
    found = windows(cuts, felt.failures, phase)
    by_cut = {cut.number: crossing(crossed, flows, cut.target) for cut in cuts}
    cut_rows, flow_rows = cut_tables(phase, found, felt, by_cut, period_s)
    session.keep_frame("cuts", cut_rows)
    session.keep_frame("cut_flows", flow_rows)
    return list(outlasted(found, felt, period_s))


def felt_in(session: Session, phase: str) -> PhaseTables:
    """Return the tables of a phase, and what steps and operations take in the undisturbed one."""
    names = ("failures", "controller", "blackouts", "steps", "operations")
    tables = {name: session.table(name) for name in names}
    steps = tables["steps"]
    operations = tables["operations"]
    of_kind = {kind: operations[operations["operation"] == kind] for kind in ("read", "write")}
    rows = {"step": steps} | of_kind
    taken = {kind: (of["ended_s"] - of["started_s"])[of["phase"] == UNDISTURBED] for kind, of in rows.items()}
    return PhaseTables(
        **{name: table[table["phase"] == phase] for name, table in tables.items()},
        undisturbed_step_s=float(taken["step"].median()) if len(taken["step"]) else math.nan,
        longest_s={kind: float(of.max()) for kind, of in taken.items() if len(of)},
    )


@contextmanager
def _playing(session: Session, config: LinkFlapConfig, flows: Sequence[ProbeFlow]) -> Iterator[_Jobs]:
    """Start the jobs for the time of a block."""
    stage, computes = session.stage, session.live.fabric.computes
    hfreduce = None
    if LoadKind.HFREDUCE in config.loads:
        hfreduce = HFReduceJob(stage, config.hfreduce, hfreduce_ranks(session, config.hfreduce, RankOrder.ROUTES))
    storage = StorageJob(stage, config.storage, computes) if LoadKind.STORAGE in config.loads else None
    jobs = _Jobs(ProbeJob(stage, config.probes, flows, ServiceLevel.CONTROL), hfreduce, storage)
    session.tell(f"{len(flows)} flows of probes")
    with started(session, jobs.all):
        yield jobs
