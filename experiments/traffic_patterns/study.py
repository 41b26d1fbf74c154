"""How evenly do routes spread a traffic pattern over a fabric, and what does that leave each flow?

Flows that never run dry go from every NIC of every compute node to others: to one, or to all. Each is on one path, or
its packets are sprayed. Theory says what each delivers on its path, and how many meet on a leaf's uplink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from controllers.planning.policies import Policy
from experiments.traffic_patterns.config import Pattern, TrafficPatternsConfig
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Lines, Looks, Number, Places
from runs.case_tables import Answer, CaseTable
from runs.cases import Case, axis
from runs.pattern_measures import MEASURES, PatternPhase, PatternRows, distributions, fair_shares_bps, flow_paths
from runs.session import Session
from runs.study import SameJobs, Study
from traffic.flows.pattern_job import PatternJob


@dataclass(frozen=True)
class Variant(Case, name="{pattern}_{policy}", title="{pattern}, {policy}"):
    """A pattern, and the routes that it takes; its draws are phases."""

    pattern: Pattern = axis("patterns")
    policy: Policy = axis("policies", words=str)


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


def _rows(session: Session, case: Variant) -> PatternRows:
    return PatternRows.of(session.table, session.live.fabric, case.pattern.value, case.policy)


DISTRIBUTION = partial(Lines, line="{policy}, {of}", rows="{pattern}", colour="{policy}", dash="{of}")
STUDY = Study[Variant, TrafficPatternsConfig](
    title=lambda found: f"Traffic patterns on {found.fabric.name}",
    cases=(Variant,),
    play=SameJobs(_jobs, _play),
    order=lambda config, case: config.policies.index(case.policy),
    measure=lambda played: _rows(played.session, played.case).numbers(played.fabric, played.config.draws),
    measures=MEASURES,
    points=lambda found, one: list(distributions(_rows(found.session, one.case))),
    answer=Answer(
        "Of what all NICs could receive, there arrive: {}.",
        each="{pattern} by {policy} routes {nics_used_fraction|.0%} ({theory_nics_used_fraction|.0%} in theory)",
    ),
    tables=(
        CaseTable(
            "What flows deliver",
            "pattern {pattern}, routes {policy}, flows {flows}, of all NICs {nics_used_fraction}, "
            "in theory {theory_nics_used_fraction}, of its fair share: median {share_p50_fraction|.2f}, "
            "least {share_least_fraction|.2f}",
            lambda of: f"{of.config.draws} draws of each; theory: flows share the links of their paths max-min fairly",
        ),
        CaseTable(
            "Flows on leaves' uplinks",
            "pattern {pattern}, routes {policy}, mean {uplink_flows_mean|.2f}, most {uplink_flows_most}, "
            "variance {uplink_flows_variance|.2f}, theory {theory_uplink_flows_variance|.2f}, "
            "idle {uplinks_idle_fraction}, theory {theory_uplinks_idle_fraction}, "
            "carried is off by {carried_off_fraction}",
            "theory: hashes throw flows into uplinks as balls into bins (binomial), static routes draw them from those "
            "that are an uplink's own (hypergeometric); carried: what an uplink sent beside what its flows delivered, "
            "the most of any, of its rate",
            rows=lambda found: [one for one in found.outcomes if "uplink_flows_mean" in one.values],
        ),
    ),
    figures=(
        DISTRIBUTION(
            "flows_on_uplinks",
            "Flows of the pattern on leaves' uplinks, by planned routes of their ports, beside theory of as many.",
            "Flows on an uplink of a leaf",
            numbers=(Number("uplinks_fraction", "uplinks"),),
            x="{flows}",
            labels=("number of flows on the uplink", "share of uplinks with so many at most"),
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
