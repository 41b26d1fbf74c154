"""How much of GraySort's half hour on 3FS would the network alone take?

smallpond sorted 110.5 TiB with 50 compute nodes and 25 storage nodes in 30 minutes and 14 seconds (3FS's README): tasks
take the data apart into partitions, then each partition is sorted, and both phases read from and write to 3FS. Only the
shape is played: the same steps, by fewer nodes, with some MB each. Once without computing, so that the network is all
there is; its time per byte then says how long it would take for the published amount.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

from experiments.graysort.summary import summarize
from experiments.graysort.variants import GraySortConfig, Variant, variants
from fabric.model.lanes import ServiceLevel
from runs.session import Session
from traffic.stepped_job import FiniteSteps
from traffic.work.job import WorkJob


def run_graysort(session: Session, config: GraySortConfig) -> dict[str, Any]:
    """Play every variant once and return the summary."""
    session.use_queueing(config.queueing)
    playing = variants(config)
    for variant in playing:
        _play(session, config, variant)
    return summarize(session, config, playing)


def _play(session: Session, config: GraySortConfig, variant: Variant) -> None:
    session.tell(variant.title)
    nodes = session.live.fabric.computes[: config.sort.ranks]
    job = WorkJob(session.stage, variant.sort(config.sort), nodes, level=ServiceLevel.STORAGE, name="sort")
    with closing(job):
        job.start()
        job.warm_up()
        session.run_phase(variant.name, variant.title, [FiniteSteps(job, partial(job.run_steps, 1))], 0.0)
