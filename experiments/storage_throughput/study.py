"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?

Every compute node reads random samples from all storage nodes of its zone's network, with the service and client of
:mod:`traffic.storage`; one phase for each limit of request-to-send and each queueing. Fire-Flyer 2's 180 storage nodes
with two NICs each have 9 TB/s, of which reads reached 8 (arXiv 2408.14158v2, VI-B). 3FS's own measurement reached 6.6
TiB/s with training on the same fabric (3FS's README): other jobs may play beside the reads.
"""

from __future__ import annotations

from typing import Any

from experiments.storage_throughput.cases import BESIDE_SHARE, PAPER_SHARE, AnyFound, AnyPlayed, OthersAlone, Reads
from experiments.storage_throughput.config import READS, StorageThroughputConfig
from experiments.storage_throughput.links import LINKS
from experiments.storage_throughput.others import OTHERS
from fabric.measures import Better, Measure
from fabric.model.lanes import ServiceLevel
from runs.allocation import Allocation
from runs.case_tables import Answer, CaseTable, Column
from runs.counted_operations import begun_in
from runs.job_config import place_jobs
from runs.session import Session
from runs.study import Jobs, Question, Study, of_job
from runs.timeline import JobWindow
from traffic.job import Job
from traffic.storage.closed_forms import storage_nics_Bps
from traffic.storage.job import StorageJob


def _jobs(session: Session, own: StorageThroughputConfig, case: OthersAlone | Reads) -> list[Job | JobWindow]:
    """Return the reads, unless others are alone, and the others."""
    others, levels = own.beside if case.is_beside else [], own.queues.data_levels
    placed = place_jobs(others, session.stage, session.live.plan, Allocation.PACKED, levels)
    reads = [StorageJob(session.stage, own.storage, session.live.fabric.computes)] if isinstance(case, Reads) else []
    return [*reads, *(window for one in placed for window in one.windows())]


def _reads(played: AnyPlayed) -> dict[str, float]:
    rows, reads = played.rows("operations", READS), played.reads(READS)
    begun = begun_in(rows[rows["operation"].isin(["read", "read_failed"])], played.counted_s)
    share, readers = reads["read.bandwidth_Bps"] / storage_nics_Bps(played.fabric), begun["host"].nunique()
    return {**reads, "read.share_of_nics": share, "read.readers": float(readers)}


def _nics(found: AnyFound) -> str:
    return f"{storage_nics_Bps(found.fabric) / 1e12:.3g} TB/s"


DELIVERED = Question[Any, StorageThroughputConfig](
    kinds=Reads,
    measure=(of_job(ServiceLevel.STORAGE.label, _reads), lambda played: played.packets()),
    measures=(
        Measure("read.share_of_nics", "bytes of reads per second over what the storage nodes' NICs carry", Better.MORE),
        Measure("read.readers", "compute nodes that read"),
    ),
    aside=lambda _, one: {"beside_share": BESIDE_SHARE} if one.case.is_beside else {},
    answer=Answer(
        lambda found: (
            f"Of the {_nics(found)} that the NICs of {len(found.fabric.storages)} storage nodes have, "
            f"{len(found.fabric.computes)} compute nodes read: {{}}. The paper's reads reached 8 TB/s of 9, "
            f"{PAPER_SHARE:.0%}; 3FS's own measurement, with training behind it, {BESIDE_SHARE:.0%}."
        ),
        each="{title}: {read.bandwidth_Bps|.3g in TB/s} TB/s, {read.share_of_nics|.0%}",
        between="; ",
    ),
    tables=(
        CaseTable(
            "Reads of all compute nodes",
            (
                "in {queueing}, request-to-send {limit}",
                Column("beside", lambda one: "others" if one.case.is_beside else None),
                "TB/s {read.bandwidth_Bps|.3g in TB/s}, of the NICs {read.share_of_nics|.1%}, median {read.p50_s}, "
                "p99 {read.p99_s}, reads {read.operations}, failed {read.failed|or 0}, by {read.readers}, "
                "dropped {drops_packets}, sent again {retransmissions}",
            ),
            lambda found: (
                f"of the NICs: of the {_nics(found)} that the storage nodes' NICs have, headers included; the paper's "
                f"8 of 9 TB/s are {PAPER_SHARE:.1%}. A read's bytes count evenly over its time. by: how many compute "
                "nodes began one in the counted time"
            ),
        ),
    ),
)

STUDY = Study[Any, StorageThroughputConfig](
    title="Reads of all compute nodes from all storage nodes",
    cases=(OthersAlone, Reads),
    order=lambda config, case: config.queueings.index(case.queueing),
    play=Jobs(_jobs, lasts="phase_time"),
    further=(DELIVERED, OTHERS, LINKS),
)
