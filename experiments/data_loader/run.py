"""How long does computing wait for a data loader's reads?

Every compute node reads its part of a data set, each sample once, in batches, and computes between them; each variant
is a phase, which lasts until all have done their epochs. 3FS gives random access to samples, so that loaders need
neither keep nor shuffle data (3FS design notes); how far ahead they must ask, and what that depends on, is the
question.
"""

from __future__ import annotations

from typing import Any

from experiments.data_loader.summary import summarize
from experiments.data_loader.variants import DataLoaderConfig, Variant, variants
from runs.jobs import started
from runs.session import Session
from traffic.storage.finite import FiniteStorageJob


def run_data_loader(session: Session, config: DataLoaderConfig) -> dict[str, Any]:
    """Play every variant and return the summary."""
    playing = variants(config)
    for variant in playing:
        _play(session, config, variant)
    return summarize(session, config, playing)


def _play(session: Session, config: DataLoaderConfig, variant: Variant) -> None:
    session.use_queueing(variant.queueing)
    job = FiniteStorageJob(session.stage, variant.storage(config.storage), session.live.fabric.computes)
    with started(session, [job]):
        session.run_phase(variant.name, variant.title, [job], 0.0)
