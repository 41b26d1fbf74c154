"""How evenly do routes spread a traffic pattern over a fabric, and what does that leave each flow?

Flows that never run dry go from every NIC of every compute node to others: to one, or to all. Each is on one path, or
its packets are sprayed. Theory says what each delivers on its path, and how many meet on a leaf's uplink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from experiments.traffic_patterns.cases import Variant
from experiments.traffic_patterns.config import TrafficPatternsConfig
from experiments.traffic_patterns.flows import DELIVERED, goodputs
from experiments.traffic_patterns.phases import PatternPhase, fair_shares_bps, flow_paths
from experiments.traffic_patterns.tables import FLOWS, UPLINKS
from experiments.traffic_patterns.uplinks import ON_UPLINKS, flows_on_uplinks
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Lines, Looks, Number, Places
from fabric.results import Result
from runs.cases import Point
from runs.session import Session
from runs.study import SameJobs, Study
from traffic.flows.pattern_job import PatternJob


def _jobs(session: Session, config: TrafficPatternsConfig) -> list[PatternJob]:
    session.use_queueing(config.queueing)
    return [PatternJob(session.stage, config.warm_up, config.measured_time, ServiceLevel.NCCL)]


def _play(session: Session, config: TrafficPatternsConfig, case: Variant, jobs: Sequence[PatternJob]) -> None:
    session.use_routing(config.routing_of(case.policy), case.policy.name)
    fabric, (job,) = session.live.fabric, jobs
    for draw in range(config.draws):
        ports = job.connect(config.flows(fabric, case.pattern, draw))
        paths = flow_paths(session.live.plan, fabric, case.policy, ports)
        outcome = session.run_phase(f"{case.name}_{draw}", f"{case.title}: {len(ports)} flows", jobs, config.lasts_s)
        from_s, fair_bps = outcome.began_s + config.warm_up, fair_shares_bps(fabric, paths)
        seen = PatternPhase(outcome.phase.name, case.pattern.value, case.policy.name, paths, job.goodput_bps, fair_bps)
        frames = seen.frames(fabric, session.table("ports"), (from_s, from_s + config.measured_time))
        for table, frame in frames.items():
            session.keep_frame(table, frame)


def earlier_cases(result: Result) -> Iterator[Point]:
    """Yield the distributions of a result whose summary lists no cases, from its rows."""
    theories = result.summary.get("uplinks_in_theory", {})
    flows, uplinks = result.table(FLOWS), result.table(UPLINKS)
    for (pattern, policy), mine in flows.groupby(["pattern", "policy"], sort=False, observed=True):
        theory = {int(count): share for count, share in theories.get(f"{pattern}_{policy}", ())}
        own = uplinks[(uplinks["pattern"] == pattern) & (uplinks["policy"] == policy)]
        for part in (*goodputs(mine), *flows_on_uplinks(own, theory)):
            settings = {"pattern": str(pattern).replace("_", "-"), "policy": str(policy), **part.settings}
            yield Point(settings, part.numbers)


DISTRIBUTION = partial(Lines, line="{policy}, {of}", rows="{pattern}", colour="{policy}", dash="{of}")
STUDY = Study[Variant, TrafficPatternsConfig](
    title=lambda found: f"Traffic patterns on {found.fabric.name}",
    cases=(Variant,),
    play=SameJobs(_jobs, _play),
    order=lambda config, case: config.policies.index(case.policy),
    further=(DELIVERED, ON_UPLINKS),
    figures=(
        DISTRIBUTION(
            "flows_on_uplinks",
            "Flows of the pattern on leaves' uplinks, by planned routes of their ports, beside theory of as many.",
            "Flows on an uplink of a leaf",
            numbers=(Number("uplinks_fraction", "uplinks"),),
            x="{flows}",
            labels=("number of flows on the uplink", "share of uplinks with at most that number"),
            looks=Looks(9.6, 3.6, percent_y=True, columns=2, places=Places(are_numbers=True)),
        ),
        DISTRIBUTION(
            "goodputs",
            "What each flow delivers, and what it would if flows shared the links of the same paths max-min fairly.",
            "What flows deliver",
            numbers=(Number("goodput_bps", "goodput", 1e-6),),
            x="{flows_percent}",
            labels=("flows, the slowest first (%)", "goodput of a flow (Mbit/s)"),
            looks=Looks(9.6, 3.6, columns=2, places=Places(are_numbers=True)),
        ),
    ),
)
