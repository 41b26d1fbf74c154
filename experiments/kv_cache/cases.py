"""The phases that the studies of ``kv_cache`` come to, each with its cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.kv_cache.config import KvCacheStudyConfig, Study
from fabric.model.lanes import Queueing
from fabric.units import exact
from runs.cases import Case, axis
from traffic.storage.kv_cache.config import KvCacheConfig, Order


@dataclass(frozen=True)
class CacheCase(Case):
    """A phase of a study of a cache."""

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache."""
        return config.cache_for(Study.PEAK)


def _with(cache: KvCacheConfig, part: str, **values: Any) -> KvCacheConfig:
    """Return a config with other values in one of its parts."""
    return cache.model_copy(update={part: getattr(cache, part).model_copy(update=values)})


@dataclass(frozen=True)
class Trace(CacheCase, name="trace_compressed_{compression}", title="trace: compressed {compression}"):
    """All requests of a trace, until all are answered and written."""

    compression: float = axis("compressions", words=exact)

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache, with requests that are compressed in time."""
        return _with(config.cache_for(Study.TRACE), "requests", compression=self.compression)


@dataclass(frozen=True)
class Prefill(CacheCase, name="prefill_by_{order}", title="prefill: by {order}"):
    """The same requests, read in an order."""

    order: Order = axis("orders")

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache, with that order."""
        return _with(config.cache_for(Study.PREFILL), "io", order=self.order)


@dataclass(frozen=True)
class Peak(CacheCase, name="peak_{servers}_{depth}", title="peak: {servers} storage nodes, depth {depth}"):
    """One client that only reads, from a number of storage nodes, with so many requests open."""

    servers: int = axis("storage_nodes")
    depth: int = axis("depths")

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache, with that depth."""
        cache = config.cache_for(Study.PEAK)
        limits = cache.storage.client.model_copy(update={"max_requests": self.depth})
        return _with(cache, "storage", client=limits)


@dataclass(frozen=True)
class Removal(CacheCase, name="removal", title="removal: one client reads while old blocks are removed"):
    """That client, while blocks that are too old are removed."""

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache, with what it removes."""
        return config.cache_for(Study.REMOVAL)


@dataclass(frozen=True)
class Training(CacheCase):
    """Clients and an allreduce on the same nodes."""


@dataclass(frozen=True)
class ReadsAlone(Training, name="training_reads_alone", title="training: reads alone"):
    """Only the clients."""


@dataclass(frozen=True)
class AllreduceAlone(Training, name="training_allreduce_alone", title="allreduce alone"):
    """Only the allreduce."""


@dataclass(frozen=True)
class Together(Training, name="training_together_{queueing}", title="both, {queueing}"):
    """Both, in a queueing."""

    queueing: Queueing = axis("queueings")


_CASES: dict[Study, tuple[type[CacheCase], ...]] = {
    Study.TRACE: (Trace,),
    Study.PREFILL: (Prefill,),
    Study.PEAK: (Peak,),
    Study.REMOVAL: (Removal,),
    Study.TRAINING: (ReadsAlone, AllreduceAlone, Together),
}


def cases_of(config: KvCacheStudyConfig) -> Iterator[CacheCase]:
    """Yield the phases of a config, study by study."""
    for study in config.studies:
        for kind in _CASES[study]:
            yield from kind.grid(config)
