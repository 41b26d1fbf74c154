"""How evenly do routes spread a traffic pattern over a fabric, and what does that leave each flow?

Flows that never run dry go from every NIC of every compute node to others: in a permutation to one, in all-to-all to
all. Each is on one path, by its destination (static) or by a hash of its ports (ECMP). Theory says what each flow
delivers on that path, and how many flows meet on a leaf's uplink.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import Field

from controllers.planning.ecmp import TCP, FiveTuple
from controllers.planning.fairness import max_min_bps
from controllers.planning.paths import planned_path
from controllers.planning.policies import ECMP, POLICIES, STATIC, Policy
from controllers.planning.policies.policy import or_list
from controllers.routing import Routing
from experiments.traffic_patterns.observed import PatternPhase
from experiments.traffic_patterns.summary import Variant, summarize
from fabric.config import TimeS
from fabric.errors import TrafficError, UsageError
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.model.patterns import NicPair, all_to_all_in, compute_nics, permutation
from runs.config import Choices, Policies, QueueingConfig, short_faults
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.flows.pattern_job import PatternJob
from traffic.metrics import payload_fraction


class Pattern(Enum):
    """Who sends to whom."""

    PERMUTATION = "permutation"
    ALL_TO_ALL = "all_to_all"


class TrafficPatternsConfig(QueueingConfig):
    """Draws of each pattern under each policy."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    patterns: Choices[Pattern] = Field(default_factory=lambda: list(Pattern), description="Traffic patterns to play.")
    policies: Policies = Field(default_factory=lambda: [STATIC, ECMP], description="Routing policies to compare.")
    draws: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=3,
        description=(
            "Phases of each pattern and policy: other permutations, and other hashes of ECMP. More narrow the "
            "intervals."
        ),
    )
    most_flows: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=2000,
        description="Most flows of a phase. An all-to-all of more gives each NIC as many others, evenly spread.",
    )
    warm_up: Annotated[TimeS, Field(gt=0)] = Field(default=2.0, description="Begin of each phase that is not measured.")
    measured_time: Annotated[TimeS, Field(gt=0)] = Field(
        default=4.0, description="Time that is measured after the warm-up."
    )

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Each in its turn."""
        return tuple(map(self.routing_of, self.policies))

    def routing_of(self, policy: Policy) -> Routing:
        """Return the routing with that policy."""
        return self.routing.model_copy(update={"policy": policy})

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths({"warm_up + measured_time": self.warm_up + self.measured_time})

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        for moving in (policy for policy in self.policies if policy.moves):
            others = or_list(policy for policy in POLICIES if not policy.moves)
            yield f"policies: {moving}: theory needs paths that stay; use {others}"
        if self.routing.policy != STATIC:
            yield f"routing.policy: {self.routing.policy} is not what decides here; remove it and set policies"
        yield from (f"measured_time: {fault}" for fault in short_faults(fabric, self.measured_time))
        if len(fabric.computes) < 2:
            yield f"topology: {len(fabric.computes)} compute nodes; this needs 2"
            return
        for pattern in self.patterns:
            try:
                self.flows(fabric, pattern, 0)
            except UsageError as error:
                yield f"patterns: {error}"

    def flows(self, fabric: Fabric, pattern: Pattern, draw: int) -> list[NicPair]:
        """Return who sends to whom in one phase. Raises UsageError."""
        nics = compute_nics(fabric)
        if pattern is Pattern.ALL_TO_ALL:
            return all_to_all_in(fabric, nics, self.most_flows)[0]
        return permutation(fabric, nics, random.Random(f"{self.seed} {draw}"))


@dataclass(frozen=True)
class _Played:
    """One phase: its name, and what is played in it."""

    name: str
    pattern: Pattern
    policy: Policy
    draw: int


def run_traffic_patterns(session: Session, config: TrafficPatternsConfig) -> dict[str, Any]:
    """Play all phases and return the summary."""
    session.use_queueing(config.queueing)
    job = PatternJob(session.stage, config.warm_up, config.measured_time, ServiceLevel.NCCL)
    with closing(job):
        job.start()
        for policy in config.policies:
            session.use_routing(config.routing_of(policy), policy.name)
            for pattern in config.patterns:
                for draw in range(config.draws):
                    _play(session, config, job, _Played(f"{pattern.value}_{policy.name}_{draw}", pattern, policy, draw))
    variants = [Variant(pattern.value, policy) for pattern in config.patterns for policy in config.policies]
    flows, uplinks = session.table("pattern_flows"), session.table("pattern_uplinks")
    return summarize(session.live.fabric, variants, flows, uplinks, config.draws)


def _play(session: Session, config: TrafficPatternsConfig, job: PatternJob, played: _Played) -> None:
    """Play a phase and keep the rows of its flows and uplinks."""
    fabric, plan = session.live.fabric, session.live.plan
    flows = config.flows(fabric, played.pattern, played.draw)
    ports = job.connect(flows)
    if missing := [flow for flow in flows if flow not in ports]:
        source, destination = missing[0]
        raise TrafficError(
            f"{played.name}: {source.port} to {destination.port}: no connection ({len(missing)} of {len(flows)})"
        )
    keys = {flow: FiveTuple(flow[0].ip, flow[1].ip, TCP, *ports[flow]) for flow in flows}
    paths = {flow: planned_path(plan, fabric, *flow, key) for flow, key in keys.items()}
    title = f"{played.pattern.value}, {played.policy.name}: {len(flows)} flows"
    outcome = session.run_phase(played.name, title, [job], config.warm_up + config.measured_time)
    fair = max_min_bps(fabric, [paths[flow] for flow in flows])
    payload = payload_fraction(fabric.mtu_bytes)
    fair_bps = {flow: rate * payload for flow, rate in zip(flows, fair, strict=True)}
    seen = PatternPhase(played.name, played.pattern.value, played.policy.name, paths, job.goodput_bps, fair_bps)
    measured_s = (outcome.began_s + config.warm_up, outcome.began_s + config.warm_up + config.measured_time)
    session.keep_frame("pattern_flows", seen.flows_frame())
    session.keep_frame("pattern_uplinks", seen.uplinks_frame(fabric, session.table("ports"), measured_s))
