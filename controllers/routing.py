"""How a run routes, and how it repairs failures: the key ``routing`` of every experiment's config."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field, model_validator

from controllers.planning.policies import POLICIES, STATIC, Policy
from controllers.planning.policies.policy import AdaptiveConfig
from fabric.config import ByName, Strict, TimeS


class Repair(str, Enum):
    """What happens when a link fails."""

    WAIT = "wait"
    """Nothing: the link comes back."""
    FAST_FAILOVER = "fast_failover"
    """Switches divert packets by themselves, then the controller plans anew."""
    REROUTE = "reroute"
    """The controller plans anew, ``sweep_delay`` after it heard."""


PolicyKey = Annotated[Policy, ByName(POLICIES)]
"""A policy as configs have it, by its name."""


def _in_words() -> str:
    *first, last = [f"{policy.words} ({policy.name})" for policy in POLICIES]
    return f"{', '.join(first)}, or {last}"


class Routing(Strict):
    """A routing policy and a repair policy."""

    policy: PolicyKey = Field(
        default=STATIC, description=f"Which of several equal paths a packet takes: {_in_words()}."
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
    entropies: Annotated[int, Field(ge=1, le=2**16)] = Field(
        default=128,
        description=(
            "How many numbers senders draw from, with the policy `entropy`: a flow takes as many paths at most. One "
            "leaves each flow on one path."
        ),
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
    def undrawn(self) -> Routing:
        """The same routing with the default seed of per-packet draws, which rules do not depend on."""
        hash_seed = type(self).model_fields["hash_seed"].default
        return self if self.policy.draw is None else self.model_copy(update={"hash_seed": hash_seed})

    @property
    def name(self) -> str:
        """Both policies in a word, as plans and states name it."""
        return f"{self.policy.name}, {self.repair.value}"
