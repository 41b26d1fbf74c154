"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?

Every compute node reads random samples from all storage nodes of its zone's network, with the service and client of
:mod:`traffic.storage`; one phase for each limit of request-to-send and each queueing. Fire-Flyer 2's 180 storage nodes
with two NICs each have 9 TB/s, of which reads reached 8 (arXiv 2408.14158v2, VI-B). 3FS's own measurement reached 6.6
TiB/s with training on the same fabric (3FS's README): other jobs may play beside the reads.
"""

from __future__ import annotations

from typing import Any

from experiments.storage_throughput.summary import summarize
from experiments.storage_throughput.variants import StorageThroughputConfig, Variant, alone_phase, variants
from fabric.model.lanes import Queueing
from runs.allocation import Allocation
from runs.job_config import PlacedJob, place_jobs
from runs.jobs import started
from runs.session import Session
from traffic.storage.job import StorageJob


def run_storage_throughput(session: Session, config: StorageThroughputConfig) -> dict[str, Any]:
    """Play every variant and return the summary."""
    playing = variants(config)
    others: dict[Queueing, list[PlacedJob]] = {}
    for variant in playing:
        if config.beside and variant.queueing not in others:
            others[variant.queueing] = _play_others(session, config, variant.queueing)
        _play(session, config, variant)
    return summarize(session, config, playing, others)


def _play_others(session: Session, config: StorageThroughputConfig, queueing: Queueing) -> list[PlacedJob]:
    """Play the other jobs without reads; return them."""
    session.use_queueing(queueing)
    placed = _others(session, config)
    with started(session, [one.job for one in placed]):
        windows = [window for one in placed for window in one.windows()]
        session.run_phase(alone_phase(queueing), f"others alone, {queueing.words}", windows, config.phase_time)
    return placed


def _others(session: Session, config: StorageThroughputConfig) -> list[PlacedJob]:
    levels = config.queues.data_levels
    return place_jobs(config.beside, session.stage, session.live.plan, Allocation.PACKED, levels)


def _play(session: Session, config: StorageThroughputConfig, variant: Variant) -> None:
    session.use_queueing(variant.queueing)
    storage = config.storage.model_copy(update={"request_to_send": variant.limit})
    job = StorageJob(session.stage, storage, session.live.fabric.computes)
    placed = _others(session, config) if variant.is_beside else []
    windows = [window for one in placed for window in one.windows()]
    with started(session, [job, *(one.job for one in placed)]):
        session.run_phase(variant.name, variant.title, [job, *windows], config.phase_time)
