"""Does an incast's congestion spread further with adaptive routing?

All storage nodes answer a client at once, without a request-to-send, again and again, while pairs of other hosts read
from each other (:mod:`experiments.routing_incast.bystanders`); with each routing policy, once those bystanders alone
and once with the incast. Fire-Flyer 2 routes statically and deals storage nodes evenly over leaves, since adaptive
routing spread the congestion of incasts further (arXiv 2408.14158v2, VI-A2). Its fabric is lossless; where queues drop,
a full port does not pause those before it, and only the spreading by routes is visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.planning.policies import ADAPTIVE, STATIC
from experiments.routing_incast.bystanders import APART, Incast
from experiments.routing_incast.cases import INCAST, AnyFound, Variant, beside
from experiments.routing_incast.config import RoutingIncastConfig, choose
from experiments.routing_incast.readers import SLOWED
from experiments.routing_incast.spreading import SPREADING, moves_of
from fabric.model.lanes import ServiceLevel
from runs.case_tables import say
from runs.session import Session
from runs.study import Outcome, SameJobs, Study
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.flows.fan_in_measures import SLOWED_PAIRS

SPREAD = (
    "{policy} {congested_ports|.0f} congested ports, pairs apart {apart.slowdown|.2f or an unknown number of} times as "
    "slow as alone, the slowest {apart.worst_slowdown|.2f or an unknown number of} times"
)


def _made(session: Session, config: RoutingIncastConfig) -> Sequence[FanInJob]:
    """Return the job of bystanders, and that of the incast."""
    incast, pairs = choose(config, session.live.fabric)
    wanted, size = config.incast, config.bystanders.request
    reads = [FanIn(kind, pair.reader, (pair.server,), size) for kind, found in pairs.items() for pair in found]
    answers = [FanIn(INCAST, client, incast.servers, wanted.request, wanted.period) for client in incast.clients]
    bystanders = FanInJob(session.stage, reads, config.bystanders.level)
    return bystanders, FanInJob(session.stage, answers, ServiceLevel.STORAGE)


def _play(
    session: Session, config: RoutingIncastConfig, case: Variant, jobs: Sequence[FanInJob]
) -> Mapping[str, float]:
    session.use_queueing(case.queueing)
    session.use_routing(config.routing_of(case.policy), case.policy.name)
    playing = jobs if case.is_beside else jobs[:1]
    outcome = session.run_phase(case.name, case.title, playing, config.phase_time)
    return {"moves": len(moves_of(outcome)), "reorderings": sum(job.reorderings for job in playing)}


def answer(found: Sequence[Outcome[Variant]]) -> str:
    """Return the finding of phases with the incast: one sentence per queueing."""
    sentences = []
    for queueing in dict.fromkeys(one.case.queueing for one in found):
        mine = [one for one in found if one.case.queueing is queueing]
        parts = [say(one, SPREAD) for one in mine]
        sentences.append(f"In {queueing.words}: {'; '.join(parts)}{_verdict(mine)}.")
    return " ".join(sentences)


def _verdict(found: Sequence[Outcome[Variant]]) -> str:
    """Return whether congestion spread further with adaptive routes than with static ones, if both were played."""
    by_policy = {one.case.policy: one.values for one in found}
    if not {STATIC, ADAPTIVE} <= set(by_policy):
        return ""
    static, adaptive, slowed = by_policy[STATIC], by_policy[ADAPTIVE], SLOWED_PAIRS.of(APART)
    ports = _more(adaptive["congested_ports"] - static["congested_ports"], "congested port")
    pairs = _more(adaptive.get(slowed, 0) - static.get(slowed, 0), "slowed pair")
    return f": compared with static routes, adaptive ones have {ports} and {pairs} among pairs apart"


def _more(difference: float, what: str) -> str:
    if difference == 0:
        return f"as many {what}s"
    plural = "" if abs(difference) == 1 else "s"
    return f"{abs(difference):.0f} {what}{plural} {'more' if difference > 0 else 'fewer'}"


def _title(found: AnyFound) -> str:
    config = found.config
    servers = Incast.of(found.fabric, config.incast.clients, config.incast.servers).servers
    return f"Incast of {len(servers)} storage nodes under {len(beside(found))} routings and queueings"


STUDY = Study[Variant, RoutingIncastConfig](
    title=_title,
    cases=Variant.grid,
    play=SameJobs(_made, _play),
    answer=lambda found: answer(beside(found)),
    further=(SPREADING, SLOWED),
)
