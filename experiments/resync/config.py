"""What the experiment is told: how the node comes back, in which order chains list targets, how it is brought up to
date, and what plays meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import LongPhasesConfig, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.storage.chains import place_chains
from traffic.storage.config import ClusterManagerConfig, OptionalRate, StorageConfig
from traffic.storage.placement import TargetOrder

Duration = Annotated[TimeS, Field(gt=0, le=3600)]
_MOST_VARIANTS = 32


class Returns(str, Enum):
    """How the node comes back."""

    EMPTY = "empty"
    """Its service starts anew with empty disks."""
    SILENT = "silent"
    """Its links were cut, and clients wrote meanwhile."""


class Variant(Strict):
    """A phase: the node comes back once."""

    returns: Annotated[Returns, Field(strict=False)] = Field(
        default=Returns.EMPTY,
        description="How it comes back: `empty`, with new disks and in a load of reads, or `silent`, after its links "
        "were cut while clients wrote.",
    )
    target_order: Annotated[TargetOrder, Field(strict=False)] = Field(
        default=TargetOrder.BY_NODE,
        description="How chains list their targets: the last one that serves sends. `by_node` is 3FS's generator.",
    )
    level: Literal["hfreduce", "nccl", "storage", "other"] | None = Field(
        default=None,
        description="Service Level of what is sent to it, so that it can have a lane apart; without it, storage's.",
    )
    rate: OptionalRate = Field(default=None, description="Rate of each chain's resync; `off`: as fast as it goes.")
    batch: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=16, description="Chunks of a chain sent at once, also if their rate is limited: 1 sends evenly."
    )
    again: bool = Field(
        default=False,
        description="Whether its service starts anew once more at the end, with its disks: a second resync must send "
        "nothing.",
    )


class RollingConfig(Strict):
    """Storage nodes whose services are restarted one after another, under light reads, in phases of their own."""

    nodes: Annotated[int, Field(ge=1, le=1000)] = Field(default=2, description="How many are restarted.")
    gap: Duration = Field(default=10.0, description="Time from when one serves again to the next one's restart.")
    pause: Duration = Field(default=0.5, description="Time from one read of a client to its next one.")
    check_read_chain: Annotated[list[bool], Field(min_length=1, max_length=2)] = Field(
        default_factory=lambda: [True, False],
        description="A phase for each: whether services refuse reads by another version of a chain. 3FS did until "
        "its pull request 341.",
    )


class ResyncRunConfig(LongPhasesConfig):
    """A storage node that comes back, once for each variant; and nodes that are restarted in turn."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    nodes: Annotated[int, Field(ge=2, le=10_000)] = Field(
        default=5, description="Storage nodes that have services, of those that the fabric has."
    )
    victim: Annotated[int, Field(ge=0, le=9_999)] = Field(
        default=0, description="The number, from 0, of the storage node among them that comes back."
    )
    variants: Annotated[dict[str, Variant], Field(min_length=1, max_length=_MOST_VARIANTS)] = Field(
        description="What differs between phases, by their names."
    )
    rolling: RollingConfig | None = Field(
        default=None, description="Restarts of storage nodes in turn. Without it, no node restarts."
    )
    at: Duration = Field(default=3.0, description="When the node fails or is restarted, from the start of a phase.")
    away: Duration = Field(default=75.0, description="How long a silent one is away; longer than its failure takes.")
    after: Duration = Field(
        default=12.0,
        description="How long the load plays on once all targets serve; clients must learn of that meanwhile.",
    )
    patience: Duration = Field(default=300.0, description="How long the node may take until all its targets serve.")
    storage: StorageConfig = Field(
        default_factory=lambda: StorageConfig(cluster_manager=ClusterManagerConfig()),
        description="The storage service, its clients and its cluster manager.",
    )
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce that plays meanwhile.")
    trainers: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=4, description="Compute nodes that it is over; all read, too."
    )

    @property
    def cuts_links(self) -> bool:
        """Whether a variant's node falls silent."""
        return any(variant.returns is Returns.SILENT for variant in self.variants.values())

    @model_validator(mode="after")
    def _verify(self) -> ResyncRunConfig:
        if self.victim >= self.nodes:
            raise ValueError(f"victim {self.victim} is not one of the {self.nodes} nodes, which count from 0; lower it")
        if self.storage.cluster_manager is None:
            raise ValueError("storage.cluster_manager: without it nobody comes back; write `cluster_manager: {}`")
        if self.rolling is not None and self.rolling.nodes > self.nodes:
            raise ValueError(f"rolling.nodes {self.rolling.nodes} exceeds nodes {self.nodes}; lower it")
        if self.after < self.storage.cluster_manager.polled_every:
            every = f"storage.cluster_manager.polled_every, {self.storage.cluster_manager.polled_every:g} s"
            raise ValueError(f"after {self.after:g} s is less than {every}: clients must learn of chains; raise it")
        return self

    @property
    def manager(self) -> ClusterManagerConfig:
        """The config of the cluster manager."""
        assert self.storage.cluster_manager is not None, "_verify() has looked"
        return self.storage.cluster_manager

    def servers(self, fabric: Fabric) -> tuple[NodeId, ...]:
        """Return the storage nodes that have services."""
        return tuple(fabric.storages[: self.nodes])

    def storage_of(self, variant: Variant) -> StorageConfig:
        """Return the storage of a variant. A silent node misses writes, an empty one misses all and is looked at under
        reads alone: what it is sent is known to the byte then."""
        only_writes = variant.returns is Returns.SILENT
        shares = {"dataloader": {"share": 0.0}} if only_writes else {"checkpoint": {"share": 0.0}}
        resync = self.manager.resync.model_copy(
            update={"level": variant.level, "rate": variant.rate, "batch": variant.batch}
        )
        manager = self.manager.model_copy(update={"resync": resync})
        changed = {key: getattr(self.storage, key).model_copy(update=values) for key, values in shares.items()}
        return self.storage.model_copy(
            update={**changed, "cluster_manager": manager, "target_order": variant.target_order}
        )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as a node takes to be up to date."""
        return PhaseLengths(until="nodes are up to date")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "one of them comes back here")
        if self.failures:
            yield f"failures: {self.experiment} lets a storage node fail by itself; remove them"
        if self.nodes > len(fabric.storages):
            yield f"nodes: {self.nodes} exceed the {len(fabric.storages)} storage nodes of {fabric.name}; lower it"
            return
        if self.trainers > len(fabric.computes):
            yield f"trainers: {self.trainers} exceed the {len(fabric.computes)} compute nodes; lower it"
        yield from self._placement_faults(fabric)

    def _placement_faults(self, fabric: Fabric) -> Iterator[str]:
        one, servers = self.storage, self.servers(fabric)
        try:
            place_chains(servers, one.disks_per_node, one.chains_per_target, one.replicas)
        except ConfigError as error:
            yield from (f"storage: {fault}" for fault in error.faults)
        host = self.manager.host or servers[-1].name
        if host == servers[self.victim].name:
            yield f"victim: {host} has the cluster manager; choose another, or set storage.cluster_manager.host"
        shares = {Returns.SILENT: ("checkpoint", "writes"), Returns.EMPTY: ("dataloader", "reads")}
        for name, variant in self.variants.items():
            key, done = shares[variant.returns]
            if not getattr(one, key).share:
                yield f"variants.{name}: nobody {done}, since storage.{key}.share is 0; raise it"
