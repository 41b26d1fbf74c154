"""Switches route the blocks of addresses of nodes with an inside as they route the addresses of points."""

from __future__ import annotations

import itertools

import pytest

from controllers.planning.paths import planned_path
from controllers.planning.planner import plan_routes, routing_faults
from controllers.planning.policies import ADAPTIVE, ECMP
from controllers.routing import Repair, Routing
from fabric.model.identity import Role
from fabric.model.network import Fabric
from topologies.load import load_fabric

SMALL = ("compute=4", "storage=1")
ROUTINGS = (Routing(), Routing(policy=ECMP), Routing(repair=Repair.REROUTE))


def fabric_of(kind: str) -> Fabric:
    return load_fabric("fire_flyer_2_nodes", [*SMALL, f"node={kind}"])


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_a_node_with_eight_gpus_needs_no_more_rules_than_a_point(routing: Routing) -> None:
    nodes, points = (plan_routes(fabric_of(kind), routing) for kind in ("fire_flyer_2", "point"))
    assert nodes.rule_count == points.rule_count


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_what_goes_to_a_part_takes_the_way_to_its_node(routing: Routing) -> None:
    fabric = fabric_of("fire_flyer_2_nvlink")
    plan = plan_routes(fabric, routing)
    for host, other in itertools.permutations(fabric.computes, 2):
        nic, target = fabric.nics_of[host][0], fabric.nics_of[other][0]
        assert fabric.peer(planned_path(plan, fabric, nic, target)[-1]) == target.port
        leaf = fabric.peer(nic.port)
        by_part = {
            plan.lookup(leaf.node.dpid, leaf.number, nic.ip, fabric.address_inside(part))
            for part in fabric.parts_of(other)
            if part.role is not Role.NVSWITCH
        }
        assert by_part == {plan.lookup(leaf.node.dpid, leaf.number, nic.ip, target.ip)}


def test_what_does_not_know_blocks_is_refused() -> None:
    words = "routing.repair: fast_failover: nodes with an inside"
    routing = Routing(repair=Repair.FAST_FAILOVER)
    assert any(fault.startswith(words) for fault in routing_faults(fabric_of("fire_flyer_2"), routing))


def test_a_node_is_moved_with_all_its_parts() -> None:
    fabric, routing = fabric_of("fire_flyer_2"), Routing(policy=ADAPTIVE)
    assert list(routing_faults(fabric, routing)) == []
    host, other = fabric.computes[:2]
    nic, target = fabric.nics_of[host][0], fabric.nics_of[other][0]
    leaf = fabric.peer(nic.port)
    before = planned_path(plan_routes(fabric, routing), fabric, nic, target)[1]
    uplink = next(port for port in fabric.uplinks_of(leaf.node) if port != before)
    moved = plan_routes(fabric, routing, moves={(leaf.node, target.ip): uplink.number})
    assert planned_path(moved, fabric, nic, target)[1] == uplink
    gpu = next(part for part in fabric.parts_of(other) if part.role is Role.GPU)
    rule = moved.lookup(leaf.node.dpid, leaf.number, nic.ip, fabric.address_inside(gpu))
    assert moved.switches[leaf.node.dpid].ways(rule) == [uplink.number]
