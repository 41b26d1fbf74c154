"""The phases that the studies of ``kv_cache`` come to, each with its cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.kv_cache.config import KvCacheStudyConfig, Study
from fabric.model.lanes import Queueing
from fabric.units import exact
from runs.cases import Case, axis
from traffic.storage.kv_cache.config import KvCacheConfig, Order


@dataclass(frozen=True)
class CacheCase(Case):
    """A phase of a study of a cache. Its axes set keys of the cache. ``is_long``: it lasts until all requests are
    answered; the others are shorter than requests: they are about rates. ``is_by_link``: hardly anything but one
    client's reads comes by its link. What that carries is exact; the bytes of a read are in no known moment of its
    time, which is a tenth of such a phase."""

    study = Study.PEAK
    is_long = is_by_link = False

    def cache(self, config: KvCacheStudyConfig) -> KvCacheConfig:
        """Return its cache."""
        return self.in_config(config.cache_for(self.study))


@dataclass(frozen=True)
class Trace(CacheCase, name="trace_compressed_{compression}", title="trace: compressed {compression}"):
    """All requests of a trace, compressed in time, until all are answered and written."""

    compression: float = axis("compressions", words=exact, sets="requests.compression")
    study, is_long = Study.TRACE, True


@dataclass(frozen=True)
class Prefill(CacheCase, name="prefill_by_{order}", title="prefill: by {order}"):
    """The same requests, read in an order."""

    order: Order = axis("orders", sets="io.order")
    study, is_long = Study.PREFILL, True


@dataclass(frozen=True)
class Peak(CacheCase, name="peak_{servers}_{depth}", title="peak: {servers} storage nodes, depth {depth}"):
    """One client that only reads, from a number of storage nodes, with so many requests open."""

    servers: int = axis("storage_nodes")
    depth: int = axis("depths", sets="storage.client.max_requests")
    is_by_link = True


@dataclass(frozen=True)
class Removal(CacheCase, name="removal", title="removal: one client reads while old blocks are removed"):
    """That client, while blocks that are too old are removed."""

    study, is_by_link = Study.REMOVAL, True


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
