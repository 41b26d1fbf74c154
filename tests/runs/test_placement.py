"""Which node is which rank: the loads that a search goes by are those of the routes, and it finds an order in which no
link is busier than the busiest NIC, also among hundreds of nodes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping

import pytest

from controllers.planning.paths import path_load
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC, Policy
from controllers.routing import Routing
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port
from runs.placement import Flow, _Placement, crowding_of, link_loads, order_ranks, ranks_of
from topologies.load import load_fabric
from traffic.collectives.trees import tree_flows, zone_aware_double_tree


def _nodes(fabric: Fabric, count: int) -> tuple[NodeId, ...]:
    by_zone = ([node for node in fabric.computes if node.zone == zone] for zone in (0, 1))
    return tuple(node for nodes in by_zone for node in nodes[: count // 2])


def _flows(nodes: tuple[NodeId, ...]) -> list[Flow]:
    return tree_flows(zone_aware_double_tree([node.zone or 0 for node in nodes]))


def _added_up(fabric: Fabric, plan: RoutePlan, order: tuple[NodeId, ...]) -> Mapping[Port, float]:
    nics = fabric.nics_in_common(order)
    found: defaultdict[Port, float] = defaultdict(float)
    for source, destination, share in _flows(order):
        for port, part in path_load(plan, fabric, nics[order[source]], nics[order[destination]]).items():
            found[port] += share * part
    return found


@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
def test_loads_after_swaps_are_those_of_the_routes(policy: Policy) -> None:
    fabric = load_fabric("fire_flyer_2_small")
    plan, nodes, swaps = plan_routes(fabric, Routing(policy=policy)), _nodes(fabric, 16), random.Random(3)
    placement = _Placement(fabric, plan, nodes, _flows(nodes))
    for _ in range(100):
        placement.swap(*swaps.sample([rank for rank, node in enumerate(placement.order) if node.zone == 1], 2))
    assert sorted(placement.order) == sorted(nodes)
    assert placement.order != list(nodes)
    loads = _added_up(fabric, plan, tuple(placement.order))
    assert placement.port_loads() == pytest.approx({port: loads[port] for link in fabric.links for port in link.ports})
    assert placement.cost() == pytest.approx((max(loads.values()), sum(load**2 for load in loads.values())))


def test_no_link_is_busier_than_a_nic_among_hundreds_of_nodes() -> None:
    fabric = load_fabric("fire_flyer_2")
    plan, nodes = plan_routes(fabric, Routing()), _nodes(fabric, 600)

    def busiest(order: tuple[NodeId, ...]) -> tuple[float, float]:
        loads = link_loads(fabric, plan, order, _flows(order))
        of_hosts = max(load for port, load in loads.items() if not port.node.is_switch)
        return max(loads.values()), of_hosts

    order = order_ranks(fabric, plan, nodes, _flows(nodes))
    assert [node.zone for node in order] == [node.zone for node in nodes]
    assert sorted(order) == sorted(nodes)
    before, after = busiest(nodes), busiest(order)
    assert before[0] > before[1]
    assert after[0] == after[1] == before[1]


def test_crowding_is_of_the_busiest_nic_whichever_way_it_is_busy() -> None:
    """At a root all arrives: its link is no more crowded than its NIC."""
    fabric = load_fabric("fire_flyer_2_small")
    plan, nodes = plan_routes(fabric, Routing()), _nodes(fabric, 8)
    assert crowding_of(fabric, plan, nodes, [(rank, 0, 1.0) for rank in range(1, 8)]) == 1.0
    loads = _added_up(fabric, plan, nodes)
    nic = max(load for port, load in loads.items() if not port.node.is_switch)
    assert crowding_of(fabric, plan, nodes, _flows(nodes)) == max(loads.values()) / nic
    assert crowding_of(fabric, plan, nodes, []) == 1.0


def test_what_gpus_send_crowds_links_as_that_of_their_hosts() -> None:
    fabric = load_fabric("fire_flyer_2_nodes")
    plan, nodes = plan_routes(fabric, Routing()), _nodes(fabric, 16)
    ring = [(rank, (rank + 1) % 16, 2.0) for rank in range(16)]
    crossed = [nodes[place // 2 + 8 * (place % 2)] for place in range(16)]
    found = []
    for hosts in (nodes, crossed):
        gpus = ranks_of(fabric, hosts)
        of_gpus = [(rank, (rank + 1) % len(gpus), 2.0) for rank in range(len(gpus))]
        found.append(crowding_of(fabric, plan, gpus, of_gpus))
        assert found[-1] == crowding_of(fabric, plan, hosts, ring)
    assert found[0] < found[1]
    assert crowding_of(fabric, plan, gpus[:8], [(0, 1, 1.0)]) == 1.0, "nothing leaves the host"
