"""The config of ``queue_pairs``: how many queue pairs, with which source ports, and who writes to whom."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from controllers.planning.policies import ECMP, STATIC
from controllers.routing import Routing
from fabric.config import SizeBytes, TimeS
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths
from traffic.flows.messages import Message
from traffic.transport.queue_pairs import MOST_LABELS, FlowLabels

Count = Annotated[int, Field(ge=1, le=256)]


def label_words(labels: int | None) -> str:
    """Return how source ports are chosen, in words."""
    return "ports by numbers" if labels is None else f"{labels} label{'s' * (labels > 1)}"


class QueuePairsConfig(QueueingConfig):
    """The cases: every combination of ``queue_pairs`` and ``flow_labels``, ``draws`` times."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing in which messages play."
    )
    queue_pairs: Annotated[list[Count], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [1, 2, 4, 8, 16], description="Numbers of queue pairs from a host to its peer."
    )
    flow_labels: Annotated[list[FlowLabels], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [None, MOST_LABELS],
        description="From how many flow labels queue pairs draw theirs; `off`: NICs compute source ports themselves.",
    )
    draws: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=2, description="How often each is played, with other pairs of hosts and other hashes of switches."
    )
    message: Annotated[SizeBytes, Field(ge=1, le=2**36)] = Field(
        default=1_000_000, description="What a host writes to its peer, divided among its queue pairs."
    )
    patience: Annotated[TimeS, Field(gt=0)] = Field(
        default=600.0, description="Longest time that a message may take before the run fails."
    )

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """A draw's each."""
        return tuple(map(self.routing_of, range(1, self.draws + 1)))

    def routing_of(self, draw: int) -> Routing:
        """Return ECMP, with the hashes of a draw."""
        update = {"policy": ECMP, "hash_seed": (self.routing.hash_seed + 1009 * self.seed + draw) % 2**16}
        return self.routing.model_copy(update=update)

    def messages(self, fabric: Fabric, draw: int) -> list[Message]:
        """Return a message from each host to one at another leaf, to each by one."""
        order = random.Random(f"{self.seed} {draw}")
        groups = _by_leaf(fabric)
        pairs: list[tuple[NodeId, NodeId]] = []
        for sources, sinks in zip(groups, [*groups[1:], groups[0]], strict=True):
            pairs += zip(sources, order.sample(sinks, len(sinks)), strict=True)
        return [Message(source, sink, self.message) for source, sink in pairs]

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as messages take."""
        return PhaseLengths(until="all messages have arrived")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if not self.transport.is_rdma:
            yield f"transport.kind: {self.transport.kind} has no queue pairs; use verbs"
        if self.routing.policy != STATIC:
            yield f"routing.policy: {self.routing.policy} is not what decides here; remove it"
        groups = _by_leaf(fabric)
        if len(groups) < 2 or len({*map(len, groups)}) > 1:
            yield f"topology: {fabric.name} has no two leaves with as many hosts each; use eight_spines"


def _by_leaf(fabric: Fabric) -> list[list[NodeId]]:
    """Return the compute nodes of each leaf that has some."""
    found = [[nic.node for nic in fabric.nics_on_leaf(leaf)] for leaf in fabric.with_role(Role.LEAF)]
    return [group for group in found if group]
