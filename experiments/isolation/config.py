"""What the experiment is told: its jobs and how long they play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from experiments.run.config import QueueingsConfig, storage_faults
from experiments.run.placement import RankOrder
from fabric.config import TimeS
from fabric.model.identity import Role
from fabric.model.network import Fabric
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.collectives.nccl import NcclConfig
from traffic.flows.background import BackgroundConfig
from traffic.storage.config import StorageConfig

Duration = Annotated[TimeS, Field(gt=0)]


class IsolationConfig(QueueingsConfig):
    """The jobs and how long they play."""

    alone_time: Duration = 8.0
    together_time: Duration = 30.0
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig)
    rank_order: Annotated[RankOrder, Field(strict=False)] = RankOrder.ROUTES
    nccl: NcclConfig = Field(default_factory=NcclConfig)
    nccl_nodes: Annotated[int, Field(ge=2, le=65_536)] = 8
    storage: StorageConfig = Field(default_factory=StorageConfig)
    background: BackgroundConfig = Field(default_factory=BackgroundConfig)

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        in_zone = len(fabric.with_role(Role.COMPUTE, zone=0))
        if self.nccl_nodes > in_zone:
            limit = f"exceeds the {in_zone} compute nodes of zone 0"
            yield f"nccl_nodes: {self.nccl_nodes} {limit}; only HFReduce crosses zones"
        yield from storage_faults(fabric, "the experiment isolates storage")
