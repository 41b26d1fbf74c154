"""How do flows meet on leaves' uplinks, beside theory?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from controllers.planning.collisions import Histogram, UplinkTheory, mixture
from controllers.planning.policies import Policy
from controllers.routing import Routing
from experiments.traffic_patterns.cases import MEASURED, THEORY, Variant
from experiments.traffic_patterns.config import Pattern, TrafficPatternsConfig
from experiments.traffic_patterns.tables import UPLINKS
from fabric.measures import Better, Measure
from fabric.model.identity import NodeId, node_of_port
from fabric.model.network import Fabric
from runs.case_tables import CaseTable
from runs.cases import Point
from runs.plans import planned
from runs.session import Session
from runs.study import Question

_LIKELY = 0.9999
"""Of uplinks: what theory says of the others is not shown."""


def expected_on_uplinks(fabric: Fabric, policy: Policy, is_permutation: bool, uplinks: pd.DataFrame) -> Histogram:
    """Return the share of leaves' uplinks with each number of flows in theory, given how many leave each leaf in each
    phase. ``uplinks``: rows of ``pattern_uplinks``; without
    ``is_permutation`` all NICs send to all.

    Empty if there are none, or no theory is known: sprayed flows are on all, and static routes have dealt the
    destinations of all-to-all evenly, as the plan says and no chance.
    """
    if uplinks.empty or policy.sprays or not (policy.hashing or is_permutation):
        return {}
    theory = UplinkTheory(fabric, planned(fabric, Routing(policy=policy)), policy)
    leaves = uplinks["port"].astype(str).map(node_of_port)
    return mixture(
        (theory.of_leaf(NodeId.parse(str(leaf)), int(rows["flows_of_leaf"].iloc[0])), len(rows))
        for (_, leaf), rows in uplinks.groupby(["phase", leaves], observed=True)
    )


def uplink_numbers(fabric: Fabric, rows: pd.DataFrame, theory: Histogram) -> dict[str, float]:
    """Return how flows met on leaves' uplinks; ``carried_off_fraction`` is the most by which what an uplink carried
    differs from what its flows delivered, of its rate."""
    if rows.empty:
        return {}
    rates_bps = rows["port"].astype(str).map({str(port): link.rate_bps for port, link in fabric.link_at.items()})
    off = (rows["carried_bps"] - rows["delivered_bps"]).abs() / rates_bps
    found = {
        "uplink_flows_mean": float(rows["flows"].mean()),
        "uplink_flows_most": float(rows["flows"].max()),
        "uplink_flows_variance": float(rows["flows"].to_numpy().var()),
        "uplinks_idle_fraction": float((rows["flows"] == 0).mean()),
        "carried_off_fraction": float(off.max()),
    }
    if theory:
        mean = sum(count * share for count, share in theory.items())
        found["theory_uplink_flows_variance"] = sum((count - mean) ** 2 * share for count, share in theory.items())
        found["theory_uplinks_idle_fraction"] = theory.get(0, 0.0)
    return found


def _seen(session: Session, case: Variant) -> tuple[pd.DataFrame, Histogram]:
    """Return the rows of a case, and how many flows its uplinks have in theory."""
    uplinks, is_permutation = case.rows(session.table, UPLINKS), case.pattern is Pattern.PERMUTATION
    return uplinks, expected_on_uplinks(session.live.fabric, case.policy, is_permutation, uplinks)


def flows_on_uplinks(uplinks: pd.DataFrame, theory: Histogram) -> Iterator[Point]:
    """Yield the distribution of flows over uplinks point by point, beside theory."""
    shares = uplinks["flows"].value_counts(normalize=True)
    counted = dict(zip(shares.index.tolist(), shares.tolist(), strict=True))
    for of, histogram in ((MEASURED, counted), (THEORY, theory)):
        reached = 0.0
        for count in range(int(max(histogram, default=-1)) + 1):
            if of == MEASURED or reached < _LIKELY:
                reached += histogram.get(count, 0.0)
                yield Point({"flows": str(count), "of": of}, {"uplinks_fraction": reached})


ON_UPLINKS = Question[Variant, TrafficPatternsConfig](
    measure=lambda played: uplink_numbers(played.fabric, *_seen(played.session, played.case)),
    measures=(
        Measure("uplink_flows_mean", "flows on an uplink of a leaf, mean"),
        Measure("uplink_flows_most", "flows on an uplink of a leaf, the most", Better.LESS),
        Measure("uplink_flows_variance", "flows on an uplink of a leaf, variance over uplinks", Better.LESS),
        Measure("uplinks_idle_fraction", "share of the uplinks that no flow uses", Better.LESS),
        Measure(
            "carried_off_fraction",
            "most by which what an uplink carried differs from what its flows delivered, over its rate",
            Better.LESS,
        ),
        Measure("theory_uplink_flows_variance", "variance of the flows on an uplink, if hashes choose evenly"),
        Measure("theory_uplinks_idle_fraction", "share of the uplinks that no flow uses, if hashes choose evenly"),
    ),
    points=lambda found, one: list(flows_on_uplinks(*_seen(found.session, one.case))),
    tables=(
        CaseTable(
            "Flows on leaves' uplinks",
            "pattern {pattern}, routes {policy}, mean {uplink_flows_mean|.2f}, most {uplink_flows_most}, "
            "variance {uplink_flows_variance|.2f}, theory {theory_uplink_flows_variance|.2f}, "
            "idle {uplinks_idle_fraction}, theory {theory_uplinks_idle_fraction}, "
            "carried is off by {carried_off_fraction}",
            "theory: hashes throw flows into uplinks as balls into bins (binomial), static routes draw them from those "
            "that are an uplink's own (hypergeometric); carried: what an uplink sent beside what its flows delivered, "
            "the most of any, of its rate",
            having="uplink_flows_mean",
        ),
    ),
)
