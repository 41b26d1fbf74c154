"""How a run routes, and how it repairs failures: the key ``routing`` of every experiment's config."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import SizeBytes, Strict, TimeS


class Policy(str, Enum):
    """Which of several equally good ways a packet takes."""

    STATIC = "static"
    """By destination, as InfiniBand's d-mod-k."""
    ECMP = "ecmp"
    """By a hash of its 5-tuple."""
    ADAPTIVE = "adaptive"
    """By destination, moved from deep queues to shallow ones while the run goes on."""


class Repair(str, Enum):
    """What happens when a link fails."""

    WAIT = "wait"
    """Nothing: the link comes back."""
    FAST_FAILOVER = "fast_failover"
    """Switches divert packets by themselves, then the controller plans anew."""
    REROUTE = "reroute"
    """The controller plans anew, ``sweep_delay`` after it heard."""


class AdaptiveConfig(Strict):
    """When and how much the adaptive policy moves: the busiest destinations of a leaf's deepest uplink go to others."""

    period: Annotated[TimeS, Field(ge=0.005, le=10)] = Field(
        default=0.1,
        description="Time between two readings of the queues of all uplinks. Shorter reacts sooner, and may oscillate.",
    )
    threshold: Annotated[SizeBytes, Field(ge=1, lt=2**31)] = Field(
        default=16 * 1024,
        description="Difference between a leaf's deepest and shallowest uplink queue from which destinations move.",
    )
    moves: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Most destinations that move per leaf and period."
    )
    hold: Annotated[TimeS, Field(ge=0, le=3600)] = Field(
        default=0.5, description="Least time that a destination stays where it was moved to. Longer damps oscillation."
    )


class Routing(Strict):
    """A routing policy and a repair policy."""

    policy: Annotated[Policy, Field(strict=False)] = Field(
        default=Policy.STATIC,
        description=(
            "Which of several equal paths a packet takes: by destination (static), by a hash of its flow "
            "(ecmp), or moved away from deep queues (adaptive)."
        ),
    )
    repair: Annotated[Repair, Field(strict=False)] = Field(
        default=Repair.WAIT,
        description=(
            "What happens when a link fails: nothing until it returns, switches divert packets at once, or the "
            "controller installs a new plan."
        ),
    )
    sweep_delay: Annotated[TimeS, Field(ge=0, le=600)] = Field(
        default=0.0,
        description=(
            "Time from the controller hearing of a change to its new plan, as a subnet manager's sweep takes; "
            "only with `repair: reroute`."
        ),
    )
    hash_seed: Annotated[int, Field(ge=0, lt=2**16)] = Field(
        default=0, description="Seed of ECMP's hash. Another one makes other flows collide."
    )
    adaptive: AdaptiveConfig = Field(
        default_factory=AdaptiveConfig, description="When and how much the adaptive policy moves."
    )

    @model_validator(mode="after")
    def _verify_sweep(self) -> Routing:
        if self.sweep_delay and self.repair is not Repair.REROUTE:
            raise ValueError(f"sweep_delay: only repair: reroute waits for a sweep, not {self.repair.value}; remove it")
        return self

    @property
    def name(self) -> str:
        """Both policies in a word, as plans and states name it."""
        return f"{self.policy.value}, {self.repair.value}"
