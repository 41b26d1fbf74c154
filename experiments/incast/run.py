"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?

One client reads from many storage nodes at once, with the service and client of :mod:`traffic.storage`, and one phase
for each number of servers, limit of its request-to-send, congestion control and queueing. Fire-Flyer 2 turned
congestion control off and limits how many servers send to a client at once, which keeps its throughput and lengthens
reads (arXiv 2408.14158v2, VI-B3).
"""

from __future__ import annotations

from typing import Any

from experiments.incast.summary import summarize
from experiments.incast.variants import IncastConfig, Variant, variants
from runs.jobs import started
from runs.session import Session
from traffic import congestion_control
from traffic.storage.job import StorageJob


def run_incast(session: Session, config: IncastConfig) -> dict[str, Any]:
    """Play every variant and return the summary."""
    playing = variants(config, session.live.fabric)
    cuts = {variant.name: _play(session, config, variant) for variant in playing}
    return summarize(session, config, playing, cuts)


def _play(session: Session, config: IncastConfig, variant: Variant) -> int:
    """Play a variant, and return how often DCQCN cut a rate."""
    fabric = session.live.fabric
    session.use_congestion_control(variant.controls, config.dcqcn, variant.marking)
    session.use_queueing(variant.queueing)
    before = congestion_control.rate_cuts()
    storage = config.storage.model_copy(update={"request_to_send": variant.limit})
    servers = fabric.storages[: variant.servers]
    job = StorageJob(session.stage, storage, fabric.computes[:1], servers=servers)
    with started(session, [job]):
        session.run_phase(variant.name, variant.title, [job], config.phase_time)
    return congestion_control.rate_cuts() - before
