"""How many flows of a pattern should meet on leaves' uplinks, before it is known which flows those are. Pure."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from controllers.planning.collisions import Histogram, expected_flows
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.routing import Policy, Routing
from fabric.model.identity import NodeId
from fabric.model.network import Fabric


def expected_on_uplinks(fabric: Fabric, policy: Policy, uplinks: pd.DataFrame) -> Histogram:
    """Return the share of leaves' uplinks with each number of flows, given how many leave each leaf in each phase.

    ``uplinks``: rows of ``pattern_uplinks``, of permutations or, with ECMP, of any pattern.
    """
    plan = plan_routes(fabric, Routing(policy=policy))
    found: Counter[int] = Counter()
    total = 0
    for (_, leaf), rows in uplinks.groupby(["phase", uplinks["port"].astype(str).str.partition(":")[0]], observed=True):
        _add(found, fabric, plan, policy, NodeId.parse(str(leaf)), int(rows["flows_of_leaf"].iloc[0]), len(rows))
        total += len(rows)
    return {flows: share / total for flows, share in sorted(found.items())}


def _add(
    found: Counter[int], fabric: Fabric, plan: RoutePlan, policy: Policy, leaf: NodeId, flows: int, uplinks: int
) -> None:
    for count, share in expected_flows(fabric, plan, policy, leaf, flows).items():
        found[count] += share * uplinks  # type: ignore[assignment]
