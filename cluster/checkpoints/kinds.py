"""Checkpoints as a kind of job: its table, and what is measured of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.job import RESTORE, WRITE, CheckpointsJob
from fabric.measures import Better, Measure
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.tables import NO_UNIT, Column, Table, common
from traffic import metrics
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import JobRows
from traffic.storage.metadata.job import PRELOAD

if TYPE_CHECKING:  # Programs in hosts are forked from a process that lists kinds of jobs, and pandas is large.
    import pandas as pd

CHECKPOINTS = Table(
    "One row per node and checkpoint that it wrote a part of, or restored its part of.",
    {
        **common("phase", "job", "service_level", "host"),
        "operation": Column("category", NO_UNIT, "`write`, `restore`, or one of them with `_failed`"),
        "step": Column("int64", "count", "the step that the checkpoint is of"),
        "nodes": Column("int64", "count", "how many nodes wrote, or restored"),
        "size_bytes": Column("int64", "bytes", "bytes of tensors that this node wrote, or restored"),
        "started_s": Column("float64", "s", "when it began"),
        "ready_s": Column(
            "float64", "s", "when its copy was made and it began to write; of a restore, when it had the index"
        ),
        "done_s": Column("float64", "s", "when its part was written, or restored"),
        "ended_s": Column("float64", "s", "when the checkpoint was complete, or restored by all nodes"),
        "why": Column("category", NO_UNIT, "why it failed, in words"),
    },
)


COUNT = Measure("<operation>.count", "checkpoints that were begun, or restores of one")
FAILED = Measure("<operation>.failed", "of these, those that a node could not complete", Better.LESS)
RESTORED = Measure(
    "restore_<nodes>.node_Bps", "of a restore by this many nodes, bytes per second of the median node", Better.MORE
)
RESTORED_SLOWEST = Measure(
    "restore_<nodes>.slowest_Bps", "of a restore by this many nodes, the slowest node", Better.MORE
)
RESTORED_ALL = Measure(
    "restore_<nodes>.all_s", "of a restore by this many nodes, the time until all have it", Better.LESS
)
MEASURES = (
    COUNT,
    FAILED,
    RESTORED,
    RESTORED_SLOWEST,
    RESTORED_ALL,
    Measure("checkpoint.copy_s", "time of the copy from GPUs, median over nodes", Better.LESS),
    Measure("checkpoint.node_Bps", "bytes that a node writes per second of writing, median over nodes", Better.MORE),
    Measure("checkpoint.slowest_Bps", "bytes that a node writes per second of writing, the slowest", Better.MORE),
    Measure("checkpoint.complete_s", "from the first node's start until the index is there, median", Better.LESS),
    Measure("checkpoint.whole_Bps", "a node's bytes over the time until the index is there, median", Better.MORE),
)


def checkpoint_numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return what rows of the table ``checkpoints`` come to; nothing without any.

    ``checkpoint.copy_s``: from GPUs, the median node; ``checkpoint.node_Bps``, ``checkpoint.slowest_Bps``: what a node
    writes per second of writing, the median and the least; ``checkpoint.complete_s``: from the first node's begin until
    the index is there, the median checkpoint; ``checkpoint.whole_Bps``: a node's bytes in that time;
    ``checkpoint.count``, ``checkpoint.failed``; of restores by N nodes ``restore_N.node_Bps``,
    ``restore_N.slowest_Bps`` and ``restore_N.all_s``, and ``restore.failed``.
    """
    found: dict[str, float] = {}
    kinds = table["operation"].astype(str)
    written = table[kinds == WRITE]
    for operation, name in ((WRITE, "checkpoint"), (RESTORE, "restore")):
        begun = metrics.begun(table, operation)
        if not begun.empty:
            found[COUNT.of(name)] = float(begun.groupby(["step", "nodes"]).ngroups)
            failed = begun[begun["operation"].astype(str) != operation]
            found[FAILED.of(name)] = float(failed.groupby(["step", "nodes"]).ngroups) if len(failed) else 0.0
    if not written.empty:
        rates = written["size_bytes"] / (written["done_s"] - written["ready_s"])
        each = written.groupby("step").agg({"started_s": "min", "ended_s": "max", "size_bytes": "median"})
        took_s = each["ended_s"] - each["started_s"]
        found |= {
            "checkpoint.copy_s": float((written["ready_s"] - written["started_s"]).median()),
            "checkpoint.node_Bps": float(rates.median()),
            "checkpoint.slowest_Bps": float(rates.min()),
            "checkpoint.complete_s": float(took_s.median()),
            "checkpoint.whole_Bps": float((each["size_bytes"] / took_s).median()),
        }
    for nodes, rows in table[kinds == RESTORE].groupby("nodes"):
        rates = rows["size_bytes"] / (rows["done_s"] - rows["started_s"])
        found |= {
            RESTORED.of(nodes): float(rates.median()),
            RESTORED_SLOWEST.of(nodes): float(rates.min()),
            RESTORED_ALL.of(nodes): float(rows["ended_s"].max() - rows["started_s"].min()),
        }
    return found


def _measured(rows: JobRows) -> Mapping[str, float]:
    return checkpoint_numbers(rows.table("checkpoints"))


def _faults(_: CheckpointsConfig, fabric: Fabric) -> Iterator[str]:
    if not fabric.storages:
        yield f"{fabric.name} has no storage nodes; give it some (topology.storage)"


def _data(_: CheckpointsConfig, fabric: Fabric, clients: Sequence[NodeId]) -> list[DataFlow]:
    pairs = [(client, server) for client in clients for server in fabric.storages]
    return [(a, b, 1 / len(pairs)) for pair in pairs for a, b in (pair, pair[::-1])]


CHECKPOINTING = JobKind(
    name="checkpoints",
    meaning="A file system, to which its nodes write checkpoints, an even part each, and from which they restore them.",
    config=CheckpointsConfig,
    level=ServiceLevel.STORAGE,
    least_nodes=1,
    make=CheckpointsJob,
    measures=Measures(_measured, speeds=("checkpoint.node_Bps",), declared=MEASURES),
    data=DataOfJob(_data, serving=lambda fabric: fabric.storages),
    faults=_faults,
    tables={"checkpoints": CHECKPOINTS},
    preload=(*PRELOAD, "cluster.checkpoints.client"),
)
