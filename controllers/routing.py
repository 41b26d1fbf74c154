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
    """When and how much the adaptive policy moves.

    Every ``period`` the queues of all uplinks are read. Where a leaf's deepest exceeds its shallowest by ``threshold``,
    its busiest destinations there move, up to ``moves`` for each leaf and period, and stay for ``hold`` at least.
    """

    period: Annotated[TimeS, Field(ge=0.005, le=10)] = 0.1
    threshold: Annotated[SizeBytes, Field(ge=1, lt=2**31)] = 16 * 1024
    moves: Annotated[int, Field(ge=1, le=64)] = 1
    hold: Annotated[TimeS, Field(ge=0, le=3600)] = 0.5


class Routing(Strict):
    """A routing policy and a repair policy; ``hash_seed`` varies which flows ECMP lets collide."""

    policy: Annotated[Policy, Field(strict=False)] = Policy.STATIC
    repair: Annotated[Repair, Field(strict=False)] = Repair.WAIT
    sweep_delay: Annotated[TimeS, Field(ge=0, le=600)] = 0.0
    hash_seed: Annotated[int, Field(ge=0, lt=2**16)] = 0
    adaptive: AdaptiveConfig = Field(default_factory=AdaptiveConfig)

    @model_validator(mode="after")
    def _verify_sweep(self) -> Routing:
        if self.sweep_delay and self.repair is not Repair.REROUTE:
            raise ValueError(f"sweep_delay: only repair: reroute waits for a sweep, not {self.repair.value}; remove it")
        return self

    @property
    def name(self) -> str:
        """Both policies in a word, as plans and states name it."""
        return f"{self.policy.value}, {self.repair.value}"
