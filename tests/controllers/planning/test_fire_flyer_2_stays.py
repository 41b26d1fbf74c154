"""Fire-Flyer 2's fabrics are what they were: names, DPIDs, ports, addresses, and every rule of every policy.

Results of other days are compared with those of today, so a change here must be meant.
"""

from __future__ import annotations

from hashlib import blake2b

import pytest

from controllers.planning.planner import plan_routes
from controllers.planning.policies import ADAPTIVE, ECMP, STATIC, Policy
from controllers.routing import Repair, Routing
from fabric.model.network import Fabric
from topologies.load import load_fabric

SMALL, TINY = "fire_flyer_2_small", "fire_flyer_2_tiny"
WIRED = {SMALL: "a04cfdc9fbfd89c3", TINY: "b88b510ec24cc948"}
PLANNED = {
    SMALL: {
        "static, wait": "870a3d3bf140fbc5",
        "static, fast_failover": "e6f48089b83d39e8",
        "static, reroute": "44bcf6dbf537e68d",
        "ecmp, wait": "71b6d831a48d321b",
        "ecmp, fast_failover": "314ce1aae5778c2b",
        "ecmp, reroute": "71b6d831a48d321b",
        "adaptive, wait": "44bcf6dbf537e68d",
        "adaptive, fast_failover": "e6f48089b83d39e8",
        "adaptive, reroute": "44bcf6dbf537e68d",
    },
    TINY: {
        "static, wait": "b389a0b0b3fa0fcf",
        "static, fast_failover": "bddd5e84c1c34f8c",
        "static, reroute": "fd1fcd78fddd3d48",
        "ecmp, wait": "99c19203e4848d6d",
        "ecmp, fast_failover": "a4bfb3f969a41a31",
        "ecmp, reroute": "99c19203e4848d6d",
        "adaptive, wait": "fd1fcd78fddd3d48",
        "adaptive, fast_failover": "bddd5e84c1c34f8c",
        "adaptive, reroute": "fd1fcd78fddd3d48",
    },
}


def digest_of_fabric(fabric: Fabric) -> str:
    said = blake2b(digest_size=8)
    for node in fabric.nodes:
        said.update(f"{node} {node.dpid:x}\n".encode())
    for link in fabric.links:
        said.update(f"{link} {link.rate_bps} {link.tier.value} {link.delay_ns}\n".encode())
    for nic in fabric.nics:
        said.update(f"{nic.port} {nic.zone} {nic.ip} {nic.mac} {fabric.leaf_of(nic)}\n".encode())
    return said.hexdigest()


def digest_of_plan(fabric: Fabric, routing: Routing) -> str:
    said = blake2b(digest_size=8)
    plan = plan_routes(fabric, routing)
    for dpid, rules in plan.rules.items():
        for rule in rules:
            said.update(f"{dpid:x} {rule.key} {rule.outputs} {rule.group} {rule.hashing} {rule.writes}\n".encode())
            said.update(f"{rule.purpose} {rule.cookie:x} {rule.distance}\n".encode())
    return said.hexdigest()


@pytest.mark.parametrize("name", [SMALL, TINY])
def test_nodes_ports_and_addresses(name: str) -> None:
    assert digest_of_fabric(load_fabric(name)) == WIRED[name]


@pytest.mark.parametrize("name", [SMALL, TINY])
@pytest.mark.parametrize("policy", [STATIC, ECMP, ADAPTIVE], ids=str)
def test_rules(name: str, policy: Policy) -> None:
    fabric = load_fabric(name)
    found = {repair.value: digest_of_plan(fabric, Routing(policy=policy, repair=repair)) for repair in Repair}
    assert found == {repair.value: PLANNED[name][f"{policy.name}, {repair.value}"] for repair in Repair}
