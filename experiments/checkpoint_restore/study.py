"""How long does a restore of a checkpoint by all nodes at once take?

After a failure a job starts anew, and all its nodes read at once: the worst incast that storage sees. Each reads its
own part (optimizer state is sharded), or all the same (weights, which every copy of the model has). Each case is a
phase, which lasts until all have read everything. Fire-Flyer 2 has no congestion control against that, but lets a
client limit how many services send to it at once (arXiv 2408.14158v2, VI-B3); 3FS ships with that off.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.checkpoints.rates import GIB
from experiments.checkpoint_restore.config import CheckpointRestoreConfig, Parts
from fabric.model.lanes import Queueing
from fabric.records.figure_forms import Bars, Level, Looks, Number
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis
from runs.study import Jobs, Played, Study, of_job
from traffic.storage.closed_forms import most_read_Bps
from traffic.storage.config import limit_words
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.load_measures import restore_numbers


@dataclass(frozen=True)
class Restore(Case, name="{queueing}_{parts}_rts_{limit}", title="{parts}, {limit}, {queueing}"):
    """What is restored, with which limit (None: none), in which queues."""

    queueing: Queueing = axis("queueings")
    parts: Parts = axis("parts", sets=lambda parts: parts.keys)
    limit: int | None = axis("request_to_send", words=limit_words, sets="storage.request_to_send")


def _measure(played: Played[Restore, CheckpointRestoreConfig]) -> dict[str, float]:
    return {**restore_numbers(played.rows("operations")), **played.operations("read"), **played.packets()}


STUDY = Study[Restore, CheckpointRestoreConfig](
    title="Restores by all nodes at once",
    cases=Restore.grid,
    play=Jobs(
        lambda session, own, _: [FiniteStorageJob(session.stage, own.storage, session.live.fabric.computes)],
        prepare=lambda session, own, case: session.use_congestion_control(
            own.controls_in(case.queueing), own.dcqcn, own.queues.marking
        ),
    ),
    measure=of_job("storage", _measure),
    aside=lambda found, one: {
        "even_Bps": most_read_Bps(found.fabric) / len(found.fabric.computes),
        "of_nics": one.values.get("restore.all_Bps", 0.0) / most_read_Bps(found.fabric),
        "not_whole": sum(one.values.get(name, 0.0) for name in ("restore.failed", "restore.abandoned")),
    },
    answer=Answer(
        lambda found: (
            f"{len(found.fabric.computes)} nodes restore from {len(found.fabric.storages)} storage nodes until the "
            "last one has all in {}."
        ),
        each="{restore.all_s}, {of_nics|.0%} of what the NICs carry ({title})",
        having="restore.all_s",
        ends=lambda one: one["restore.all_s"],
        between=" to ",
        otherwise="No node restored all that it was to.",
    ),
    tables=(
        CaseTable(
            "Restores by all nodes at once",
            "in {queueing}, restored {parts}, request-to-send {limit}, all have it after {restore.all_s}, "
            "median node {restore.median_s}, GiB/s a node {restore.node_Bps|.2f in GiB/s}, "
            "slowest {restore.slowest_Bps|.2f in GiB/s}, of the NICs {of_nics|.1%}, median read {read.p50_s}, "
            "p99 {read.p99_s}, dropped {drops_packets}, sent again {retransmissions}, not whole {not_whole}",
            lambda found: (
                f"of the NICs: of the {most_read_Bps(found.fabric) / 1e9:.4g} GB/s of payload that those of the "
                "storage nodes carry, or of the compute nodes if that is less, until the last node has all; >: at "
                "least, since some are not whole"
            ),
        ),
    ),
    figures=(
        Bars(
            "restores",
            "What a node restores per second while all do: the median node (bar) and the slowest (line), by what they "
            "read and how many reads may send to a client at once. Dotted: the storage nodes' NICs, divided evenly.",
            "Restores by all nodes at once",
            numbers=(Number("restore.node_Bps", "the median node", 1 / GIB),),
            x="{parts}",
            colour="{limit}",
            panels="{queueing}",
            labels=("", "read per node (GiB/s)"),
            marks=(Number("restore.slowest_Bps", "the slowest node", 1 / GIB, size=12),),
            levels=(Level(Number("even_Bps", "NICs, evenly", 1 / GIB)),),
            looks=Looks(legend=6),
        ),
    ),
)
