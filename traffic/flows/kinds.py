"""Background flows as a kind of job. The other flows of this folder are jobs of single experiments."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.flows.background import BackgroundConfig, BackgroundJob
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import OPERATIONS, of_operations


def _data(config: BackgroundConfig, fabric: Fabric, nodes: Sequence[NodeId]) -> list[DataFlow]:
    zone = {node: fabric.nics_of[node][0].zone for node in nodes}
    pairs = [(a, b) for a in nodes for b in nodes if a != b and (zone[a] == zone[b] or not config.within_zone)]
    return [(a, b, 1 / len(pairs)) for a, b in pairs]


BACKGROUND = JobKind(
    name="background",
    meaning="Flows among its nodes.",
    config=BackgroundConfig,
    level=ServiceLevel.OTHER,
    least_nodes=2,
    make=BackgroundJob,
    measures=Measures(of_operations("flow"), speeds=("flow.bandwidth_Bps",), declared=OPERATIONS),
    data=DataOfJob(_data),
    preload=("traffic.flows.background",),
)
