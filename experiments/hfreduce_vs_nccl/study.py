"""How fast do HFReduce and NCCL add up gradients, and what limits them?

One allreduce over growing numbers of nodes, each variant alone on the fabric. Of nodes with an inside, these are the
series of the paper's Figure 7 (arXiv 2408.14158v2, IV-D): HFReduce, HFReduce with NVLink within a zone and across
zones, and NCCL's ring over all GPUs. Data begins and ends in GPUs; PCIe, root ports, memory and NICs limit it as they
do, and nothing that the paper measured of an allreduce is put in. Of nodes that are points, the network alone.
"""

from __future__ import annotations

from functools import partial

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.limits import LIMITS
from experiments.hfreduce_vs_nccl.network import NETWORK
from experiments.hfreduce_vs_nccl.scaling import SCALING
from experiments.hfreduce_vs_nccl.sent import busiest_sends, made_of, nodes_of
from experiments.hfreduce_vs_nccl.variants import VariantPhase, plays
from fabric.measures import Measure
from fabric.units import format_size
from runs.jobs import collective_job, ordered_ranks, started
from runs.node_use import CountedSteps, counters_of, limits_frame, served
from runs.placement import CROWDING, crowding_of, ranks_of
from runs.session import Session
from runs.study import Found, Outcome, Played, Study
from runs.true_scale import true_rate
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.collectives.job import CollectiveJob
from traffic.collectives.kinds import rank_flows
from traffic.collectives.step_numbers import collective_medians
from traffic.stepped_job import FiniteSteps


def _play(session: Session, config: HFReduceVsNcclConfig, case: VariantPhase) -> dict[str, float]:
    """Play a phase, and return how crowded its routes are."""
    session.use_queueing(config.queueing)
    fabric = session.live.fabric
    nodes, made = nodes_of(case, fabric), made_of(case, config, fabric)
    flows = rank_flows(made, fabric, nodes)
    ranks = ordered_ranks(session, config.rank_order, nodes, flows)
    job = collective_job(session, made, ranks if isinstance(made, HFReduceConfig) else ranks_of(fabric, ranks))
    with started(session, [job], warms_up=True):
        _play_steps(session, config, case, job)
    return {CROWDING.name: crowding_of(fabric, session.live.plan, ranks, flows)}


def _play_steps(session: Session, config: HFReduceVsNcclConfig, case: VariantPhase, job: CollectiveJob) -> None:
    """Play the steps, and keep what the limits of its nodes served meanwhile."""
    live = session.live
    counters = counters_of(live.fabric, nodes_of(case, live.fabric))
    steps = CountedSteps(job, config.steps, partial(served, live, counters) if counters else dict)
    outcome = session.run_phase(case.name, case.title, [FiniteSteps(job, steps)], 0.0)
    if counters:
        seconds = sum(row["ended_s"] - row["started_s"] for row in outcome.records.rows("steps"))
        session.keep_frame("node_limits", limits_frame(case.name, counters, steps.before, steps.after, seconds))


def _measure(played: Played[VariantPhase, HFReduceVsNcclConfig]) -> dict[str, float]:
    steps, sent = played.rows("steps"), busiest_sends(played.case, played.fabric)
    return {
        **({} if steps.empty else {**collective_medians(steps), "steps": len(steps)}),
        "network_ideal_Bps": metrics.ideal_algbw(played.fabric.nic_rate_bps, sent),
        **played.counted,
        **played.packets("drops_packets", "sent_packets", "retransmissions"),
    }


def _aside(found: Found[VariantPhase, HFReduceVsNcclConfig], one: Outcome[VariantPhase]) -> dict[str, float]:
    """Return the algbw of a phase, if a step ended, at the scale of the system that the fabric stands for; and once
    more of those that show what the size does."""
    if "algbw_Bps" not in one.values:
        return {}
    here_Bps, sizes = true_rate(found.fabric, one["algbw_Bps"]), found.config.sizes  # noqa: N806 - bytes, not bits
    is_of_size = one.case.size in sizes or (sizes and one.case.count == found.config.sizes_nodes)
    return {"here_Bps": here_Bps, **({"of_size_Bps": here_Bps} if is_of_size else {})}


STUDY = Study[VariantPhase, HFReduceVsNcclConfig](
    title=lambda of: f"HFReduce and NCCL: allreduce of {format_size(of.config.size)} over growing numbers of nodes",
    cases=lambda config: plays(config, config.fabric()),
    play=_play,
    measure=_measure,
    measures=(
        Measure("network_ideal_Bps", "algbw that the network allows, by the bytes that the busiest NIC sends"),
        CROWDING,
    ),
    aside=_aside,
    further=(SCALING, LIMITS, NETWORK),
)
