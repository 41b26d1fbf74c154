"""Routes that go up and then down, on every builder's small fabrics and on fabrics of any shape that Hypothesis draws:
delivered, without loops, balanced within one, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.planning.paths import planned_path, planned_paths, port_load
from controllers.planning.plan import Purpose, RoutePlan
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ADAPTIVE, ECMP, STATIC, Policy
from controllers.planning.routes import is_zoned, plan_of
from controllers.planning.up_down import UpDownGraph, up_down_routes
from controllers.routing import Repair, Routing
from fabric.errors import TopologyError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Nic, Port, Tier
from tests.fakes import FakeFabric
from topologies.load import fabric_of, load_fabric

NAMES = [
    "three_layer_1600_small",
    "fat_tree_k4",
    "dgx_a100_10000_small",
    "dgx_superpod_140_small",
    "rail_optimised_small",
    "dual_tor_small",
    "next_generation_32768_small",
    "uneven_small",
    "storage_zone_small",
    "head_of_line",
]
HASHED, MOVING = Routing(policy=ECMP), Routing(policy=ADAPTIVE, repair=Repair.REROUTE)
REROUTE = Routing(repair=Repair.REROUTE)


@cache
def fabric_named(name: str) -> Fabric:
    return load_fabric(name)


def tree(**keys: Any) -> Fabric:
    rates = {"nic_rate": "1 Mbit/s", "uplink_rate": "1 Mbit/s", "reference_nic_rate": "1 Mbit/s"}
    return fabric_of({"name": "tree", "builder": "fat_tree", "switch_ports": 200, "mtu": 1500, **rates, **keys}, "test")


def free_form(links: list[str]) -> Fabric:
    rates = {"nic_rate": "1 Mbit/s", "uplink_rate": "1 Mbit/s", "reference_nic_rate": "1 Mbit/s"}
    return fabric_of({"name": "links", "builder": "free_form", "links": links, "mtu": 1500, **rates}, "test")


@st.composite
def trees(draw: st.DrawFn) -> Fabric:
    """Two and three layers, parallel links, several NICs, planes, and leaves with fewer hosts than others."""
    pods, groups = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    spines = groups * draw(st.integers(1, 2))
    keys: dict[str, Any] = {"pods": pods, "spines_per_pod": spines, "leaves_per_pod": draw(st.integers(1, 3))}
    keys |= {"uplinks_per_spine": draw(st.integers(1, 3)), "compute": draw(st.integers(pods, 9))}
    across = draw(st.booleans())
    keys |= {"nics": "across_pods" if across else "in_pod"}
    keys |= {"nics_per_host": draw(st.integers(1, 2)) * pods if across else draw(st.integers(1, 3))}
    if not across or draw(st.booleans()):
        of_group = draw(st.integers(1, 3))
        links = max(of_group, draw(st.integers(1, 5)))
        keys |= {"cores": {"switches": groups * of_group, "groups": groups, "links_per_spine": links}}
    return tree(**keys)


@pytest.fixture(params=NAMES)
def fabric(request: pytest.FixtureRequest) -> Fabric:
    return fabric_named(request.param)


def pairs(fabric: Fabric) -> list[tuple[Nic, Nic]]:
    return [(a, b) for a in fabric.nics for b in fabric.nics if a.node != b.node]


def verify_delivery(fabric: Fabric, plan: RoutePlan) -> None:
    fake = FakeFabric(fabric, plan)
    for source, destination in pairs(fabric):
        journey = fake.send(source, destination.ip)
        if fabric.network_of(source) == fabric.network_of(destination):
            assert journey.delivered_to == destination, f"{source.port} to {destination.port}: {journey}"
            assert planned_path(plan, fabric, source, destination) == journey.path
        else:
            assert journey.dropped_at == fabric.leaf_of(source)


def verify_up_and_down(fabric: Fabric, path: tuple[Port, ...]) -> None:
    """Between switches, every step up comes before every step down."""
    order = UpDownGraph(fabric).order
    switches = [order[port.node] for port in path if port.node.is_switch]
    steps = [after > before for before, after in pairwise(switches)]
    assert steps == sorted(steps, reverse=True), " ".join(map(str, path))


def verify_balance(fabric: Fabric, plan: RoutePlan) -> None:
    """The ports of each set of equally short ways carry the same number of destinations within one."""
    graph = UpDownGraph(fabric)
    for switch in fabric.switches:
        counts: dict[frozenset[int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for rule in plan.rules[switch.dpid]:
            if rule.purpose in (Purpose.UP, Purpose.DOWN):
                assert rule.destination is not None
                ways = graph.distances(fabric.leaf_at_ip[rule.destination]).nearer(graph, switch)
                counts[frozenset(port.number for port, _ in ways)][rule.outputs[0]] += 1
        for ports, carried in counts.items():
            found = [carried[port] for port in ports]
            assert sum(found) == sum(carried.values()), f"{switch}: a route leaves by a port that is not nearer"
            assert max(found) - min(found) <= 1, f"{switch}: {carried} over {sorted(ports)}"


def verify(fabric: Fabric) -> None:
    plan = plan_of(fabric, up_down_routes(fabric))
    verify_delivery(fabric, plan)
    verify_balance(fabric, plan)
    for source, destination in pairs(fabric):
        if fabric.network_of(source) == fabric.network_of(destination):
            verify_up_and_down(fabric, planned_path(plan, fabric, source, destination))


def test_small_fabrics_are_delivered_up_and_down_and_balanced(fabric: Fabric) -> None:
    verify(fabric)


@settings(max_examples=40)
@given(trees())
def test_so_are_fabrics_of_any_shape(fabric: Fabric) -> None:
    verify(fabric)


def test_policies_keep_to_shortest_ways_up_and_down(fabric: Fabric) -> None:
    if is_zoned(fabric):
        return  # Has routes of its own, with tests of their own.
    plan = plan_routes(fabric, HASHED)
    for source, destination in pairs(fabric)[::7]:
        if fabric.network_of(source) == fabric.network_of(destination):
            paths = planned_paths(plan, fabric, source, destination)
            assert sum(share for _, share in paths) == pytest.approx(1)
            assert len({len(path) for path, _ in paths}) == 1
            for path, _ in paths:
                verify_up_and_down(fabric, path)


def test_ecmp_has_every_core_of_a_fat_tree_to_choose_from() -> None:
    fabric = fabric_named("fat_tree_k4")
    paths = planned_paths(plan_routes(fabric, HASHED), fabric, fabric.nics[0], fabric.nics[-1])
    assert [share for _, share in paths] == [0.25] * 4
    assert {path[3].node for path, _ in paths} == set(fabric.with_role(Role.CORE))


def test_adaptive_begins_with_the_static_routes_and_moves_a_leafs_destination() -> None:
    fabric = fabric_named("fat_tree_k4")
    static = plan_routes(fabric, Routing())
    assert plan_routes(fabric, MOVING).rules == static.rules
    leaf, far = NodeId.parse("z0l00"), fabric.nics[-1]
    (planned,) = static.ways(static.lookup(leaf.dpid, 1, fabric.nics[0].ip, far.ip))
    other = next(port.number for port in fabric.uplinks_of(leaf) if port.number != planned)
    moved = plan_routes(fabric, MOVING, moves={(leaf, far.ip): other})
    assert planned_path(moved, fabric, fabric.nics[0], far)[1] == Port(leaf, other)
    verify_delivery(fabric, moved)


def test_k_ary_fat_trees_have_one_destination_of_each_other_pod_per_core() -> None:
    """Static routes of a k-ary fat-tree: no two hosts of a leaf share a core on their way down."""
    fabric = fabric_named("fat_tree_k4")
    load = port_load(plan_routes(fabric, Routing()), fabric)
    cores = [load[port] for core in fabric.with_role(Role.CORE) for port in fabric.ports_of[core]]
    assert set(cores) == {4}  # 16 destinations, 4 pods: each core's link to a pod carries that pod's 4.
    up = [load[port] for leaf in fabric.with_role(Role.LEAF) for port in fabric.uplinks_of(leaf)]
    assert set(up) == {7}  # 14 destinations that are elsewhere, over 2 uplinks.


def test_what_has_gone_down_does_not_go_up_again_for_a_way_that_is_as_short() -> None:
    """From z0s03 down to z0s01, there are two ways on to z0l00: down by z0s00 and up by z0s02."""
    links = ["z0h000-z0l00", "z0h001-z0l01", "z0h002-z0l02", "z0l00-z0s00", "z0l00-z0s02", "z0l01-z0s01", "z0l02-z0s03"]
    fabric = free_form([*links, "z0s00-z0s01", "z0s01-z0s02", "z0s01-z0s03"])
    verify(fabric)
    (path,) = planned_paths(plan_routes(fabric, HASHED), fabric, fabric.nics[2], fabric.nics[0])
    assert [port.node.name for port in path[0]] == ["z0h002", "z0l02", "z0s03", "z0s01", "z0s00", "z0l00"]


# Failures


def switch_links(fabric: Fabric) -> list[Link]:
    return [link for link in fabric.links if link.tier is Tier.UPLINK]


@pytest.mark.parametrize("name", ["fat_tree_k4", "three_layer_1600_small", "next_generation_32768_small"])
@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
def test_rerouting_around_one_cut_link_delivers_everything(name: str, policy: Policy) -> None:
    fabric = fabric_named(name)
    for link in switch_links(fabric)[::3]:
        plan = plan_routes(fabric, Routing(policy=policy, repair=Repair.REROUTE), [link])
        assert plan.cuts == {}
        fake = FakeFabric(fabric, plan)
        fake.down = {link}
        for source, destination in pairs(fabric)[::5]:
            if fabric.network_of(source) == fabric.network_of(destination):
                journey = fake.send(source, destination.ip)
                assert journey.delivered_to == destination, (
                    f"{link} down, {source.port} to {destination.port}: {journey}"
                )


def test_a_cut_plane_is_told_by_its_network_and_the_others_are_whole() -> None:
    fabric = fabric_named("next_generation_32768_small")
    assert plan_routes(fabric, REROUTE).cuts == {}
    leaf = fabric.with_role(Role.LEAF)[2]  # The first of the second plane.
    down = [fabric.link_at[port] for port in fabric.uplinks_of(leaf)]
    cuts = plan_routes(fabric, REROUTE, down).cuts
    assert {what: [len(part) for part in parts] for what, parts in cuts.items()} == {"network 1": [2, 2]}


# What is refused


def test_fast_failover_is_refused_by_name_where_it_is_not_made_for() -> None:
    for name in NAMES:
        fabric, routing = fabric_named(name), Routing(repair=Repair.FAST_FAILOVER)
        if is_zoned(fabric):
            assert plan_routes(fabric, routing).group_count > 0
        else:
            with pytest.raises(TopologyError, match=r"routing\.repair: fast_failover: .* is not a zoned fat-tree"):
                plan_routes(fabric, routing)


def test_adaptive_is_refused_where_a_leaf_cannot_choose_freely() -> None:
    with pytest.raises(TopologyError, match=r"routing\.policy: adaptive: z0l00 does not reach all it sends up"):
        plan_routes(fabric_named("uneven_small"), MOVING)


def test_leaves_that_only_a_lower_switch_joins_reach_each_other_over_it() -> None:
    """z0l00 is the lowest by its level and number; as the switch in the middle it is the highest."""
    fabric = free_form(["z0h000-z0l00", "z0h001-z0l01", "z0h002-z0l02", "z0l00-z0l01", "z0l00-z0l02"])
    verify(fabric)
    path = planned_path(plan_routes(fabric, Routing()), fabric, fabric.nics[1], fabric.nics[2])
    assert [port.node.name for port in path] == ["z0h001", "z0l01", "z0l00", "z0l02"]
