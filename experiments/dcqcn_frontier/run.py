"""Is there a set of DCQCN's parameters that suits HFReduce and storage at once, and do lanes without it do better?

HFReduce and storage play together on a lossless fabric, over the same compute nodes, in a short phase for each point:
DCQCN with the parameters of a grid, in one lane and in lanes, and the same with no congestion control (``line``). In
Fire-Flyer 2 no parameters suited both, so DCQCN is off there, and lanes, static routes and a request-to-send do its
work (arXiv 2408.14158v2, VI-A). Every point starts its programs anew, with parameters and marking of its own.
"""

from __future__ import annotations

from typing import Any

from experiments.dcqcn_frontier.points import DcqcnFrontierConfig, Setting, points
from experiments.dcqcn_frontier.summary import HFREDUCE_ALONE, STORAGE_ALONE, summarize
from fabric.model.identity import NodeId
from runs.jobs import hfreduce_flows, ordered_ranks, started
from runs.placement import RankOrder
from runs.session import Session
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceJob
from traffic.storage.job import StorageJob


def run_dcqcn_frontier(session: Session, config: DcqcnFrontierConfig) -> dict[str, Any]:
    """Play both programs alone, then together at every point, and return the summary."""
    ranks = _ranks(session, config)
    playing = points(config, session.live.fabric)
    _play(session, config, without_control(config), ranks, alone=True)
    cuts = {point.name: _play(session, config, point, ranks) for point in playing}
    return summarize(session, config, playing, cuts)


def without_control(config: DcqcnFrontierConfig) -> Setting:
    """Return how programs play alone: with no congestion control, in the last queueing."""
    return Setting(control="line", queueing=config.queueings[-1], dcqcn=config.dcqcn, marking=None)


def _ranks(session: Session, config: DcqcnFrontierConfig) -> tuple[NodeId, ...]:
    """Return the first compute nodes of zone 0, in the order in which static routes do not collide."""
    nodes = tuple(node for node in session.live.fabric.computes if node.zone == 0)[: config.nodes]
    flows = hfreduce_flows(HFReduceJob(session.stage, config.hfreduce, nodes))
    return ordered_ranks(session, RankOrder.ROUTES, nodes, flows)


def _play(
    session: Session, config: DcqcnFrontierConfig, point: Setting, ranks: tuple[NodeId, ...], alone: bool = False
) -> int:
    """Play a point, and return how often DCQCN cut a rate; ``alone``: a phase for each program."""
    session.use_congestion_control(point.controls, point.dcqcn, point.marking)
    session.use_queueing(point.queueing)
    before = congestion_control.rate_cuts()
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    storage = StorageJob(session.stage, config.storage, ranks)
    with started(session, [hfreduce, storage]):
        session.warm_up(hfreduce)
        if alone:
            session.run_phase(HFREDUCE_ALONE, "HFReduce alone", [hfreduce], config.phase_time)
            session.run_phase(STORAGE_ALONE, "storage alone", [storage], config.phase_time)
        else:
            session.run_phase(point.name, point.title, [hfreduce, storage], config.phase_time)
    return congestion_control.rate_cuts() - before
