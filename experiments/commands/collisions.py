"""``fabric bench collisions``: how many flows of random permutations meet on leaves' uplinks, beside theory. Pure."""

from __future__ import annotations

from rich.table import Table

from controllers.planning.collisions import collisions
from controllers.planning.planner import plan_routes
from controllers.routing import Policy, Routing
from fabric.model.network import Fabric

_FLOWS = 20_000


def bench_collisions(fabric: Fabric, seed: int) -> Table:
    """Return the share of uplinks with each number of flows, under static routes and hashes."""
    permutations = max(1, _FLOWS // len(fabric.computes))
    table = Table(
        "flows on an uplink", "static", "hypergeometric", "ecmp", "binomial",
        title=f"{fabric.name}: {permutations} random permutations, share of leaves' uplinks",
    )  # fmt: skip
    found = [
        collisions(fabric, plan_routes(fabric, Routing(policy=policy)), policy, permutations, seed)
        for policy in (Policy.STATIC, Policy.ECMP)
    ]
    most = max(count for one in found for count in (*one.counted, *one.theory))
    for count in range(most + 1):
        shares = (share.get(count, 0.0) for one in found for share in (one.counted, one.theory))
        table.add_row(str(count), *(f"{share:.2%}" for share in shares))
    table.add_section()
    static, ecmp = (str(one.busiest_down) for one in found)
    table.add_row("most on a link down", static, "", ecmp, "")
    return table
