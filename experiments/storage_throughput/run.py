"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?

Every compute node reads random samples from all storage nodes of its zone's network, with the service and client of
:mod:`traffic.storage`; one phase for each limit of request-to-send and each queueing. Fire-Flyer 2's 180 storage nodes
with two NICs each have 9 TB/s, of which reads reached 8 (arXiv 2408.14158v2, VI-B).
"""

from __future__ import annotations

from typing import Any

from experiments.storage_throughput.summary import summarize
from experiments.storage_throughput.variants import StorageThroughputConfig, Variant, variants
from runs.jobs import started
from runs.session import Session
from traffic.storage.job import StorageJob


def run_storage_throughput(session: Session, config: StorageThroughputConfig) -> dict[str, Any]:
    """Play every variant and return the summary."""
    playing = variants(config)
    for variant in playing:
        _play(session, config, variant)
    return summarize(session, config, playing)


def _play(session: Session, config: StorageThroughputConfig, variant: Variant) -> None:
    session.use_queueing(variant.queueing)
    storage = config.storage.model_copy(update={"request_to_send": variant.limit})
    job = StorageJob(session.stage, storage, session.live.fabric.computes)
    with started(session, [job]):
        session.run_phase(variant.name, variant.title, [job], config.phase_time)
