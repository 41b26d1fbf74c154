"""``fabric bench collisions``: how many flows of random permutations meet on leaves' uplinks, beside theory. Pure."""

from __future__ import annotations

from rich.table import Table

from controllers.planning.collisions import collisions
from controllers.planning.planner import plan_routes
from controllers.planning.policies import POLICIES
from controllers.routing import Routing
from fabric.model.network import Fabric

_FLOWS = 20_000


def bench_collisions(fabric: Fabric, seed: int) -> Table:
    """Return the share of uplinks with each number of flows, under each policy whose routes stay."""
    permutations = max(1, _FLOWS // len(fabric.computes))
    policies = [policy for policy in POLICIES if not policy.moves]
    title = f"{fabric.name}: {permutations} random permutations, share of leaves' uplinks"
    table = Table("flows on an uplink", title=title)
    for policy in policies:
        table.add_column(policy.name)
        table.add_column("binomial" if policy.hashing else "hypergeometric")
    found = [
        collisions(fabric, plan_routes(fabric, Routing(policy=policy)), policy, permutations, seed)
        for policy in policies
    ]
    most = max(count for one in found for count in (*one.counted, *one.theory))
    for count in range(most + 1):
        shares = (share.get(count, 0.0) for one in found for share in (one.counted, one.theory))
        table.add_row(str(count), *(f"{share:.2%}" for share in shares))
    table.add_section()
    table.add_row("most on a link down", *(text for one in found for text in (str(one.busiest_down), "")))
    return table
