"""What several experiments do with jobs: start them for a while, and choose the order of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fabric.model.identity import NodeId
from runs.placement import Flow, RankOrder, order_ranks
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.collectives.job import CollectiveJob
from traffic.collectives.kinds import rank_flows
from traffic.collectives.nccl import NcclConfig, NcclJob
from traffic.collectives.trees import tree_flows
from traffic.job import Job
from traffic.stepped_job import SteppedJob


@contextmanager
def started(session: Session, jobs: Sequence[Job], warms_up: bool = False) -> Iterator[None]:
    """Start jobs for the time of a block, in their order. ``warms_up``: those of steps then open their windows, with
    packets that no phase counts."""
    with ExitStack() as stack:
        for job in jobs:
            session.tell(f"starting {job.name}")
            stack.callback(job.close)
            job.start()
        for job in jobs if warms_up else ():
            if isinstance(job, SteppedJob):
                session.warm_up(job)
        yield


def collective_job(session: Session, config: HFReduceConfig | NcclConfig, ranks: Sequence[NodeId]) -> CollectiveJob:
    """Return the job of a collective over ranks, which of NCCL's may be GPUs."""
    if isinstance(config, HFReduceConfig):
        return HFReduceJob(session.stage, config, ranks)
    inside = session.live.fabric.inside
    return NcclJob(session.stage, config, ranks, None if inside is None else session.live.fabric.address_inside)


def hfreduce_flows(job: HFReduceJob) -> list[Flow]:
    """Return what HFReduce sends in a step."""
    return tree_flows(job.trees)


def hfreduce_ranks(
    session: Session, config: HFReduceConfig, order: RankOrder, nodes: tuple[NodeId, ...] = ()
) -> tuple[NodeId, ...]:
    """Return nodes, by default all computes, zone by zone, in the order asked for."""
    fabric = session.live.fabric
    return ordered_ranks(session, order, nodes or fabric.computes, rank_flows(config, fabric, nodes or fabric.computes))


def ordered_ranks(
    session: Session, order: RankOrder, nodes: tuple[NodeId, ...], flows: Sequence[Flow]
) -> tuple[NodeId, ...]:
    """Return ranks in the order asked for, best for ``flows`` between them."""
    if order is RankOrder.NODES:
        return nodes
    return order_ranks(session.live.fabric, session.live.plan, nodes, flows)
