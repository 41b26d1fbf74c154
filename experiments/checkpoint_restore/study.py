"""How long does a restore of a checkpoint by all nodes at once take?

After a failure a job starts anew, and all its nodes read at once: the worst incast that storage sees. Each reads its
own part (optimizer state is sharded), or all the same (weights, which every copy of the model has). Each case is a
phase, which lasts until all have read everything. Fire-Flyer 2 has no congestion control against that, but lets a
client limit how many services send to it at once (arXiv 2408.14158v2, VI-B3); 3FS ships with that off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.checkpoint_restore.config import CheckpointRestoreConfig, Parts
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.counted_operations import operation_metrics
from runs.session import Session
from runs.study import Found, Outcome, Played, Study, play_case
from traffic.metrics import payload_fraction
from traffic.storage.config import StorageConfig
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.load_config import RestoreBegin, RestoreOf
from traffic.storage.load_measures import restore_numbers

GIB = 1 << 30


@dataclass(frozen=True)
class Restore(Case, name="{queueing}_{parts}_rts_{limit}", title="{parts}, {limit}, {queueing}"):
    """What is restored, with which limit (None: none), in which queues."""

    queueing: Queueing = axis("queueings")
    parts: Parts = axis("parts")
    limit: int | None = axis("request_to_send", words=lambda n: "no limit" if n is None else f"{n} send at once")

    def storage(self, config: StorageConfig) -> StorageConfig:
        """Return the storage job's config."""
        changed = {
            "of": RestoreOf.OWN if self.parts is Parts.OWN else RestoreOf.SAME,
            "begin": RestoreBegin.SPREAD if self.parts is Parts.SAME_SPREAD else RestoreBegin.START,
        }
        restore = config.restore.model_copy(update=changed)
        return config.model_copy(update={"restore": restore, "request_to_send": self.limit})


def most_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what all nodes can restore at most, in bytes per second: what the NICs of the storage nodes carry as
    payload, or those of the compute nodes if they are less."""
    nics = min(
        sum(len(fabric.nics_of[node]) for node in fabric.storages),
        len(fabric.computes),
    )
    return nics * fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)


def _play(session: Session, config: CheckpointRestoreConfig, case: Restore) -> None:
    controls = {
        level: config.control_in(case.queueing) if level.label == "storage" else control
        for level, control in config.congestion_controls().items()
    }
    session.use_congestion_control(controls, config.dcqcn, config.queues.marking)
    session.use_queueing(case.queueing)
    play_case(
        session, case, [FiniteStorageJob(session.stage, case.storage(config.storage), session.live.fabric.computes)]
    )


def _measure(played: Played[Restore, CheckpointRestoreConfig]) -> list[Metric]:
    mine = played.rows("operations")
    reads = operation_metrics(mine, "read", played.phase.load_s)
    values = {**restore_numbers(mine), **reads, **played.packets()}
    return metrics_of(played.case.name, "storage", values, is_named_by_job=False)


def _answer(found: Found[Restore, CheckpointRestoreConfig]) -> str:
    fabric, most = found.fabric, most_Bps(found.fabric)
    done = [one for one in found.outcomes if "restore.all_s" in one.values]
    if not done:
        return "No node restored all that it was to."
    done.sort(key=lambda one: one["restore.all_s"])

    def told(one: Outcome[Restore]) -> str:
        share = one["restore.all_Bps"] / most
        return f"{format_time(one['restore.all_s'])}, {share:.0%} of what the NICs carry ({one.case.title})"

    return (
        f"{len(fabric.computes)} nodes restore from {len(fabric.storages)} storage nodes until the last one has all in "
        f"{told(done[0])} to {told(done[-1])}."
    )


def _tables(found: Found[Restore, CheckpointRestoreConfig]) -> Iterator[SummaryTable]:
    most = most_Bps(found.fabric)
    yield case_table(
        "Restores by all nodes at once",
        found.outcomes,
        (
            Column("in", "queueing"),
            Column("restored", "parts"),
            Column("request-to-send", "limit"),
            Column("all have it after", "restore.all_s"),
            Column("median node", "restore.median_s"),
            Column("GiB/s a node", "restore.node_Bps", ".2f in GiB/s"),
            Column("slowest", "restore.slowest_Bps", ".2f in GiB/s"),
            Column("of the NICs", lambda one: one.values.get("restore.all_Bps", 0.0) / most, ".1%"),
            Column("median read", "read.p50_s"),
            Column("p99", "read.p99_s"),
            Column("dropped", "drops_packets"),
            Column("sent again", "retransmissions"),
            Column("not whole", _not_whole),
        ),
        f"of the NICs: of the {most / 1e9:.4g} GB/s of payload that those of the storage nodes carry, or of the "
        "compute nodes if that is less, until the last node has all; >: at least, since some are not whole",
    )


def _not_whole(one: Outcome[Restore]) -> float:
    return sum(one.values.get(name, 0.0) for name in ("restore.failed", "restore.abandoned"))


STUDY = Study(
    title="Restores by all nodes at once",
    cases=Restore.grid,
    play=_play,
    measure=_measure,
    aside=lambda found, _: {"even_Bps": most_Bps(found.fabric) / len(found.fabric.computes)},
    answer=_answer,
    tables=_tables,
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
