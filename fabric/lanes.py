"""Service Levels and Virtual Lanes: which traffic waits in which queue, and what share of a link each queue has.

InfiniBand's words: a packet carries a Service Level (SL); a port maps it to a Virtual Lane (VL), a queue with a share
of the link. Here the DSCP of an IP packet carries the SL, as class selector ``SL << 3``, and every port of the fabric,
of hosts and of switches alike, has one queue per lane. Shares are of the link's rate; a lane may borrow what others
leave idle up to its ceiling. The paper gives no shares (arXiv 2408.14158, VI-A1): they are config.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import SizeBytes, Strict

ETHERNET_HEADER_BYTES = 14
CONTROL = "control"
SHARED = "shared"


class ServiceLevel(Enum):
    """The kinds of traffic, with the SL each carries. CONTROL is what no data may starve: pure ACKs and the like."""

    OTHER = 0
    STORAGE = 1
    NCCL = 2
    HFREDUCE = 3
    CONTROL = 6

    @property
    def dscp(self) -> int:
        """The DSCP that carries this SL."""
        return self.value << 3

    @property
    def tos(self) -> int:
        """The IP TOS byte for ``IP_TOS`` and ``iperf3 -S``."""
        return self.dscp << 2

    @property
    def label(self) -> str:
        """The name in configs, tables and figures."""
        return self.name.lower()

    @classmethod
    def of_dscp(cls, dscp: int) -> ServiceLevel:
        """Return the SL that a DSCP carries; OTHER for every DSCP that is no SL's."""
        return next((level for level in cls if level.dscp == dscp), cls.OTHER)


DATA_LEVELS = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL, ServiceLevel.STORAGE, ServiceLevel.OTHER)
"""The four kinds of data traffic of Fire-Flyer 2."""


class Queueing(str, Enum):
    """How a port queues: ``shared`` is one queue for all, ``lanes`` is one for each Virtual Lane."""

    SHARED = "shared"
    LANES = "lanes"


class LaneConfig(Strict):
    """One Virtual Lane. ``share`` and ``ceiling`` are fractions of the link; ``limit`` is how much may wait."""

    share: Annotated[float, Field(gt=0, le=1)]
    ceiling: Annotated[float, Field(gt=0, le=1)] = 1.0
    limit: Annotated[SizeBytes, Field(gt=0)] = 256 * 1024
    service_levels: list[str]


def _default_lanes() -> dict[str, LaneConfig]:
    def lane(share: float, *levels: ServiceLevel) -> LaneConfig:
        return LaneConfig(share=share, service_levels=[level.label for level in levels])

    return {
        "hfreduce": lane(0.40, ServiceLevel.HFREDUCE),
        "nccl": lane(0.15, ServiceLevel.NCCL),
        "storage": lane(0.35, ServiceLevel.STORAGE),
        "other": lane(0.05, ServiceLevel.OTHER),
        CONTROL: lane(0.05, ServiceLevel.CONTROL),
    }


class QueueConfig(Strict):
    """The queues of every port: the lanes of ``lanes`` queueing, and the one byte limit of ``shared`` queueing."""

    lanes: dict[str, LaneConfig] = Field(default_factory=_default_lanes)
    shared_limit: Annotated[SizeBytes, Field(gt=0)] = 1024 * 1024

    @model_validator(mode="after")
    def _verify(self) -> QueueConfig:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        total = sum(lane.share for lane in self.lanes.values())
        if total > 1 + 1e-9:
            yield f"shares add up to {total:.3f}, above 1; lower some"
        for name, lane in self.lanes.items():
            if lane.ceiling < lane.share:
                yield f"{name}: ceiling {lane.ceiling} is below share {lane.share}; raise it"
        yield from self._service_level_faults()

    def _service_level_faults(self) -> Iterator[str]:
        known = {level.label for level in ServiceLevel}
        mapped = [label for lane in self.lanes.values() for label in lane.service_levels]
        for label in sorted(set(mapped) - known):
            yield f"service level {label!r} does not exist; use {', '.join(sorted(known))}"
        for label in sorted(known):
            if mapped.count(label) != 1:
                yield f"service level {label!r} is mapped to {mapped.count(label)} lanes; map it to exactly one"


@dataclass(frozen=True)
class Lane:
    """A queue of a port: its name, its place in the port's tree (from 1), and its rates as fractions of the link."""

    name: str
    number: int
    share: float
    ceiling: float
    limit_bytes: int
    levels: tuple[ServiceLevel, ...]

    @property
    def is_control(self) -> bool:
        """Whether pure ACKs and control messages wait here, ahead of data."""
        return ServiceLevel.CONTROL in self.levels and len(self.levels) == 1


@dataclass(frozen=True)
class LanePlan:
    """The queues that every port has under one queueing, in order of their numbers."""

    queueing: Queueing
    lanes: tuple[Lane, ...]

    def lane_of(self, level: ServiceLevel) -> Lane:
        """Return the lane in which a service level waits."""
        return next(lane for lane in self.lanes if level in lane.levels)

    def named(self, name: str) -> Lane:
        """Return the lane of that name. Raises KeyError if there is none."""
        return {lane.name: lane for lane in self.lanes}[name]


def plan_lanes(config: QueueConfig, queueing: Queueing) -> LanePlan:
    """Return the queues of a port: one for all service levels, or those of ``config.lanes``."""
    if queueing is Queueing.SHARED:
        return LanePlan(queueing, (Lane(SHARED, 1, 1.0, 1.0, config.shared_limit, tuple(ServiceLevel)),))
    by_label = {level.label: level for level in ServiceLevel}
    lanes = (
        Lane(name, number, lane.share, lane.ceiling, lane.limit, tuple(by_label[text] for text in lane.service_levels))
        for number, (name, lane) in enumerate(config.lanes.items(), start=1)
    )
    return LanePlan(queueing, tuple(lanes))
