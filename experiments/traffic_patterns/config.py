"""The config of ``traffic_patterns``, and which flows are played."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import Field

from controllers.planning.policies import ECMP, POLICIES, STATIC, Policy
from controllers.planning.policies.policy import or_list
from controllers.routing import Routing
from fabric.config import TimeS
from fabric.errors import UsageError
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.model.patterns import NicPair, all_to_all_in, compute_nics, permutation
from runs.config import Choices, Policies, QueueingConfig, short_faults
from runs.phase_lengths import PhaseLengths


class Pattern(Enum):
    """Who sends to whom."""

    PERMUTATION = "permutation"
    ALL_TO_ALL = "all_to_all"

    @property
    def words(self) -> str:
        """It as people read it."""
        return self.value.replace("_", "-")


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
    warm_up: Annotated[TimeS, Field(gt=0)] = Field(default=2.0, description="Start of each phase that is not measured.")
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
        return PhaseLengths({"warm_up + measured_time": self.lasts_s})

    @property
    def lasts_s(self) -> float:
        """The length of a phase."""
        return self.warm_up + self.measured_time

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
