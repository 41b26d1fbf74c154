"""What does a KV cache on storage read, write, remove and save, and what can one client have of it?

Requests of a trace find prefixes in the cache and read them as real packets, layer by layer, beside which the rest is
computed; they write what was missing, and what is old is removed. 3FS's README has 40 GiB/s as the peak of a client
with a NIC of 400 Gbit/s, and removals beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.kv_cache.config import KvCacheStudyConfig, Study
from experiments.kv_cache.summary import Played, summarize
from fabric.model.identity import NodeId
from fabric.units import exact
from runs.jobs import started
from runs.session import Session
from traffic.collectives.nccl import NcclJob
from traffic.job import Job
from traffic.storage.kv_cache.config import KvCacheConfig
from traffic.storage.kv_cache.job import FiniteKvCacheJob, KvCacheJob

CACHE, TRAINING = "kv_cache", "allreduce"
"""The names of the jobs."""


def run_kv_cache(session: Session, config: KvCacheStudyConfig) -> dict[str, Any]:
    """Play all studies and return the summary."""
    session.use_queueing(config.queueings[0])
    played = [one for study in config.studies for one in _STUDIES[study](session, config)]
    return summarize(session, config, played)


def _with(cache: KvCacheConfig, part: str, **values: Any) -> KvCacheConfig:
    """Return a config with other values in one of its parts."""
    return cache.model_copy(update={part: getattr(cache, part).model_copy(update=values)})


def _job(session: Session, cache: KvCacheConfig, clients: int = 1, servers: Sequence[NodeId] = ()) -> KvCacheJob:
    nodes = session.live.fabric.computes[:clients]
    return KvCacheJob(session.stage, cache, nodes, name=CACHE, servers=servers)


def _phase(session: Session, named: tuple[str, str], jobs: Sequence[Job], time_s: float) -> None:
    session.run_phase(named[0], named[1], jobs, time_s)


def _trace(session: Session, config: KvCacheStudyConfig) -> Iterator[Played]:
    for compression in config.compressions:
        cache = _with(config.cache_for(Study.TRACE), "requests", compression=compression)
        yield _to_the_end(session, config, Study.TRACE, f"compressed_{exact(compression)}", cache)


def _prefill(session: Session, config: KvCacheStudyConfig) -> Iterator[Played]:
    for order in config.orders:
        cache = _with(config.cache_for(Study.PREFILL), "io", order=order)
        yield _to_the_end(session, config, Study.PREFILL, f"by_{order.value}", cache)


def _to_the_end(session: Session, config: KvCacheStudyConfig, study: Study, name: str, cache: KvCacheConfig) -> Played:
    """Play requests until all are answered and written."""
    node = session.live.fabric.computes[:1]
    job = FiniteKvCacheJob(session.stage, cache, node, config.patience, name=CACHE)
    with started(session, [job]):
        title = f"{study.value}: {name.replace('_', ' ')}"
        _phase(session, (f"{study.value}_{name}", title), [job], job.window.arrivals[-1].after_s)
        return Played(study, f"{study.value}_{name}", cache, len(job.window.arrivals), job.counts, job.window.left_out)


def _peak(session: Session, config: KvCacheStudyConfig) -> Iterator[Played]:
    for servers in config.storage_nodes:
        for depth in config.depths:
            cache = config.cache_for(Study.PEAK)
            limits = cache.storage.client.model_copy(update={"max_requests": depth})
            cache = _with(cache, "storage", client=limits)
            job = _job(session, cache, servers=session.live.fabric.storages[:servers])
            named = f"peak_{servers}_{depth}", f"peak: {servers} storage nodes, depth {depth}"
            with started(session, [job]):
                _phase(session, named, [job], config.phase_time)
            yield Played(Study.PEAK, named[0], cache, len(job.window.arrivals), job.counts, servers=servers)


def _removal(session: Session, config: KvCacheStudyConfig) -> Iterator[Played]:
    cache = config.cache_for(Study.REMOVAL)
    job = _job(session, cache)
    with started(session, [job]):
        _phase(session, ("removal", "removal: one client reads while old blocks are removed"), [job], config.phase_time)
    yield Played(Study.REMOVAL, "removal", cache, len(job.window.arrivals), job.counts)


def _training(session: Session, config: KvCacheStudyConfig) -> Iterator[Played]:
    cache, nodes = config.cache_for(Study.TRAINING), session.live.fabric.computes
    reads, allreduce = _job(session, cache, len(nodes)), NcclJob(session.stage, config.training, nodes, name=TRAINING)
    with started(session, [allreduce, reads]):
        alone = (("reads_alone", "training: reads alone", [reads]), ("allreduce_alone", "allreduce alone", [allreduce]))
        for name, title, jobs in alone:
            _phase(session, (f"training_{name}", title), jobs, config.phase_time)
            yield Played(Study.TRAINING, f"training_{name}", cache, len(reads.window.arrivals), reads.counts)
        for queueing in config.queueings:
            session.use_queueing(queueing)
            name = f"training_together_{queueing.value}"
            _phase(session, (name, f"both, {queueing.words}"), [allreduce, reads], config.phase_time)
            yield Played(Study.TRAINING, name, cache, len(reads.window.arrivals), reads.counts)
    session.use_queueing(config.queueings[0])


_STUDIES: dict[Study, Callable[[Session, KvCacheStudyConfig], Iterator[Played]]] = {
    Study.TRACE: _trace,
    Study.PREFILL: _prefill,
    Study.PEAK: _peak,
    Study.REMOVAL: _removal,
    Study.TRAINING: _training,
}
