"""Does an incast's congestion spread further with adaptive routing?

All storage nodes answer a client at once, without a request-to-send, again and again, while pairs of other hosts read
from each other (:mod:`experiments.routing_incast.bystanders`); with each routing policy, once those bystanders alone
and once with the incast. Fire-Flyer 2 routes statically and deals storage nodes evenly over leaves, since adaptive
routing spread the congestion of incasts further (arXiv 2408.14158v2, VI-A2). Its fabric is lossless; where queues drop,
a full port does not pause those before it, and only the spreading by routes is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

from pydantic import Field, field_validator

from controllers.planning.policies import ECMP, POLICIES, STATIC, Policy
from controllers.routing import Routing
from experiments.routing_incast.bystanders import Incast, Pair, choose_bystanders
from experiments.routing_incast.spreading import CongestedConfig
from experiments.routing_incast.summary import INCAST, Move, PhaseObservations, Variant, summarize
from fabric.config import SizeBytes, Strict, TimeS, unknown_key
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.network import Fabric, Port
from runs.config import Choices, Policies, QueueingsConfig
from runs.phase_lengths import PhaseLengths
from runs.plans import planned
from runs.session import PhaseOutcome, Session
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.job import Job

Size = Annotated[SizeBytes, Field(ge=1, le=2**36)]


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

    policies: Policies = Field(default_factory=lambda: list(POLICIES), description="Routing policies to compare.")
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


def run_routing_incast(session: Session, config: RoutingIncastConfig) -> dict[str, Any]:
    """Play two phases for each queueing and policy, and return the summary."""
    incast, pairs = choose(config, session.live.fabric)
    seen: dict[str, PhaseObservations] = {}
    with ExitStack() as stack:
        bystanders = FanInJob(session.stage, _bystanders(config, pairs), config.bystanders.level)
        answers = FanInJob(session.stage, _incast(config, incast), ServiceLevel.STORAGE)
        for job in (bystanders, answers):
            stack.callback(job.close)
            job.start()
        for variant in variants(config):
            session.use_queueing(variant.queueing)
            session.use_routing(config.routing_of(variant.policy), variant.policy.name)
            alone, beside = f"{variant.title}: bystanders alone", f"{variant.title}: incast"
            seen[variant.alone] = _play(session, config, variant.alone, alone, [bystanders])
            seen[variant.beside] = _play(session, config, variant.beside, beside, [bystanders, answers])
    return summarize(session, variants(config), config.congested, incast, pairs, seen)


def variants(config: RoutingIncastConfig) -> tuple[Variant, ...]:
    """Return what is played, in order."""
    return tuple(Variant(queueing, policy) for queueing in config.queueings for policy in config.policies)


def _bystanders(config: RoutingIncastConfig, pairs: dict[str, tuple[Pair, ...]]) -> list[FanIn]:
    size = config.bystanders.request
    return [FanIn(kind, pair.reader, (pair.server,), size) for kind, found in pairs.items() for pair in found]


def _incast(config: RoutingIncastConfig, incast: Incast) -> list[FanIn]:
    wanted = config.incast
    return [FanIn(INCAST, client, incast.servers, wanted.request, wanted.period) for client in incast.clients]


def _play(
    session: Session, config: RoutingIncastConfig, name: str, title: str, jobs: list[FanInJob]
) -> PhaseObservations:
    playing: list[Job] = list(jobs)
    outcome = session.run_phase(name, title, playing, config.phase_time)
    return PhaseObservations(_moves(session, outcome), sum(job.reorderings for job in jobs))


def _moves(session: Session, outcome: PhaseOutcome) -> tuple[Move, ...]:
    """Return what adaptive routing has moved in a phase."""
    fabric, phase = session.live.fabric, outcome.phase
    moves = []
    for event in session.live.controller.events():
        at_s = event.at_s - session.origin
        if event.kind == "moved" and phase.started_s <= at_s <= phase.ended_s:
            for leaf, ip, number in event.details["moves"]:
                spine = fabric.peer(Port(NodeId.parse(leaf), number)).node
                moves.append(Move(at_s, leaf, fabric.nic_at_ip[ip].node.name, spine.name))
    return tuple(moves)
