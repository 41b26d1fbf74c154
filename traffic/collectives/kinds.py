"""The kinds of jobs that collectives are: HFReduce, and NCCL-like collectives."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, trees_of
from traffic.collectives.job import zones_of
from traffic.collectives.nccl import NcclConfig, NcclJob, rails_of
from traffic.collectives.step_numbers import STEPS, of_steps
from traffic.collectives.trees import tree_flows
from traffic.job_kind import ALL_NICS, DataFlow, DataOfJob, JobKind, Measures

RankFlow = tuple[int, int, float]
_MEASURES = Measures(of=of_steps, speeds=("algbw_Bps",), declared=STEPS)


def rank_flows(config: HFReduceConfig | NcclConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> list[RankFlow]:
    """Return what a step sends from rank to rank. Raises TrafficError if it cannot be carried out over them."""
    if isinstance(config, HFReduceConfig):
        return tree_flows(trees_of(config.tree, zones_of(fabric, ranks)))
    return config.flows(ranks)


def _data(config: HFReduceConfig | NcclConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> list[DataFlow]:
    return [(ranks[source], ranks[target], share) for source, target, share in rank_flows(config, fabric, ranks)]


def _nccl_rails(config: NcclConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> Sequence[int | None]:
    if config.channels is None or not config.planned_algorithm.has_channels:
        return ALL_NICS
    return rails_of(fabric, ranks[0], config.channels) if config.channels > 1 else (None,)


HFREDUCE = JobKind(
    name="hfreduce",
    meaning="HFReduce over its nodes.",
    config=HFReduceConfig,
    level=ServiceLevel.HFREDUCE,
    least_nodes=2,
    make=HFReduceJob,
    measures=_MEASURES,
    data=DataOfJob(_data, orders_ranks=True),
    preload=("traffic.collectives.hfreduce",),
)
NCCL = JobKind(
    name="nccl",
    meaning="A collective as NCCL has them over its nodes, by any of its algorithms.",
    config=NcclConfig,
    level=ServiceLevel.NCCL,
    least_nodes=2,
    make=NcclJob,
    measures=_MEASURES,
    data=DataOfJob(_data, _nccl_rails, orders_ranks=True),
    preload=("traffic.collectives.nccl",),
)
