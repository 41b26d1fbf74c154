"""How long does a restore of a checkpoint by all nodes at once take?

After a failure a job starts anew, and all its nodes read at once: the worst incast that storage sees. Each reads its
own part (optimizer state is sharded), or all the same (weights, which every copy of the model has). Each variant is a
phase, which lasts until all have read everything. Fire-Flyer 2 has no congestion control against that, but lets a
client limit how many services send to it at once (arXiv 2408.14158v2, VI-B3); 3FS ships with that off.
"""

from __future__ import annotations

from typing import Any

from experiments.checkpoint_restore.summary import summarize
from experiments.checkpoint_restore.variants import CheckpointRestoreConfig, Variant, variants
from runs.jobs import started
from runs.session import Session
from traffic.storage.finite import FiniteStorageJob


def run_checkpoint_restore(session: Session, config: CheckpointRestoreConfig) -> dict[str, Any]:
    """Play every variant and return the summary."""
    playing = variants(config)
    for variant in playing:
        _play(session, config, variant)
    return summarize(session, playing)


def _play(session: Session, config: CheckpointRestoreConfig, variant: Variant) -> None:
    controls = {
        level: config.control_in(variant.queueing) if level.label == "storage" else control
        for level, control in config.congestion_controls().items()
    }
    session.use_congestion_control(controls, config.dcqcn, config.queues.marking)
    session.use_queueing(variant.queueing)
    job = FiniteStorageJob(session.stage, variant.storage(config.storage), session.live.fabric.computes)
    with started(session, [job]):
        session.run_phase(variant.name, variant.title, [job], 0.0)
