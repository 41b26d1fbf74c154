"""Config of several cluster managers: where they are, their store, the times of the lease, clocks that are off."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS

Wait = Annotated[TimeS, Field(gt=0)]
ClockOffset = Annotated[TimeS, Field(ge=-86_400, le=86_400)]
"""How far a clock is ahead, in seconds; negative: behind."""
HEARTBEAT_WINDOW_S = 30.0
"""A heartbeat is not heard if the clocks of its sender and of the manager differ by more (3FS:
``heartbeat_timestamp_valid_window``)."""


class LeaseConfig(Strict):
    """The times of the lease that the primary holds. The defaults are 3FS's."""

    length: Wait = Field(default=60.0, description="How long the lease is, from when it was extended last.")
    extended_every: Wait = Field(default=10.0, description="How often managers look at it: the primary extends it.")
    not_trusted_below: Wait = Field(
        default=20.0,
        description=(
            "The primary stops when less of its lease is left, so that no two are primaries while clocks differ by "
            "less than this."
        ),
    )

    @model_validator(mode="after")
    def _verify(self) -> LeaseConfig:
        trusted_s = self.length - self.not_trusted_below
        if trusted_s <= 2 * self.extended_every:
            raise ValueError(
                f"a lease of {self.length:g} s is trusted for {trusted_s:g} s, no more than two turns of"
                f" extended_every {self.extended_every:g} s: one late turn ends it; raise length"
            )
        return self


class KvConfig(Strict):
    """The store of keys and values that managers keep the lease and the chains in: a program of its own."""

    host: str | None = Field(
        default=None,
        description="The host that it is on. Without it, the storage node before the managers'.",
    )
    engine: Literal["sqlite", "etcd"] = Field(
        default="sqlite",
        description="What it is: own transactions over SQLite; or etcd, if that is installed, in real time.",
    )


class ManagersConfig(Strict):
    """Several cluster managers, of which the one that holds a lease is the primary. The defaults are 3FS's times."""

    count: Annotated[int, Field(ge=1, le=9)] = Field(default=2, description="How many there are.")
    hosts: list[str] = Field(
        default_factory=list,
        description="The hosts that they are on, the first primary's first. Without it, the last storage nodes.",
    )
    kv: KvConfig = Field(default=KvConfig(), description="Where the lease and the chains are stored.")
    lease: LeaseConfig = Field(default=LeaseConfig(), description="The times of the lease.")
    bootstrapping: Annotated[TimeS, Field(ge=0)] = Field(
        default=120.0,
        description="How long a new primary changes no chain, so that every service has had time to be heard.",
    )

    @model_validator(mode="after")
    def _verify(self) -> ManagersConfig:
        if self.hosts and len(self.hosts) != self.count:
            raise ValueError(f"hosts names {len(self.hosts)} for a count of {self.count}; name as many")
        if len(set(self.hosts)) != len(self.hosts):
            raise ValueError("hosts: one is named twice; a manager each needs a host of its own")
        return self
