"""Requests of users to a cluster, as values. Answers: :mod:`cluster.platform.responses`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.platform.codec import Codec, unless_none

# What is to be done ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submit:
    """Take a job. ``spec``: its values (:func:`cluster.platform.events.spec_of` checks them); ``token``: what its user
    calls this submission."""

    spec: Any
    token: str = ""


@dataclass(frozen=True)
class CancelJob:
    """Stop a job for good."""

    number: int


@dataclass(frozen=True)
class SuspendJob:
    """Suspend a job that runs."""

    number: int


@dataclass(frozen=True)
class HoldJob:
    """Let a job wait until it is released; suspend it if it runs."""

    number: int


@dataclass(frozen=True)
class ReleaseJob:
    """Let a job be started again that is held."""

    number: int


@dataclass(frozen=True)
class ValidateNodes:
    """Have nodes validated, once they are idle."""

    nodes: tuple[str, ...]


OfJob = CancelJob | SuspendJob | HoldJob | ReleaseJob
UserOrder = Submit | OfJob | ValidateNodes

# What is done to the fabric -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailTarget:
    """Let something of the fabric, or what runs on it, fail by hand until it is healed. ``line``: what, and how, by the
    keys of a line of ``failures``, without its times; ``target`` in place of a kind's key: the kind that it is."""

    line: Any


@dataclass(frozen=True)
class HealTarget:
    """End what fails by hand at a target; empty: all that does."""

    target: str = ""


@dataclass(frozen=True)
class ListFailures:
    """What fails by hand."""


FabricRequest = FailTarget | HealTarget | ListFailures

# What is asked --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListJobs:
    """Jobs by their numbers: those ``after`` one, and how many at ``most``."""

    after: int | None = unless_none()
    most: int | None = unless_none()


@dataclass(frozen=True)
class DescribeJob:
    """A job with its lives and events."""

    number: int


@dataclass(frozen=True)
class ReadLog:
    """What a rank of a job printed, from a byte on. ``life``: None: the last one that had nodes."""

    number: int
    rank: int = 0
    life: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class ListNodes:
    """All nodes."""


@dataclass(frozen=True)
class ListQuotas:
    """What users hold and wait for."""


Question = ListJobs | DescribeJob | ReadLog | ListNodes | ListQuotas


@dataclass(frozen=True)
class Who:
    """Ask for the cluster's folder, fabric, engine, policy and nodes; its fabric may still be starting."""


@dataclass(frozen=True)
class GoDown:
    """End the cluster."""


Asked = UserOrder | Question | FabricRequest | Who | GoDown
SCHEDULERS = {
    "submit": Submit,
    "cancel": CancelJob,
    "suspend": SuspendJob,
    "hold": HoldJob,
    "release": ReleaseJob,
    "validate": ValidateNodes,
    "list": ListJobs,
    "describe": DescribeJob,
    "log": ReadLog,
    "nodes": ListNodes,
    "quotas": ListQuotas,
}
"""What the scheduler answers."""
FABRICS = {"fail": FailTarget, "heal": HealTarget, "failures": ListFailures}
"""What is answered where the fabric is: no packet tells of its failures."""
WHO, DOWN = "who", "down"
"""What the cluster itself answers."""
REQUESTS = Codec[Asked]({**SCHEDULERS, **FABRICS, WHO: Who, DOWN: GoDown})
