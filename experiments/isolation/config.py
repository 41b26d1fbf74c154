"""The config of ``isolation``: its jobs and how long they play."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fabric.model.identity import Role
from fabric.model.network import Fabric
from runs.config import Duration, QueueingsConfig, storage_faults
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.collectives.nccl import NcclConfig
from traffic.flows.background import BackgroundConfig
from traffic.storage.config import StorageConfig


@dataclass(frozen=True)
class Load:
    """What other traffic offers to each NIC: a fraction of its rate, moderate or heavy."""

    fraction: float
    is_heavy: bool = False

    @property
    def words(self) -> str:
        """The fraction in words."""
        return f"{self.fraction:.0%}"


class IsolationConfig(QueueingsConfig, OrderedRanks):
    """The jobs and how long they play."""

    alone_time: Duration = Field(5.0, description="How long each program plays alone.")
    together_time: Duration = Field(16.0, description="How long all play together, in each queueing and at each load.")
    hfreduce: HFReduceConfig = Field(
        default_factory=HFReduceConfig, description="The allreduce over all compute nodes."
    )
    nccl: NcclConfig = Field(default_factory=NcclConfig, description="The NCCL-like allreduce over some compute nodes.")
    nccl_nodes: Annotated[int, Field(ge=2, le=65_536)] = Field(
        8, description="How many compute nodes of zone 0 it spans: only HFReduce crosses zones."
    )
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The storage, its readers and writers.")
    background: BackgroundConfig = Field(
        default_factory=BackgroundConfig, description="Other traffic: flows between random hosts, at a moderate load."
    )
    heavy_load: Annotated[float, Field(ge=0, le=100, strict=False)] = Field(
        0.0,
        description="What other traffic offers to each NIC in further phases, as a fraction of its rate; 0: no such "
        "phases. Raise it to see what a lane protects.",
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """Both: no job of it has an end."""
        return PhaseLengths.of(self, "alone_time", "together_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        in_zone = len(fabric.with_role(Role.COMPUTE, zone=0))
        if self.nccl_nodes > in_zone:
            limit = f"exceeds the {in_zone} compute nodes of zone 0"
            yield f"nccl_nodes: {self.nccl_nodes} {limit}; only HFReduce crosses zones"
        if self.nccl.size == 0:
            yield f"nccl.size: 0 bytes of {self.nccl.collective} have no bandwidth to keep; raise it"
        yield from storage_faults(fabric, "the experiment isolates storage")
        if 0 < self.heavy_load <= self.background.load:
            least = f"is no more than background.load, {self.background.load:g}"
            yield f"heavy_load: {self.heavy_load:g} {least}; raise it, or give 0 for no phases under heavy load"

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads of other traffic that are played in each queueing, in order."""
        heavy = (Load(self.heavy_load, is_heavy=True),) if self.heavy_load else ()
        return (Load(self.background.load), *heavy)
