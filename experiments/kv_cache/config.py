"""What ``kv_cache`` plays: its studies, and the phases that they come to."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import TimeS
from fabric.model.network import Fabric
from runs.config import Choices, QueueingsConfig, counted_faults, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.collectives.nccl import NcclConfig
from traffic.storage.kv_cache.config import BlocksConfig, KvCacheConfig, Order, RequestsConfig
from traffic.storage.kv_cache.kinds import KV_CACHE

Duration = Annotated[TimeS, Field(gt=0, le=100_000)]
Counts = Annotated[
    list[Annotated[int, Field(ge=1, le=65_536)]], Field(min_length=1, max_length=64), AfterValidator(each_once)
]


class Study(str, Enum):
    """A part of the question."""

    TRACE = "trace"
    """All requests of a trace, at each of ``compressions``: hits, against what LRU finds in theory."""
    PREFILL = "prefill"
    """The same requests, once in each of ``orders``: the time to the first token."""
    PEAK = "peak"
    """One client that only reads, from each number of storage nodes, at each depth."""
    REMOVAL = "removal"
    """That client, while blocks that are too old are removed."""
    TRAINING = "training"
    """Clients and an allreduce on the same nodes: each alone, then both in each queueing."""


_TIMED = {Study.PEAK, Study.REMOVAL, Study.TRAINING}
"""Those whose phases have a length; the others last until all requests are answered."""


class KvCacheStudyConfig(QueueingsConfig):
    """Studies of a KV cache, each a phase or more. All but ``training`` play in the first of ``queueings``."""

    studies: Choices[Study] = Field(
        default_factory=lambda: [Study.PEAK],
        description=(
            "What is played: `trace` (hits), `prefill` (time to the first token), `peak` (one client reads), `removal` "
            "(beside removals), `training` (beside an allreduce)."
        ),
    )
    cache: KvCacheConfig = Field(
        default=KvCacheConfig(), description="The cache, its storage, and the requests of `trace` and `prefill`."
    )
    compressions: Annotated[
        list[Annotated[float, Field(gt=0, le=1e9)]], Field(min_length=1, max_length=64), AfterValidator(each_once)
    ] = Field(
        default_factory=lambda: [1.0],
        description="Compressions of time in which `trace` plays, one phase each.",
    )
    orders: Choices[Order] = Field(
        default_factory=lambda: [Order.LAYERS, Order.BLOCKS],
        description="Orders of reading in which `prefill` plays, one phase each.",
    )
    patience: Duration = Field(
        default=60.0, description="How long `trace` and `prefill` may take after the last request has come."
    )
    peak_requests: RequestsConfig = Field(
        default=RequestsConfig(), description="The requests of `peak`, `removal` and `training`: they find much."
    )
    storage_nodes: Counts = Field(
        default_factory=lambda: [2, 4, 8, 16], description="Numbers of storage nodes that `peak` reads from."
    )
    depths: Counts = Field(
        default_factory=lambda: [1, 2, 4, 8, 32],
        description="Requests to storage nodes that the client of `peak` has open at once (3FS: 32).",
    )
    phase_time: Duration = Field(default=0.003, description="Length of each phase of `peak`, `removal` and `training`.")
    warm_up: Duration = Field(default=0.001, description="Start of each of these, which does not count.")
    removal: BlocksConfig = Field(default=BlocksConfig(), description="What `removal` keeps and removes, and when.")
    training: NcclConfig = Field(
        default=NcclConfig(), description="The allreduce of `training`, over all compute nodes."
    )

    def cache_for(self, study: Study) -> KvCacheConfig:
        """Return the cache of a study."""
        if study in (Study.TRACE, Study.PREFILL):
            return self.cache
        more = {"blocks": self.removal} if study is Study.REMOVAL else {}
        return self.cache.model_copy(update={"requests": self.peak_requests, **more})

    @property
    def phase_lengths(self) -> PhaseLengths:
        """Studies with a fixed number of requests take as long as these take."""
        until = "all requests are answered" if set(self.studies) - _TIMED else ""
        return PhaseLengths.of(self, "phase_time", until=until)

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "the cache is on them")
        for study in self.studies if fabric.storages else ():
            cache = self.cache_for(study)
            faults = list(cache.faults()) or KV_CACHE.faults(cache, fabric)
            yield from (f"{study.value}: {fault}" for fault in faults)
        if self.cache.requests.cycle:
            yield "cache.requests.cycle: trace and prefill play requests to their end; set it to false"
        if _TIMED & set(self.studies):
            yield from counted_faults(fabric, self.phase_time, self.warm_up)
        if Study.PEAK in self.studies and max(self.storage_nodes) > len(fabric.storages):
            yield f"storage_nodes: {max(self.storage_nodes)}, and {fabric.name} has {len(fabric.storages)}; lower it"
        if Study.TRAINING in self.studies and len(fabric.computes) < 2:
            yield f"studies: training: an allreduce needs 2 compute nodes, and {fabric.name} has {len(fabric.computes)}"
