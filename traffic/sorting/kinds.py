"""The kind of jobs that sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import OPERATIONS, JobRows, of_operations
from traffic.sorting.config import SortConfig, sort_faults
from traffic.work.job import WorkJob
from traffic.work.kinds import WORK, of_work_steps

_READS_AND_WRITES = of_operations("read", "write")


def _data(config: SortConfig, fabric: Fabric, nodes: Sequence[NodeId]) -> Sequence[DataFlow]:
    return WORK.data.flows(config, fabric, nodes)


def _measured(rows: JobRows) -> Mapping[str, float]:
    return {**_READS_AND_WRITES(rows), **of_work_steps(rows)}


SORT = JobKind(
    name="sort",
    meaning="A sort of data in storage, in two phases, again and again.",
    config=SortConfig,
    level=ServiceLevel.STORAGE,
    least_nodes=2,
    make=WorkJob,
    measures=Measures(
        of=_measured,
        speeds=("read.bandwidth_Bps", "write.bandwidth_Bps"),
        declared=(*OPERATIONS, *WORK.measures.declared),
    ),
    data=DataOfJob(_data, fixed_nodes=WORK.data.fixed_nodes, serving=lambda fabric: fabric.storages),
    faults=sort_faults,
    preload=WORK.preload,
)
