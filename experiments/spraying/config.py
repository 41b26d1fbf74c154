"""The config of ``spraying``: how messages are spread, who sends to whom, in which queues, with which links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from controllers.planning.policies import ADAPTIVE, ECMP, ENTROPY, ROUND_ROBIN, SPRAY, STATIC, Policy
from controllers.routing import Repair, Routing
from fabric.config import SizeBytes, TimeS
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.identity import Role
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from runs.config import Choices, QueueingsConfig, each_once
from runs.phase_lengths import PhaseLengths
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.collectives.nccl import NcclConfig
from traffic.flows.messages import Message, all_to_all, bound_s, incast, permuted
from traffic.metrics import ideal_algbw, payload_fraction
from traffic.transport.message_config import Control
from traffic.transport.reordering import TransportConfig

_LEAST_S = 0.001


class Spreading(Enum):
    """How a message is spread over paths."""

    STATIC = "static"
    ECMP = "ecmp"
    ECMP_4 = "ecmp_4"
    ECMP_16 = "ecmp_16"
    ADAPTIVE = "adaptive"
    SPRAY_RACK = "spray_rack"
    SPRAY = "spray"
    ROUND_ROBIN = "round_robin"
    ENTROPY = "entropy"
    MESSAGES = "messages"
    MESSAGES_CREDITS = "messages_credits"
    MESSAGES_NSCC = "messages_nscc"

    @property
    def policy(self) -> Policy:
        """The routing policy."""
        return _POLICIES[self]

    @property
    def flows(self) -> int:
        """The connections of a message."""
        return {Spreading.ECMP_4: 4, Spreading.ECMP_16: 16}.get(self, 1)

    @property
    def tolerates_reordering(self) -> bool:
        """Whether the transport is told that packets overtake each other."""
        return self.policy.sprays and self is not Spreading.SPRAY_RACK

    def transport(self, config: TransportConfig) -> TransportConfig:
        """Return the transport of this spreading: the run's own, or messages with this control. Only sprayed packets
        may overtake each other."""
        config = config.model_copy(update={} if self.tolerates_reordering else {"reordering": None})
        if self not in _CONTROLS:
            return config
        paths = config.messages.paths if self.policy.sprays else max(config.messages.paths, _PATHS)
        messages = config.messages.model_copy(update={"control": _CONTROLS[self], "paths": paths})
        return config.model_copy(update={"kind": "messages", "messages": messages})

    @property
    def words(self) -> str:
        """It as people read it."""
        return _WORDS.get(self, self.value.replace("_", " "))


_POLICIES = {
    Spreading.STATIC: STATIC,
    Spreading.ECMP: ECMP,
    Spreading.ECMP_4: ECMP,
    Spreading.ECMP_16: ECMP,
    Spreading.ADAPTIVE: ADAPTIVE,
    Spreading.SPRAY_RACK: SPRAY,
    Spreading.SPRAY: SPRAY,
    Spreading.ROUND_ROBIN: ROUND_ROBIN,
    Spreading.ENTROPY: ENTROPY,
    Spreading.MESSAGES: SPRAY,
    Spreading.MESSAGES_CREDITS: SPRAY,
    Spreading.MESSAGES_NSCC: ECMP,
}
_CONTROLS = {
    Spreading.MESSAGES: Control.LINE,
    Spreading.MESSAGES_CREDITS: Control.CREDITS,
    Spreading.MESSAGES_NSCC: Control.NSCC,
}
_PATHS = 128
"""Of a sender that chooses them by marks: htsim's."""
_WORDS = {
    Spreading.ECMP: "ECMP, 1 flow",
    Spreading.ECMP_4: "ECMP, 4 flows",
    Spreading.ECMP_16: "ECMP, 16 flows",
    Spreading.SPRAY_RACK: "spray, RACK",
    Spreading.MESSAGES: "messages, line",
    Spreading.MESSAGES_CREDITS: "messages, credits",
    Spreading.MESSAGES_NSCC: "messages, NSCC",
}


class Load(Enum):
    """What plays: messages between hosts, or a step of an allreduce."""

    PERMUTATION = "permutation"
    INCAST = "incast"
    ALL_TO_ALL = "all_to_all"
    RING = "ring"
    HFREDUCE = "hfreduce"

    @property
    def is_collective(self) -> bool:
        """Whether it is an allreduce."""
        return self in (Load.RING, Load.HFREDUCE)

    @property
    def words(self) -> str:
        """It as people read it."""
        return {Load.HFREDUCE: "HFReduce", Load.ALL_TO_ALL: "all-to-all"}.get(self, self.value)


def links_words(failed: int) -> str:
    """Return which links there are, in words."""
    return f"{failed} uplink{'s' * (failed > 1)} failed" if failed else "all links"


Count = Annotated[int, Field(ge=0, le=64)]


class SprayingConfig(QueueingsConfig):
    """The cases: every combination of ``queueings``, ``spreadings``, ``failed_uplinks`` and ``loads``."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LOSSLESS, Queueing.SHARED], description="Queueings to compare."
    )
    spreadings: Choices[Spreading] = Field(
        default_factory=lambda: list(Spreading),
        description=(
            "One path (`static`), a hash of 1, 4 or 16 connections (`ecmp`, `ecmp_4`, `ecmp_16`), moved by queues "
            "(`adaptive`), or packet by packet, with Linux' detection of losses (`spray_rack`), without, or by a "
            "transport of messages and its control (`messages...`)."
        ),
    )
    failed_uplinks: Annotated[list[Count], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [0, 1],
        description="How many uplinks of the first leaf fail before messages are sent; each number is played.",
    )
    loads: Choices[Load] = Field(default_factory=lambda: list(Load), description="What plays, each by itself.")
    message: Annotated[SizeBytes, Field(ge=1, le=2**36)] = Field(
        default=2_000_000, description="Size of a message; of an all-to-all that of all that a host sends."
    )
    senders: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=8, description="Hosts that send to the last one in the incast: the first ones."
    )
    lossless_control: str = Field(
        default="line", description="Congestion control of all traffic in queueings that lose nothing."
    )
    lossy_control: str = Field(default="cubic", description="Congestion control of all traffic where queues drop.")
    settle: Annotated[TimeS, Field(gt=0, le=60)] = Field(
        default=0.01,
        description="Time from the failure of uplinks to the first message: switches have new routes by then.",
    )
    patience: Annotated[TimeS, Field(gt=0)] = Field(
        default=600.0, description="Longest time that a message may take before the run fails."
    )
    nccl: NcclConfig = Field(default_factory=NcclConfig, description="The ring's allreduce.")
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="HFReduce's.")

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Each in its turn."""
        return tuple(dict.fromkeys(map(self.routing_of, self.spreadings)))

    def routing_of(self, spreading: Spreading) -> Routing:
        """Return the routing with that policy, whose draws are those of the run's seed."""
        update = {"policy": spreading.policy, "hash_seed": (self.routing.hash_seed + self.seed) % 2**16}
        return self.routing.model_copy(update=update)

    def marking_of(self, spreading: Spreading) -> Marking | None:
        """Return how switches mark: only for messages whose sender heeds marks."""
        return self.queues.marking if spreading is Spreading.MESSAGES_NSCC else None

    def answers(self, queueing: Queueing, failed: int) -> bool:
        """Return whether the answer tells of a case: of the first queueing, with all links."""
        return queueing is self.queueings[0] and not failed

    def controls_in(self, queueing: Queueing) -> dict[ServiceLevel, str]:
        """Return the congestion control of each service level in a queueing."""
        return dict.fromkeys(DATA_LEVELS, self.lossless_control if queueing.is_lossless else self.lossy_control)

    def messages(self, fabric: Fabric, load: Load) -> list[Message]:
        """Return the messages of a load that is no collective; a permutation is one of the seed."""
        if load is Load.INCAST:
            return incast(fabric, self.senders, self.message)
        return (
            all_to_all(fabric, self.message) if load is Load.ALL_TO_ALL else permuted(fabric, self.message, self.seed)
        )

    def least_s(self, fabric: Fabric, load: Load) -> float:
        """Return the time that NICs take for a load: of an allreduce, each rank sends almost twice its data in a ring,
        twice in HFReduce's trees."""
        if not load.is_collective:
            return bound_s(fabric, self.messages(fabric, load))
        ranks = len(fabric.computes)
        size, sent = (self.nccl.size, 2 * (ranks - 1) / ranks) if load is Load.RING else (self.hfreduce.size, 2.0)
        return size / ideal_algbw(fabric.nic_rate_bps, sent) / payload_fraction(fabric.mtu_bytes)

    def settle_s(self, failed: int) -> float:
        """Return when a load begins, after so many uplinks have failed."""
        return self.settle if failed else _LEAST_S

    def failing(self, fabric: Fabric, count: int) -> FailureSchedule | None:
        """Return that so many uplinks of the first leaf fail at once, for good; None: the run's own failures do."""
        if self.failures and not count:
            return None
        uplinks = fabric.uplinks_of(fabric.with_role(Role.LEAF)[0])[:count]
        return FailureSchedule.of([Failure(fabric.link_at[port], 0.0, math.inf) for port in uplinks])

    @property
    def controls_played(self) -> dict[str, str]:
        """Those of both kinds of queueing; what ``congestion_control`` says plays nowhere."""
        return {"lossless_control": self.lossless_control, "lossy_control": self.lossy_control}

    @property
    def cuts_links(self) -> bool:
        """Uplinks fail, if any shall."""
        return any(self.failed_uplinks) or bool(self.failures)

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as messages take."""
        return PhaseLengths(until="all messages have arrived")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from congestion_control.faults(self.controls_played, self.queues.marks)
        if self.routing.policy != STATIC:
            yield f"routing.policy: {self.routing.policy} is not what decides here; remove it and set spreadings"
        leaves = fabric.with_role(Role.LEAF)
        uplinks = len(fabric.uplinks_of(leaves[0]))
        for count in self.failed_uplinks:
            if count >= max(1, uplinks):
                yield f"failed_uplinks: {count} of the {uplinks} uplinks of {leaves[0]} leave none; lower it"
        if any(self.failed_uplinks) and self.routing.repair is Repair.WAIT:
            yield "failed_uplinks: with routing.repair: wait their share is lost for good; use reroute"
        if self.senders >= len(fabric.computes):
            yield f"senders: {self.senders}, and there are {len(fabric.computes) - 1} beside the receiver; lower it"
