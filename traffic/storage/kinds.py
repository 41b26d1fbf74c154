"""Storage as a kind of job: clients on its nodes, a service of its own on every storage node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.tables import Column, Table, common
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import OPERATIONS, JobRows, of_operations
from traffic.storage.config import StorageConfig
from traffic.storage.finite import storage_job
from traffic.storage.job import PRELOAD
from traffic.storage.load_measures import LOADER, RESTORES, of_loader, of_restores
from traffic.storage.managers.cluster import host_faults
from traffic.storage.returns import CHAINS, RESYNCS
from traffic.storage.tables import LOADER_BATCHES, STORAGE_CHAINS, STORAGE_RESYNCS


def _faults(config: StorageConfig, fabric: Fabric) -> Iterator[str]:
    if not fabric.storages:
        yield f"{fabric.name} has no storage nodes; give it some (topology.storage)"
    elif config.cluster_manager is not None:
        yield from host_faults(config.cluster_manager, fabric.storages, fabric)


def _data(_: StorageConfig, fabric: Fabric, clients: Sequence[NodeId]) -> list[DataFlow]:
    pairs = [(client, server) for client in clients for server in fabric.storages]
    return [(a, b, 1 / len(pairs)) for pair in pairs for a, b in (pair, pair[::-1])]


DISKS = Table(
    "One row per phase and disk of a storage service, if its disks take time or clients play `chunk_io`.",
    {
        **common("phase", "job", "host"),
        "disk": Column("int64", "count", "number of the disk on its host"),
        "reads": Column("int64", "count", "reads, for clients and for copies on write"),
        "read_bytes": Column("int64", "bytes", "what was read"),
        "writes": Column("int64", "count", "writes of updates, on this replica"),
        "written_bytes": Column("int64", "bytes", "what was written"),
        "copies_on_write": Column("int64", "count", "of the writes, those that wrote a chunk anew"),
        "busy_s": Column("float64", "s", "how long the disk was busy, by its rates"),
    },
)

_READS_AND_WRITES = of_operations("read", "write")


def _measured(rows: JobRows) -> Mapping[str, float]:
    return {**_READS_AND_WRITES(rows), **of_loader(rows), **of_restores(rows)}


STORAGE = JobKind(
    name="storage",
    meaning="Clients on its nodes; a service of its own on every storage node of the fabric.",
    config=StorageConfig,
    level=ServiceLevel.STORAGE,
    least_nodes=1,
    make=storage_job,
    measures=Measures(
        _measured,
        speeds=("loader.node_Bps", "read.bandwidth_Bps", "write.bandwidth_Bps"),
        declared=(*OPERATIONS, *LOADER, *RESTORES),
    ),
    data=DataOfJob(_data, serving=lambda fabric: fabric.storages),
    faults=_faults,
    tables={
        "loader_batches": LOADER_BATCHES,
        "disks": DISKS,
        CHAINS: STORAGE_CHAINS,
        RESYNCS: STORAGE_RESYNCS,
    },
    preload=PRELOAD,
)
