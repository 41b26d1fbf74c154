"""What a platform's config says of health."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.health.checks import Check
from fabric.config import RateBps, SizeBytes, Strict, TimeS
from fabric.model.network import Fabric

Time = Annotated[TimeS, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=10_000)]
LEAST_BYTES = 256 * 1024
LEAST_S = 0.001
"""A test of bandwidth sends as long as this at the NIC's rate, or so many bytes, whichever is more."""


class StorageStress(Strict):
    """The storage check: where, how much, and how fast it must be."""

    files: str | None = Field(
        default=None, description="Job of kind files whose file system is written. Without it, the only one."
    )
    size: Annotated[SizeBytes, Field(ge=1, le=2**30)] = Field(
        default=1024 * 1024, description="Bytes that a node writes and reads back."
    )
    least: RateBps = Field(
        default=0,
        ge=0,
        description="Least payload of both, writing and reading; 0: any, if bytes are right and in time.",
    )


class NodeAllreduce(Strict):
    """The allreduce in a node: how much its GPUs add up, and how fast they must be."""

    size: Annotated[SizeBytes, Field(ge=4096, le=2**30)] | None = Field(
        default=None,
        description="Bytes of each allreduce. Without it, as much as the links between GPUs carry in 50 us, and 1 MiB "
        "at least.",
    )
    least: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="Least busbw, as a fraction of what the links between the node's GPUs allow."
    )


class Validate(Strict):
    """When nodes are validated, by which checks, and within which limits."""

    before_job: bool = Field(
        default=False, description="Nodes that a job was given are validated before its ranks start."
    )
    every: Time | None = Field(
        default=None,
        description="Each node is validated once in this time, in turn, while it is idle: `7 d` is Fire-Flyer 2's.",
    )
    checks: tuple[Annotated[Check, Field(strict=False)], ...] = Field(
        default=tuple(Check), min_length=1, strict=False, description="Which checks a validation has."
    )
    bandwidth: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="Least payload that a NIC must send and receive, as a fraction of its rate."
    )
    tries: Annotated[int, Field(ge=1, le=9)] = Field(
        default=3,
        description="How often at most a test of speed is done that failed, while no other test of bandwidth goes on: "
        "a node fails by more than half of them. 1: by the first.",
    )
    size: Annotated[SizeBytes, Field(ge=4096)] | None = Field(
        default=None,
        description="Bytes that a test of bandwidth sends each way. Without it, 256 KiB, or a millisecond's at the "
        "NIC's rate if that is more.",
    )
    service_level: Literal["other", "storage", "nccl", "hfreduce", "control"] | None = Field(
        default=None, description="Service Level of tests of bandwidth. Without it, that of the platform."
    )
    allreduce: NodeAllreduce = Field(
        default_factory=NodeAllreduce,
        description="How the allreduce in a node is done, where nodes have an inside; points have no GPUs.",
    )
    storage: StorageStress | None = Field(
        default=None, description="How the storage check is done; without it, it is not."
    )
    timeout: Time = Field(default=10.0, description="How long a node may take for a test, or two for theirs.")

    @property
    def condemning(self) -> int:
        """How many of the tries must fail."""
        return self.tries // 2 + 1

    def bytes_at(self, rate_bps: int) -> int:
        """Return how many bytes a test sends by a NIC of a rate."""
        return self.size or max(LEAST_BYTES, round(rate_bps / 8 * LEAST_S))


class Lemons(Strict):
    """When a node is a lemon, out for good: one of the signals has reached its limit in the window. The signals are
    RSC's; the paper does not print its limits, which were tuned by hand, so these are ours."""

    window_days: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=28.0, description="How many days back signals count."
    )
    outs: Count | None = Field(default=3, description="Times that it was taken out (RSC's `out_count`).")
    tickets: Count | None = Field(default=3, description="Repairs (`tickets`).")
    xids: Count | None = Field(default=3, description="Different Xids of its GPUs (`xid_cnt`).")
    multi_node_fails: Count | None = Field(
        default=4, description="Jobs of several nodes that it stopped (`multi_node_node_fails`)."
    )
    single_node_fails: Count | None = Field(
        default=3, description="Jobs of one node that it stopped (`single_node_node_fails`)."
    )
    single_node_fail_rate: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Fraction of its jobs of one node that it stopped (`single_node_node_failure_rate`), of five jobs "
        "or more.",
    )


class StallWatch(Strict):
    """When a job that reports its steps is stalled."""

    factor: Annotated[float, Field(ge=2, le=10_000)] = Field(
        default=10.0, description="A job is stalled once no rank has moved for this many times its usual step."
    )
    least: Time = Field(default=30.0, description="But not before this time, however short its steps are.")
    first: Time = Field(
        default=1800.0,
        description="How long the first steps may take, before a usual one is known: HAI's watchdog has 30 min.",
    )


class HealthConfig(Strict):
    """Health of a platform's nodes: validator, watch, repair and lemons."""

    validation: Validate = Field(
        default_factory=Validate, alias="validate", description="When nodes are validated, and how."
    )
    repair: Annotated[TimeS, Field(ge=0)] = Field(
        default=86_400.0,
        description="How long a repair takes. After it a node is validated, and is back if it passes.",
    )
    look: Time = Field(default=1.0, description="From one look of an agent at counters and errors to the next.")
    drops: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.01, description="Fraction of a NIC's frames that its host may see dropped between two looks."
    )
    lemon: Lemons | None = Field(
        default_factory=Lemons, description="When a node that fails again and again is out for good; `null`: never."
    )
    stall: StallWatch | None = Field(
        default_factory=StallWatch, description="When a job that reports its steps is stalled; `null`: never."
    )

    def faults(self, fabric: Fabric) -> tuple[str, ...]:
        """Return what cannot be on a fabric."""
        checks = self.validation
        nics = [fabric.link_at[nic.port].rate_bps for node in fabric.computes for nic in fabric.nics_of[node]]
        slowest = min(nics, default=0)
        took_s = 8 * checks.bytes_at(slowest) / (slowest * checks.bandwidth) if slowest else 0.0
        if Check.BANDWIDTH in checks.checks and took_s > checks.timeout:
            return (
                f"validate.timeout: {checks.timeout:g} s, but {checks.bytes_at(slowest):,} B take {took_s:.3g} s at "
                f"{checks.bandwidth:g} of the slowest NIC's rate; raise it, or lower validate.size",
            )
        return ()

    @model_validator(mode="after")
    def _verify(self) -> HealthConfig:
        checks = self.validation
        if checks.every is not None and checks.every < 2 * checks.timeout:
            raise ValueError(
                f"validate.every: {checks.every:g} s is less than two timeouts of {checks.timeout:g} s; raise it"
            )
        return self
