"""The config of ``lossy_rdma``: ways to recover, rates of loss, and incasts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import SizeBytes, TimeS
from fabric.model.lanes import FlowControl, Queueing
from fabric.model.network import Fabric
from runs.config import Choices, RunConfig, each_once
from runs.phase_lengths import PhaseLengths
from traffic.transport.queue_pairs import QueuePairConfig, Recovery

Loss = Annotated[float, Field(gt=0, lt=0.5)]
Count = Annotated[int, Field(ge=1, le=65_536)]


class Way(Enum):
    """How queue pairs recover, or are spared losses of full queues."""

    GO_BACK_N = "go_back_n"
    SELECTIVE_REPEAT = "selective_repeat"
    PFC = "pfc"

    @property
    def queueing(self) -> Queueing:
        """Whether full queues drop or pause."""
        return Queueing.LOSSLESS if self is Way.PFC else Queueing.SHARED

    @property
    def recovery(self) -> Recovery:
        """What queue pairs send again."""
        return Recovery.SELECTIVE_REPEAT if self is Way.SELECTIVE_REPEAT else Recovery.GO_BACK_N

    @property
    def words(self) -> str:
        """It as people read it."""
        return {Way.GO_BACK_N: "go-back-N", Way.PFC: "PFC, go-back-N"}.get(self, "selective repeat")


class LossyRdmaConfig(RunConfig):
    """The cases: every combination of ``ways`` with ``losses``, then with ``senders``."""

    ways: Choices[Way] = Field(
        default_factory=lambda: list(Way),
        description="How queue pairs recover: in queues that drop, or `pfc`: go-back-N in a lossless lane.",
    )
    losses: Annotated[list[Loss], AfterValidator(each_once)] = Field(
        default_factory=lambda: [1e-5, 1e-4, 1e-3, 1e-2],
        description="Fractions of frames that the receiver's link loses in each direction, each played by itself.",
    )
    senders: Annotated[list[Count], AfterValidator(each_once)] = Field(
        default_factory=lambda: [4, 8, 15], description="Numbers of hosts that write to the last one at once."
    )
    message: Annotated[SizeBytes, Field(ge=1, le=2**36)] = Field(
        default=32_000_000, description="What the first host writes to the last one over the lossy link."
    )
    part: Annotated[SizeBytes, Field(ge=1, le=2**36)] = Field(
        default=4_000_000, description="What each sender of an incast writes."
    )
    patience: Annotated[TimeS, Field(gt=0)] = Field(
        default=600.0, description="Longest time that a message may take before the run fails."
    )

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """Those of the ways."""
        return tuple(dict.fromkeys(way.queueing for way in self.ways))

    def queue_pairs_of(self, way: Way) -> QueuePairConfig:
        """Return queue pairs that recover so."""
        return self.transport.queue_pairs.model_copy(update={"recovery": way.recovery})

    @property
    def timeout_s(self) -> float:
        """How long a queue pair waits for an acknowledgement."""
        return 4.096e-6 * (1 << self.transport.queue_pairs.timeout_exponent)

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as messages take."""
        return PhaseLengths(until="all messages have arrived")

    @property
    def cuts_links(self) -> bool:
        """Links lose, if any shall."""
        return bool(self.losses) or super().cuts_links

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if not self.transport.is_rdma:
            yield f"transport.kind: {self.transport.kind} has no queue pairs; use verbs"
        if Way.PFC in self.ways and self.queues.flow_control is not FlowControl.PFC:
            yield f"queues.flow_control: {self.queues.flow_control.value} pauses nobody; use pfc, or change ways"
        if not self.losses and not self.senders:
            yield "losses: none, and no senders: there is nothing to play; give one of the two"
        if self.senders and max(self.senders) >= len(fabric.computes):
            yield f"senders: {max(self.senders)}, and {len(fabric.computes) - 1} hosts beside the receiver; lower it"
