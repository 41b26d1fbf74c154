"""What a validation asks of a node's agent, and what that says of health: messages of the platform
(:mod:`cluster.platform.messages` has them as JSON)."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.health.checks import CheckResult


@dataclass(frozen=True)
class CheckNode:
    """Find out what is wrong with the node. ``number``: of the validation."""

    number: int


@dataclass(frozen=True)
class MeasureNic:
    """Measure the bandwidth by a NIC to a peer."""

    number: int
    peer: str
    nic: int


@dataclass(frozen=True)
class NodeRepaired:
    """What was wrong so far is mended."""


HealthOrder = CheckNode | MeasureNic | NodeRepaired


@dataclass(frozen=True)
class Progress:
    """A rank of a life has told a step."""

    life: int
    rank: int
    step: int


@dataclass(frozen=True)
class Checked:
    """What checks found; results name no node, which is the one that says it."""

    number: int
    results: tuple[CheckResult, ...]


@dataclass(frozen=True)
class NicMeasured:
    """The bandwidth in bit/s by a NIC to a peer; 0, and why, if it could not be measured."""

    number: int
    peer: str
    nic: int
    bps: float = 0.0
    why: str = ""


HealthWord = Progress | Checked | NicMeasured
