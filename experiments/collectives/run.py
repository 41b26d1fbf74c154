"""How fast is each collective by each algorithm over sizes, beside its closed form?

Each has the idle fabric to itself, in a job that plays one size after another, as nccl-tests does: some steps that open
TCP's windows, then those that count; then all again with results in the place of inputs. Every rank checks every
element of every step, and a wrong one ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from experiments.collectives.plays import CollectivesConfig, Play, all_ranks, plays
from experiments.collectives.summary import Played, summarize
from fabric.model.identity import NodeId
from runs.placement import RankOrder, link_loads, order_ranks
from runs.session import Session
from traffic.collectives.collective import Flows
from traffic.collectives.job import CollectiveJob
from traffic.stepped_job import FiniteSteps


def sized(job: CollectiveJob, play: Play, config: CollectivesConfig, in_place: bool) -> FiniteSteps:
    """Return a started collective as a job of a phase: it plays each size a number of times."""
    sizes = play.sizes(config)
    return FiniteSteps(job, lambda phase: job.run_sizes(sizes, config.counts, phase, in_place))


def run_collectives(session: Session, config: CollectivesConfig) -> dict[str, Any]:
    """Play all and return the summary."""
    session.use_queueing(config.queueing)
    fabric = session.live.fabric
    played = []
    for play in plays(config):
        session.tell(play.title)
        ranks, flows = _placed(session, config, play)
        played.append(Played(play, play.ideal_algbw_Bps(fabric, ranks, flows), _crowding(session, ranks, flows)))
        with closing(play.job(session, config, ranks)) as job:
            job.start()
            session.warm_up(job)
            session.run_phase(play.phase, play.title, [sized(job, play, config, in_place=False)], 0.0)
            if config.in_place and play.planned.in_place:
                name, title = play.phase_in_place, f"{play.title}, in place"
                session.run_phase(name, title, [sized(job, play, config, in_place=True)], 0.0)
    return summarize(session, config, played)


def _placed(session: Session, config: CollectivesConfig, play: Play) -> tuple[tuple[NodeId, ...], Flows]:
    """Return the ranks, in order, and what they send each other."""
    fabric = session.live.fabric
    ranks = all_ranks(fabric)[: play.all_ranks]
    flows = play.flows(config, fabric, ranks)
    if config.rank_order is RankOrder.ROUTES and fabric.inside is None and flows:
        ranks = order_ranks(fabric, session.live.plan, ranks, flows)
    return ranks, flows


def _crowding(session: Session, ranks: Sequence[NodeId], flows: Flows) -> float:
    """Return how much more than the busiest host's NIC the busiest link carries; 1 if routes never collide there."""
    fabric = session.live.fabric
    if not flows or fabric.inside is not None:
        return 1.0
    loads = link_loads(fabric, session.live.plan, ranks, flows)
    sent, received = [0.0] * len(ranks), [0.0] * len(ranks)
    for source, target, share in flows:
        sent[source] += share
        received[target] += share
    return max(loads.values()) / max(sent + received)
