"""How fast is each collective by each algorithm over sizes, beside its closed form?

Each has the idle fabric to itself, in a job that plays one size after another, as nccl-tests does: some steps that open
TCP's windows, then those that count; then all again with results in the place of inputs. Every rank checks every
element of every step, and a wrong one ends the run.
"""

from __future__ import annotations

from experiments.collectives.cases import Play, plays
from experiments.collectives.closed_forms import CLOSED_FORMS
from experiments.collectives.config import CollectivesConfig
from experiments.collectives.gradients import GRADIENTS
from experiments.collectives.sizes import SIZES
from fabric.units import format_size
from runs.jobs import collective_job, started
from runs.placement import CROWDING, RankOrder, crowding_of, ideal_algbw_Bps, order_ranks, ranks_of
from runs.session import Session
from runs.study import Study
from traffic.collectives.job import CollectiveJob
from traffic.stepped_job import FiniteSteps


def _play(session: Session, config: CollectivesConfig, case: Play) -> dict[str, float]:
    """Play a case, in place too where that is possible; return what is known of it by its ranks' order."""
    session.use_queueing(config.queueing)
    session.tell(case.title)
    fabric = session.live.fabric
    ranks = ranks_of(fabric, fabric.computes)[: case.all_ranks]
    flows = case.flows(config, fabric, ranks)
    if config.rank_order is RankOrder.ROUTES and fabric.inside is None and flows:
        ranks = order_ranks(fabric, session.live.plan, ranks, flows)
    job = collective_job(session, case.made(config), ranks)
    with started(session, [job]):
        session.warm_up(job)
        session.run_phase(case.name, case.title, [sized(job, case, config, in_place=False)], 0.0)
        if config.in_place and case.planned.in_place:
            steps = [sized(job, case, config, in_place=True)]
            session.run_phase(f"{case.name}_in_place", f"{case.title}, in place", steps, 0.0)
    ideal_Bps = ideal_algbw_Bps(fabric, ranks, flows)  # noqa: N806 - bytes, not bits
    crowding = {CROWDING.name: crowding_of(fabric, session.live.plan, ranks, flows)}
    return crowding if ideal_Bps is None else {**crowding, "ideal_algbw_Bps": ideal_Bps}


def sized(job: CollectiveJob, case: Play, config: CollectivesConfig, in_place: bool) -> FiniteSteps:
    """Return a started collective as a job of a phase: it plays each size a number of times."""
    sizes = case.sizes(config)
    return FiniteSteps(job, lambda phase: job.run_sizes(sizes, config.counts, phase, in_place))


STUDY = Study[Play, CollectivesConfig](
    title=lambda of: f"Collectives over sizes, {format_size(of.config.begin)} to {format_size(of.config.end)}",
    cases=plays,
    play=_play,
    further=(SIZES, CLOSED_FORMS, GRADIENTS),
)
