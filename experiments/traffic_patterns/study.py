"""How evenly do routes spread a traffic pattern over a fabric, and what does that leave each flow?

Flows that never run dry go from every NIC of every compute node to others: in a permutation to one, in all-to-all to
all. Each is on one path, by its destination (static) or by a hash of its ports (ECMP), or its packets are sprayed over
all. Theory says what each flow
delivers on that path, and how many flows meet on a leaf's uplink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pandas as pd

from controllers.planning.collisions import Histogram
from controllers.planning.ecmp import TCP, FiveTuple
from controllers.planning.fairness import max_min_of_parts_bps
from controllers.planning.paths import path_load, planned_path
from controllers.planning.plan import RoutePlan
from controllers.planning.policies import Policy
from experiments.traffic_patterns.config import Pattern, TrafficPatternsConfig
from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.model.patterns import NicPair
from fabric.percentiles import nearest_ranks
from fabric.records.figure_forms import Lines, Looks, Number, Places
from fabric.results import Result
from runs.case_tables import Answer, CaseTable, Column
from runs.cases import Case, axis
from runs.pattern_measures import (
    FLOWS,
    MEASURES,
    UPLINKS,
    PatternPhase,
    expected_on_uplinks,
    flow_numbers,
    uplink_numbers,
)
from runs.session import Session
from runs.study import Found, Outcome, Played, Point, Study
from traffic.flows.pattern_job import PatternJob
from traffic.metrics import payload_fraction


@dataclass(frozen=True)
class Variant(Case, name="{pattern}_{policy}", title="{pattern}, {policy}"):
    """A pattern, and the routes that it takes; its draws are phases."""

    pattern: Pattern = axis("patterns")
    policy: Policy = axis("policies", name=lambda policy: policy.name, words=lambda policy: policy.name)

    def rows_of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return its rows of a table."""
        return frame[(frame["pattern"] == self.pattern.value) & (frame["policy"] == self.policy.name)]


def run_traffic_patterns(session: Session, config: TrafficPatternsConfig) -> dict[str, Any]:
    """Play all phases, routes after routes, and return the summary."""
    session.use_queueing(config.queueing)
    cases = Variant.grid(config)
    job = PatternJob(session.stage, config.warm_up, config.measured_time, ServiceLevel.NCCL)
    with closing(job):
        job.start()
        for policy in config.policies:
            session.use_routing(config.routing_of(policy), policy.name)
            for case in (one for one in cases if one.policy is policy):
                for draw in range(config.draws):
                    _play(session, config, job, case, draw)
    return STUDY.summarize(session, config, cases)


def _play(session: Session, config: TrafficPatternsConfig, job: PatternJob, case: Variant, draw: int) -> None:
    """Play a draw and keep the rows of its flows and uplinks."""
    fabric, plan, name = session.live.fabric, session.live.plan, f"{case.name}_{draw}"
    flows = config.flows(fabric, case.pattern, draw)
    ports = job.connect(flows)
    if missing := [flow for flow in flows if flow not in ports]:
        source, destination = missing[0]
        raise TrafficError(
            f"{name}: {source.port} to {destination.port}: no connection ({len(missing)} of {len(flows)})"
        )
    keys = {flow: FiveTuple(flow[0].ip, flow[1].ip, TCP, *ports[flow]) for flow in flows}
    paths = {flow: _parts(plan, fabric, case.policy, flow, key) for flow, key in keys.items()}
    title = f"{case.title}: {len(flows)} flows"
    began_s = session.run_phase(name, title, [job], config.warm_up + config.measured_time).began_s + config.warm_up
    fair = max_min_of_parts_bps(fabric, [paths[flow] for flow in flows])
    payload = payload_fraction(fabric.mtu_bytes)
    fair_bps = {flow: rate * payload for flow, rate in zip(flows, fair, strict=True)}
    seen = PatternPhase(name, case.pattern.value, case.policy.name, paths, job.goodput_bps, fair_bps)
    measured_s = (began_s, began_s + config.measured_time)
    session.keep_frame(FLOWS, seen.flows_frame())
    session.keep_frame(UPLINKS, seen.uplinks_frame(fabric, session.table("ports"), measured_s))


def _parts(plan: RoutePlan, fabric: Fabric, policy: Policy, flow: NicPair, key: FiveTuple) -> Mapping[Port, float]:
    """Return what part of a flow takes each port on its way."""
    return (
        path_load(plan, fabric, *flow) if policy.sprays else dict.fromkeys(planned_path(plan, fabric, *flow, key), 1.0)
    )


def _rows(session: Session, case: Variant) -> tuple[pd.DataFrame, pd.DataFrame, Histogram]:
    """Return a variant's flows, uplinks, and how many flows uplinks have in theory."""
    flows, uplinks = (case.rows_of(session.table(name)) for name in (FLOWS, UPLINKS))
    is_permutation = case.pattern is Pattern.PERMUTATION
    return flows, uplinks, expected_on_uplinks(session.live.fabric, case.policy, is_permutation, uplinks)


def _measure(played: Played[Variant, TrafficPatternsConfig]) -> dict[str, float]:
    flows, uplinks, theory = _rows(played.session, played.case)
    delivered = flow_numbers(played.fabric, flows, played.config.draws)
    return {**delivered, **uplink_numbers(played.fabric, uplinks, theory)}


# In figures -----------------------------------------------------------------------------------------------------------

MEASURED, THEORY = "measured", "in theory"
_PERCENTS = range(0, 101, 5)
_LIKELY = 0.9999
"""Of uplinks: what theory says of the others is not shown."""


def parts_of(flows: pd.DataFrame, uplinks: pd.DataFrame, theory: Histogram) -> Iterator[Point]:
    """Yield the distributions of a variant, point by point, beside theory: of goodput over flows, and of flows over
    uplinks."""
    for of, column in ((MEASURED, "goodput_bps"), (THEORY, "fair_bps")):
        goodputs = nearest_ranks(flows[column], *_PERCENTS) if len(flows) else []
        for percent, value in zip(_PERCENTS, goodputs, strict=False):
            yield Point({"flows_percent": str(percent), "of": of}, {"goodput_bps": value})
    shares = uplinks["flows"].value_counts(normalize=True)
    counted = dict(zip(shares.index.tolist(), shares.tolist(), strict=True))
    for of, histogram in ((MEASURED, counted), (THEORY, theory)):
        reached = 0.0
        for count in range(int(max(histogram, default=-1)) + 1):
            if of == MEASURED or reached < _LIKELY:
                reached += histogram.get(count, 0.0)
                yield Point({"flows": str(count), "of": of}, {"uplinks_fraction": reached})


def _points(found: Found[Variant, TrafficPatternsConfig], one: Outcome[Variant]) -> list[Point]:
    return list(parts_of(*_rows(found.session, one.case)))


def earlier_cases(result: Result) -> Iterator[Point]:
    """Yield the cases of a result of before this was a study, from its rows of flows and uplinks."""
    theories = result.summary.get("uplinks_in_theory", {})
    flows, uplinks = result.table(FLOWS), result.table(UPLINKS)
    for (pattern, policy), mine in flows.groupby(["pattern", "policy"], sort=False, observed=True):
        theory = {int(count): share for count, share in theories.get(f"{pattern}_{policy}", ())}
        own = uplinks[(uplinks["pattern"] == pattern) & (uplinks["policy"] == policy)]
        for part in parts_of(mine, own, theory):
            yield Point({"pattern": Pattern(pattern).words, "policy": str(policy), **part.settings}, part.numbers)


_WHAT = (Column("pattern", "pattern"), Column("routes", "policy"))

STUDY = Study[Variant, TrafficPatternsConfig](
    title=lambda found: f"Traffic patterns on {found.fabric.name}",
    cases=Variant.grid,
    measure=_measure,
    measures=MEASURES,
    points=_points,
    answer=Answer(
        "Of what all NICs could receive, there arrive: {}.",
        each="{pattern} by {policy} routes {nics_used_fraction|.0%} ({theory_nics_used_fraction|.0%} in theory)",
        otherwise="Nothing was played.",
    ),
    tables=(
        CaseTable(
            "What flows deliver",
            (
                *_WHAT,
                Column("flows", "flows"),
                Column("of all NICs", "nics_used_fraction"),
                Column("in theory", "theory_nics_used_fraction"),
                Column("of its fair share: median", "share_p50_fraction", ".2f"),
                Column("least", "share_least_fraction", ".2f"),
            ),
            lambda found: (
                f"{found.config.draws} draws of each; theory: flows share the links of their paths max-min fairly"
            ),
        ),
        CaseTable(
            "Flows on leaves' uplinks",
            (
                *_WHAT,
                Column("mean", "uplink_flows_mean", ".2f"),
                Column("most", "uplink_flows_most"),
                Column("variance", "uplink_flows_variance", ".2f"),
                Column("theory", "theory_uplink_flows_variance", ".2f"),
                Column("idle", "uplinks_idle_fraction"),
                Column("theory", "theory_uplinks_idle_fraction"),
                Column("carried is off by", "carried_off_fraction"),
            ),
            "theory: hashes throw flows into uplinks as balls into bins (binomial), static routes draw them from those "
            "that are an uplink's own (hypergeometric); carried: what an uplink sent beside what its flows delivered, "
            "the most of any, of its rate",
            rows=lambda found: [one for one in found.outcomes if "uplink_flows_mean" in one.values],
        ),
    ),
    figures=(
        Lines(
            "flows_on_uplinks",
            "How many flows of the pattern leaves' uplinks have: what ports of connections and planned routes came to, "
            "and what theory says of as many flows.",
            "Flows on an uplink of a leaf",
            numbers=(Number("uplinks_fraction", "uplinks"),),
            x="{flows}",
            line="{policy}, {of}",
            rows="{pattern}",
            colour="{policy}",
            dash="{of}",
            labels=("number of flows on the uplink", "share of uplinks with so many at most"),
            looks=Looks(9.6, 3.6, percent_y=True, columns=2, places=Places(are_numbers=True)),
        ),
        Lines(
            "goodputs",
            "What each flow of the pattern delivers, and what it would if flows shared the links of the same paths "
            "max-min fairly.",
            "What flows deliver",
            numbers=(Number("goodput_bps", "goodput", 1e-6),),
            x="{flows_percent}",
            line="{policy}, {of}",
            rows="{pattern}",
            colour="{policy}",
            dash="{of}",
            labels=("flows, the slowest first (%)", "goodput of a flow (Mbit/s)"),
            looks=Looks(9.6, 3.6, columns=2, places=Places(are_numbers=True)),
        ),
    ),
)
