"""The config of ``protection``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from fabric.model.network import Fabric
from runs.config import CountedPhases, Duration, storage_faults
from runs.placement import OrderedRanks
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.flows.background import BackgroundConfig
from traffic.storage.config import StorageConfig


def _rising(values: list[Any]) -> list[Any]:
    if values != sorted(set(values)):
        raise ValueError(f"{values} does not rise; name each value once, the least first")
    return values


Loads = Annotated[
    list[Annotated[float, Field(ge=0, le=100, strict=False)]], Field(min_length=1), AfterValidator(_rising)
]
"""Loads in fractions of a NIC's rate, rising."""
Depths = Annotated[list[Annotated[int, Field(ge=0, le=65_536)]], AfterValidator(_rising)]
"""How many batches each storage client keeps asked for, rising."""


class LoadPoint(NamedTuple):
    """What plays beside HFReduce: flows of others, by the load that they offer, and storage readers, by their depth; 0
    of either is none."""

    other_load: float
    storage_depth: int

    @property
    def words(self) -> str:
        """It in words."""
        storage = f"storage at depth {self.storage_depth}" if self.storage_depth else "no storage"
        return f"{storage}, others at {self.other_load:.0%}"


class ProtectionConfig(CountedPhases, OrderedRanks):
    """The loads, and how long each plays: measured is from ``warm_up`` after its begin to ``phase_time``."""

    other_loads: Loads = Field(
        description=(
            "Loads that flows of others offer to each NIC, as fractions of its rate, rising; HFReduce and "
            "storage play beside them."
        )
    )
    storage_depths: Depths = Field(
        default_factory=list,
        description="In place of other flows: batches that each storage client keeps asked for, rising.",
    )
    phase_time: Duration = Field(default=8.0, description="Length of each phase, warm-up included.")
    warm_up: Duration = Field(default=2.0, description="Warm-up at the start of each phase, excluded from results.")
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce that plays.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The reads and writes that play.")
    background: BackgroundConfig = Field(
        default_factory=BackgroundConfig,
        description="The flows of others, whose `load` each of `other_loads` replaces.",
    )

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric or each other."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "the experiment protects storage")
        if self.storage.dataloader.share == 0:
            yield "storage.dataloader.share: 0, so nobody reads, but the experiment protects reads; raise it"

    @property
    def beside_others(self) -> list[LoadPoint]:
        """The growing loads of others."""
        return [LoadPoint(load, self.storage.dataloader.depth) for load in self.other_loads]

    @property
    def beside_storage(self) -> list[LoadPoint]:
        """The growing loads of storage; with those beside others that are of storage alone."""
        if not self.storage_depths:
            return []
        without_others = [point for point in self.beside_others if not point.other_load]
        found = {*without_others, *(LoadPoint(0.0, depth) for depth in self.storage_depths)}
        return sorted(found, key=lambda point: point.storage_depth)

    @property
    def points(self) -> list[LoadPoint]:
        """What is played in each queueing, in order."""
        return list(dict.fromkeys([*self.beside_others, *self.beside_storage]))
