"""The config of ``routing_incast``, and who takes part in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, field_validator

from controllers.planning.policies import ADAPTIVE, ECMP, STATIC, Policy
from controllers.routing import Routing
from experiments.routing_incast.bystanders import Incast, Pair, choose_bystanders
from fabric.config import SizeBytes, Strict, TimeS, unknown_key
from fabric.errors import ConfigError
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.network import Fabric
from runs.config import Choices, Policies, QueueingsConfig
from runs.phase_lengths import PhaseLengths
from runs.plans import planned

Size = Annotated[SizeBytes, Field(ge=1, le=2**36)]


class CongestedConfig(Strict):
    """From when on a port is congested, and a pair slowed.

    That takes a phase without the incast, and says nothing of why: victims (:mod:`fabric.stalls.victims`) are found
    without one.
    """

    backlog: Annotated[SizeBytes, Field(ge=1, lt=2**31)] = Field(
        default=16 * 1024, description="Backlog above which a port counts as full in a sample."
    )
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.05, description="Fraction of a phase's samples in which a port must be full to be congested."
    )
    slowed: Annotated[float, Field(ge=1, le=1e6, strict=False)] = Field(
        default=1.1,
        description="A pair is slowed if its bandwidth alone is more than this many times that beside the incast.",
    )


class ClientsConfig(Strict):
    """The incast: clients that read from every server at once, again and again."""

    clients: Annotated[int, Field(ge=1, le=65_536)] = Field(default=1, description="Clients of the incast.")
    servers: Annotated[int, Field(ge=2, le=65_536)] | None = Field(
        default=None, description="Storage nodes that answer each client. Without it, all."
    )
    request: Size = Field(default=64 * 1024, description="Bytes that a client reads of each server.")
    period: Annotated[TimeS, Field(gt=0)] = Field(
        default=0.4, description="Time from one read of all servers to the next."
    )


class BystandersConfig(Strict):
    """Pairs of hosts that read from each other; the next read begins as soon as one has ended."""

    apart: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=4, description="Pairs that share no port with the incast by static routes."
    )
    crossing: Annotated[int, Field(ge=0, le=65_536)] = Field(
        default=2, description="Pairs that share an uplink of a leaf with the incast."
    )
    request: Size = Field(default=32 * 1024, description="Bytes of a pair's read.")
    service_level: str = Field(
        default=ServiceLevel.STORAGE.label,
        description=(
            "Service Level of the pairs. Another one than `storage` has a lane of its own, in queueings with lanes."
        ),
    )

    @field_validator("service_level")
    @classmethod
    def _known(cls, label: str) -> str:
        labels = [level.label for level in DATA_LEVELS]
        if label not in labels:
            raise ValueError(unknown_key(label, labels))
        return label

    @property
    def level(self) -> ServiceLevel:
        """The service level."""
        return next(level for level in DATA_LEVELS if level.label == self.service_level)


class RoutingIncastConfig(QueueingsConfig):
    """What is played with what, and how long."""

    policies: Policies = Field(
        default_factory=lambda: [STATIC, ECMP, ADAPTIVE], description="Routing policies to compare."
    )
    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.SHARED], description="Queueings, each played with each policy."
    )
    phase_time: Annotated[TimeS, Field(gt=0)] = Field(
        default=12.0, description="Length of each phase: bystanders alone, then with the incast."
    )
    incast: ClientsConfig = Field(default_factory=ClientsConfig, description="The incast of storage nodes on clients.")
    bystanders: BystandersConfig = Field(
        default_factory=BystandersConfig,
        description="Pairs of hosts beside the incast, which show how far its congestion spreads.",
    )
    congested: CongestedConfig = Field(
        default_factory=CongestedConfig, description="From when on a port counts as congested, and a pair as slowed."
    )

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Each in its turn."""
        return tuple(map(self.routing_of, self.policies))

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths.of(self, "phase_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if self.routing.policy != STATIC:
            yield f"routing.policy: {self.routing.policy} is not what decides here; remove it and set policies"
        if self.phase_time < self.incast.period:
            yield f"incast.period: exceeds phase_time, {self.phase_time:g} s; lower it"
        try:
            choose(self, fabric)
        except ConfigError as error:
            yield from error.faults

    def routing_of(self, policy: Policy) -> Routing:
        """Return the routing with that policy."""
        return self.routing.model_copy(update={"policy": policy})


def choose(config: RoutingIncastConfig, fabric: Fabric) -> tuple[Incast, dict[str, tuple[Pair, ...]]]:
    """Return who takes part in the incast, and who stands by. Raises ConfigError if the fabric has too few hosts."""
    incast = Incast.of(fabric, config.incast.clients, config.incast.servers)
    static, hashed = (planned(fabric, Routing(policy=policy)) for policy in (STATIC, ECMP))
    wanted = config.bystanders
    return incast, choose_bystanders(fabric, static, hashed, incast, wanted.apart, wanted.crossing)
