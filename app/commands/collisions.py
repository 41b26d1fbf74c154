"""``fabric estimate --collisions``: flows of permutations that meet on uplinks. Pure."""

from __future__ import annotations

from controllers.planning.collisions import collisions
from controllers.planning.planner import plan_routes
from controllers.planning.policies import POLICIES
from controllers.routing import Routing
from fabric.model.network import Fabric
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable

_FLOWS = 20_000


def collision_table(fabric: Fabric, seed: int) -> SummaryTable:
    """Return the share of uplinks with each number of flows, under each policy by which a flow stays on one path."""
    permutations = max(1, _FLOWS // len(fabric.computes))
    policies = [policy for policy in POLICIES if policy.has_one_path]
    title = f"{fabric.name}: estimate by {permutations} random permutations, share of leaves' uplinks"
    columns = [(policy.name, "binomial" if policy.hashing else "hypergeometric") for policy in policies]
    found = [
        collisions(fabric, plan_routes(fabric, Routing(policy=policy)), policy, permutations, seed)
        for policy in policies
    ]
    most = max(count for one in found for count in (*one.counted, *one.theory))
    rows: list[Row] = []
    for count in range(most + 1):
        shares = (share.get(count, 0.0) for one in found for share in (one.counted, one.theory))
        rows.append([str(count), *(quantity(share, ".2%") for share in shares)])
    busiest = (cell for one in found for cell in (quantity(one.busiest_down, ".0f"), ""))
    rows.append(["most on a link down", *busiest])
    return SummaryTable(title, ["flows on an uplink", *(name for pair in columns for name in pair)], rows)
