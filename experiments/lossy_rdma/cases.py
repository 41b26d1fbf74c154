"""The cases of ``lossy_rdma``: who writes, what fails, and what losses cost in theory. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.lossy_rdma.config import LossyRdmaConfig, Way
from fabric.failures.schedule import Failure, FailureSchedule, LinkState
from fabric.model.network import Fabric
from runs.cases import Case, axis
from traffic.flows.messages import Message, incast


@dataclass(frozen=True)
class OverLoss(Case, name="loss_{loss}_{way}", title="{loss} of frames lost, {way}"):
    """A write over a link that loses frames, and how its queue pair recovers."""

    loss: float = axis("losses")
    way: Way = axis("ways")

    def messages(self, fabric: Fabric, config: LossyRdmaConfig) -> list[Message]:
        """Return what is written."""
        hosts = fabric.computes
        return [Message(hosts[0], hosts[-1], config.message)]

    def failing(self, fabric: Fabric) -> FailureSchedule | None:
        """Return what the link of the receiver does."""
        link = fabric.link_at[fabric.nics_of[fabric.computes[-1]][0].port]
        return FailureSchedule.of([Failure(link, 0.0, math.inf, LinkState(loss_fraction=self.loss))])


@dataclass(frozen=True)
class IntoOne(Case, name="incast_{senders}_{way}", title="{senders} hosts into one, {way}"):
    """How many write to one host, and how queue pairs recover."""

    senders: int = axis("senders")
    way: Way = axis("ways")

    def messages(self, fabric: Fabric, config: LossyRdmaConfig) -> list[Message]:
        """Return what is written."""
        return incast(fabric, self.senders, config.part)

    def failing(self, fabric: Fabric) -> FailureSchedule | None:
        """Nothing does."""
        return None


AnyCase = OverLoss | IntoOne


def over_loss(config: LossyRdmaConfig, way: Way, loss: float, frame_s: float, trip_s: float) -> float:
    """Return what a long write gets of its NIC, on average: each lost frame costs the round trip, or itself, and what
    only a timeout shows that."""
    again_s, unseen = (frame_s, 1) if way is Way.SELECTIVE_REPEAT else (trip_s, 2)
    return frame_s / (frame_s + loss * again_s + unseen * loss**2 * config.timeout_s)
