"""A file system as a kind of job: clients on its nodes with a load of files, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fabric.measures import Better, Measure
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.tables import NO_UNIT, Column, Table, common
from traffic import metrics
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import BANDWIDTH, OPERATIONS, JobRows
from traffic.storage.metadata.job import PRELOAD, FilesJob
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.loads import FILE_STEP_NAMES

FILE_STEPS = Table(
    "One row per step of a load of files: all its processes begin it once all have ended the one before.",
    {
        **common("phase", "job", "service_level"),
        "step": Column(
            "category", NO_UNIT, "`layout`, `fio`, or of mdtest: `file_create`, `file_stat`, `tree_create` ..."
        ),
        "iteration": Column("int64", NO_UNIT, "which time it is, from 0"),
        "items": Column("int64", "count", "IOs, files or directories of all processes, without those that failed"),
        "size_bytes": Column("int64", "bytes", "bytes that they read and wrote"),
        "started_s": Column("float64", "s", "when the first process began"),
        "ended_s": Column("float64", "s", "when the last process had ended"),
    },
)


def _faults(_: FilesConfig, fabric: Fabric) -> Iterator[str]:
    if not fabric.storages:
        yield f"{fabric.name} has no storage nodes; give it some (topology.storage)"


ITEMS_PER_S = Measure(
    "<step>.operations_per_s",
    "items of a step per second, as mdtest and fio count them, mean over iterations",
    Better.MORE,
)


def _data(_: FilesConfig, fabric: Fabric, clients: Sequence[NodeId]) -> list[DataFlow]:
    pairs = [(client, server) for client in clients for server in fabric.storages]
    return [(a, b, 1 / len(pairs)) for pair in pairs for a, b in (pair, pair[::-1])]


def of_file_steps(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of a load: items per second and bytes per second of each step, as mdtest and fio count them,
    means over iterations; and how long single operations took. Items that failed do not count; a step in which all
    failed has no rate."""
    steps, operations = rows.table("file_steps"), rows.table("operations")
    found: dict[str, float] = {}
    for name, of_step in steps.groupby(steps["step"].astype(str)):
        took_s = of_step["ended_s"] - of_step["started_s"]
        if float(took_s.min()) <= 0 or not int(of_step["items"].sum()):
            continue
        found[ITEMS_PER_S.of(name)] = float((of_step["items"] / took_s).mean())
        if int(of_step["size_bytes"].sum()):
            found[BANDWIDTH.of(name)] = float((of_step["size_bytes"] / took_s).mean())
    for operation in sorted({metrics.kind_of(str(one)) for one in operations["operation"]}):
        done = metrics.completion(operations, operation)
        if done is not None:
            found |= {**done.named(operation, ("p50", "p99")), **done.counts(operation)}
    return found


def account_of_failed(rows: JobRows) -> str:
    """Return in words of which operations none succeeded; nothing if there are none."""
    names = rows.table("operations")["operation"].astype(str)
    counts = Counter(names)
    failed = {kind: count for name, count in counts.items() if (kind := metrics.kind_of(name)) not in counts}
    return ", ".join(f"all {failed[kind]} of {kind} failed, which measures nothing" for kind in sorted(failed))


FILES = JobKind(
    name="files",
    meaning="A file system on all storage nodes, with metadata servers; its clients load it as fio or mdtest do.",
    config=FilesConfig,
    level=ServiceLevel.STORAGE,
    least_nodes=1,
    make=FilesJob,
    measures=Measures(
        of_file_steps,
        speeds=(
            *("fio.bandwidth_Bps", "file_create.bandwidth_Bps"),
            *(ITEMS_PER_S.of(one) for one in FILE_STEP_NAMES),
        ),
        account=account_of_failed,
        declared=(*OPERATIONS, ITEMS_PER_S),
    ),
    data=DataOfJob(_data, serving=lambda fabric: fabric.storages),
    faults=_faults,
    tables={"file_steps": FILE_STEPS},
    preload=PRELOAD,
)
