from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.planning.paths import planned_path, port_load
from controllers.planning.plan import Priority, Purpose, RoutePlan, SwitchPlan
from controllers.planning.planner import plan_routes
from controllers.planning.routes import plan_static_routes, spread
from controllers.routing import Routing
from fabric.errors import ControllerError, TopologyError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port, Tier
from tests.controllers.sizes import tree
from tests.fakes import FakeFabric
from topologies.load import load_fabric

SIZES = {
    "fire_flyer_2_small": load_fabric("fire_flyer_2_small"),
    "one_zone": tree(1, leaves=3, spines=2, compute=7, storage=2, exits=(0, 0)),
    "one_leaf": tree(1, leaves=1, spines=1, compute=3, storage=1, exits=(0, 0)),
    "three_zones": tree(3, leaves=4, spines=3, compute=20, storage=3, exits=(2, 3)),
    "parallel_uplinks": tree(leaves=3, spines=2, parallel=2, compute=13, storage=5, exits=(1, 2)),
    "parallel_exits_of_a_leaf": tree(leaves=2, spines=3, compute=11, storage=2, exits=(3, 7)),
    "one_border_leaf": tree(leaves=5, spines=4, compute=17, storage=3, exits=(1, 1)),
    "storage_only": tree(leaves=2, spines=2, compute=0, storage=4, exits=(1, 1)),
    "compute_only": tree(leaves=4, spines=4, parallel=3, compute=18, storage=0, exits=(2, 4)),
}
trees = st.builds(
    tree,
    st.integers(2, 4),
    leaves=st.integers(1, 5),
    spines=st.integers(1, 4),
    parallel=st.integers(1, 3),
    compute=st.integers(0, 17),
    storage=st.integers(1, 5),
    exits=st.integers(1, 3).flatmap(lambda switches: st.tuples(st.just(switches), st.integers(switches, 6))),
)


@pytest.fixture(params=list(SIZES.values()), ids=list(SIZES))
def fabric(request: pytest.FixtureRequest) -> Fabric:
    found: Fabric = request.param
    return found


@pytest.fixture(scope="module")
def full() -> Fabric:
    return load_fabric("fire_flyer_2")


@pytest.fixture(scope="module")
def full_plan(full: Fabric) -> RoutePlan:
    return plan_static_routes(full)


def may_reach(source: Nic, destination: Nic) -> bool:
    both_compute = source.node.role is destination.node.role is Role.COMPUTE
    return source.zone == destination.zone or both_compute


def pairs(fabric: Fabric) -> list[tuple[Nic, Nic]]:
    return [(a, b) for a in fabric.nics for b in fabric.nics if a != b]


def verify_forwarding(fabric: Fabric) -> None:
    plan = plan_static_routes(fabric)
    fake = FakeFabric(fabric, plan)
    for source, destination in pairs(fabric):
        journey = fake.send(source, destination.ip)
        if may_reach(source, destination):
            assert journey.delivered_to == destination, f"{source.node} to {destination.node}: {journey}"
            assert planned_path(plan, fabric, source, destination) == journey.path
        else:
            assert journey.dropped_by is not None, f"{source.node} to {destination.node}: {journey}"


def test_every_pair_that_may_reach_is_delivered_on_its_planned_path_and_no_other(fabric: Fabric) -> None:
    verify_forwarding(fabric)


@settings(max_examples=25)
@given(trees)
def test_forwarding_holds_for_any_size(fabric: Fabric) -> None:
    verify_forwarding(fabric)


def test_paths_go_up_once_in_each_zone(fabric: Fabric) -> None:
    plan = plan_static_routes(fabric)
    for source, destination in pairs(fabric):
        if may_reach(source, destination):
            roles = "".join(port.node.role.name[0] for port in planned_path(plan, fabric, source, destination))
            expected = {"L", "LSL"} if source.zone == destination.zone else {"LIL", "LSLIL", "LILSL", "LSLILSL"}
            assert roles[1:] in expected, f"{source.node} to {destination.node} goes {roles}"


def test_path_of_two_hosts_on_one_leaf_uses_no_spine() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    source, destination = fabric.nic_at_ip["10.0.0.1"], fabric.nic_at_ip["10.0.0.5"]
    path = planned_path(plan_static_routes(fabric), fabric, source, destination)
    assert [str(port) for port in path] == ["z0h000:0", "z0l00:2"]


def test_path_across_zones() -> None:
    fabric = SIZES["one_border_leaf"]
    source, destination = fabric.nic_at_ip["10.0.0.1"], fabric.nic_at_ip["10.1.0.1"]
    path = planned_path(plan_static_routes(fabric), fabric, source, destination)
    names = [port.node.name for port in path]
    assert names[:2] == ["z0h000", "z0l00"]
    assert names[2].startswith("z0s") and names[6].startswith("z1s")
    assert names[3:6] == ["z0l02", "ix0", "z1l01"]
    assert names[7:] == ["z1l00"]


def test_inter_zone_switch_enters_by_the_destinations_own_leaf_where_balance_allows() -> None:
    fabric = tree(leaves=2, spines=2, compute=16, storage=0, exits=(1, 4))
    plan = plan_static_routes(fabric)
    for source, destination in pairs(fabric):
        if source.zone != destination.zone:
            assert len(planned_path(plan, fabric, source, destination)) == len(["host", "leaf", "ix", "leaf"])


@pytest.mark.parametrize("name", ["dgx_a100_nodes", "fire_flyer_2_nodes", "next_generation_ep64"])
def test_ports_serve_as_many_nodes_whether_these_have_an_inside_or_are_points(name: str) -> None:
    inside, point = (load_fabric(name, overrides) for overrides in ([], ["node=point"]))
    loads = [port_load(plan_routes(fabric, Routing()), fabric) for fabric in (inside, point)]
    assert loads[0] == loads[1]
    assert sum(loads[0].values()) > 0


def verify_balance(fabric: Fabric, plan: RoutePlan) -> None:
    """Every choice of a switch among equal links is even within one."""
    load = port_load(plan, fabric)
    for (node, towards), counts in loads_by_choice(fabric, load).items():
        assert max(counts) - min(counts) <= 1, f"{node} towards {towards}: {sorted(counts)}"


def loads_by_choice(fabric: Fabric, load: dict[Port, float]) -> dict[tuple[NodeId, object], list[float]]:
    choices: dict[tuple[NodeId, object], list[float]] = defaultdict(list)
    for port, count in load.items():
        peer = fabric.peer(port).node
        if not peer.is_switch:
            assert count == 1, f"{port} delivers {count} destinations to {peer}"
        elif port.node.role is Role.LEAF:
            choices[port.node, peer.role].append(count)
        elif port.node.role is Role.SPINE:
            choices[port.node, peer].append(count)
        else:
            choices[port.node, peer.zone].append(count)
    return choices


def test_links_of_a_choice_carry_the_same_number_of_destinations_within_one(fabric: Fabric) -> None:
    verify_balance(fabric, plan_static_routes(fabric))


@settings(max_examples=25)
@given(trees)
def test_balance_holds_for_any_size(fabric: Fabric) -> None:
    verify_balance(fabric, plan_static_routes(fabric))


def test_full_fabric_is_balanced(full: Fabric, full_plan: RoutePlan) -> None:
    verify_balance(full, full_plan)


def test_uplink_load_names_every_uplink_and_counts_what_leaves_the_leaf() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    uplinks = {port for link in fabric.links_of_tier(Tier.UPLINK) for port in link.ports if port.node.role is Role.LEAF}
    load = {port: count for port, count in port_load(plan_static_routes(fabric), fabric).items() if port in uplinks}
    assert len(load) == 2 * 4 * 4
    # 16 NICs a zone, 4 on the leaf itself; every leaf is a border leaf and sends to the other zone by its own link.
    assert set(load.values()) == {(16 - 4) // 4}


def test_full_fabric_delivers_a_sample_of_pairs(full: Fabric, full_plan: RoutePlan) -> None:
    fake = FakeFabric(full, full_plan)
    for source, destination in [*pairwise(full.nics[::97]), (full.nics[0], full.nics[1199])]:
        if may_reach(source, destination):
            assert fake.send(source, destination.ip).delivered_to == destination


def spines_used(fabric: Fabric, plan: RoutePlan, zone: int) -> dict[str, Counter[NodeId]]:
    """Return for each destination how many leaves of ``zone`` send it to each spine."""
    used: dict[str, Counter[NodeId]] = defaultdict(Counter)
    for leaf in fabric.with_role(Role.LEAF, zone):
        for rule in plan.rules[leaf.dpid]:
            if rule.purpose == Purpose.UP:
                assert rule.destination is not None
                used[rule.destination][fabric.peer(Port(leaf, rule.outputs[0])).node] += 1
    return used


def test_leaves_of_a_zone_share_a_destinations_spine_but_for_few_rebalanced(full: Fabric, full_plan: RoutePlan) -> None:
    used = spines_used(full, full_plan, 0)
    total = sum(counts.total() for counts in used.values())
    shared = sum(max(counts.values()) for counts in used.values())
    assert shared / total > 0.9, f"{shared} of {total} follow the shared spine"


def test_each_kind_of_host_is_spread_over_the_spines() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    used = spines_used(fabric, plan_static_routes(fabric), 0)
    for role, each in ((Role.COMPUTE, 3), (Role.STORAGE, 1)):
        nics = [nic for nic in fabric.nics if nic.zone == 0 and nic.node.role is role]
        spines = Counter(max(used[nic.ip], key=lambda spine: used[nic.ip][spine]) for nic in nics)
        assert set(spines.values()) == {each}, f"{role}: {spines}"


def test_storage_traffic_never_uses_an_inter_zone_link(fabric: Fabric) -> None:
    fake = FakeFabric(fabric, plan_static_routes(fabric))
    inter_zone = {port for link in fabric.links_of_tier(Tier.INTER_ZONE) for port in link.ports}
    for source, destination in pairs(fabric):
        if Role.STORAGE in (source.node.role, destination.node.role):
            assert not inter_zone & set(fake.send(source, destination.ip).path), f"{source.ip} to {destination.ip}"


def test_border_leaf_counts_what_storage_sends_to_another_zone() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    fake = FakeFabric(fabric, plan_static_routes(fabric))
    storage = fabric.nics_of[NodeId(Role.STORAGE, None, 0)][0]
    journey = fake.send(storage, "10.1.0.1")
    assert journey.dropped_at == fabric.leaf_of(storage)
    assert journey.dropped_by is not None
    assert journey.dropped_by.purpose == Purpose.STORAGE_GUARD


def test_inter_zone_switch_drops_whatever_storage_sends() -> None:
    fabric = SIZES["three_zones"]
    plan = plan_static_routes(fabric)
    for switch in fabric.with_role(Role.INTER_ZONE):
        for port in fabric.ports_of[switch]:
            assert plan.lookup(switch.dpid, port.number, "10.129.0.1", "10.2.0.1").purpose == Purpose.STORAGE_GUARD
            assert plan.lookup(switch.dpid, port.number, "10.1.0.1", "10.2.0.1").purpose == Purpose.ENTER_ZONE


def test_unknown_destination_is_dropped_by_the_first_leaf_and_counted_as_table_miss(fabric: Fabric) -> None:
    fake = FakeFabric(fabric, plan_static_routes(fabric))
    for source in fabric.nics:
        journey = fake.send(source, "192.0.2.1")
        assert journey.dropped_at == fabric.leaf_of(source)
        assert journey.dropped_by is not None
        assert journey.dropped_by.priority == Priority.TABLE_MISS


def test_same_fabric_gives_same_plan(fabric: Fabric) -> None:
    assert plan_static_routes(fabric) == plan_static_routes(fabric)


def test_missing_uplink_is_named() -> None:
    fabric = SIZES["one_zone"]
    cut = next(link for link in fabric.links if link.tier is Tier.UPLINK)
    with pytest.raises(TopologyError, match=r"tree: leaf z0l00: has no link to z0s00; static routes need one"):
        plan_static_routes(dataclasses.replace(fabric, links=tuple(link for link in fabric.links if link != cut)))


def test_inter_zone_switch_that_misses_a_zone_is_named() -> None:
    fabric = SIZES["one_border_leaf"]
    cut = fabric.links_of_tier(Tier.INTER_ZONE)[1]
    with pytest.raises(TopologyError, match=r"inter-zone switch ix0: has no link into zone 1"):
        plan_static_routes(dataclasses.replace(fabric, links=tuple(link for link in fabric.links if link != cut)))


def test_path_of_a_pair_that_must_not_reach_names_who_drops_it() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    compute = fabric.nic_at_ip["10.0.0.1"]
    storage = fabric.nics_of[NodeId(Role.STORAGE, None, 0)][1]
    plan = plan_static_routes(fabric)
    with pytest.raises(ControllerError, match=r"z0h000 .* to st000 \(10\.129\.0\.1\): z0l00 drops it \(table miss\)"):
        planned_path(plan, fabric, compute, storage)


def with_route(plan: RoutePlan, switch: NodeId, destination: str, output: int) -> RoutePlan:
    """Return the plan with one switch's way to one destination changed."""
    rules = (
        dataclasses.replace(rule, outputs=(output,)) if rule.destination == destination else rule
        for rule in plan.rules[switch.dpid]
    )
    return dataclasses.replace(plan, switches={**plan.switches, switch.dpid: SwitchPlan.of(switch.name, rules)})


def test_path_of_a_plan_that_delivers_elsewhere_names_where() -> None:
    fabric = SIZES["fire_flyer_2_small"]
    plan = with_route(plan_static_routes(fabric), NodeId(Role.LEAF, 0, 0), "10.0.0.5", output=3)
    with pytest.raises(ControllerError, match=r"z0h000 .* to z0h004 .*: the plan delivers to z0h008"):
        planned_path(plan, fabric, fabric.nic_at_ip["10.0.0.1"], fabric.nic_at_ip["10.0.0.5"])


def test_path_of_a_plan_that_loops_names_where() -> None:
    fabric = SIZES["one_zone"]
    plan = plan_static_routes(fabric)
    source, destination = fabric.nic_at_ip["10.0.0.1"], fabric.nic_at_ip["10.0.0.2"]
    leaf, spine = (port.node for port in planned_path(plan, fabric, source, destination)[1:3])
    back = fabric.ports_between(spine, leaf)[0].number
    with pytest.raises(ControllerError, match=r"z0h000 .* to z0h001 .*: the plan loops at z0[ls]0"):
        planned_path(with_route(plan, spine, destination.ip, back), fabric, source, destination)


def wishes(choices: int) -> st.SearchStrategy[tuple[int, list[int | None]]]:
    return st.tuples(st.just(choices), st.lists(st.one_of(st.none(), st.integers(0, choices - 1)), max_size=23))


@given(st.integers(1, 5).flatmap(wishes), st.integers(0, 7))
def test_spread_is_even_and_moves_the_fewest(case: tuple[int, list[int | None]], turn: int) -> None:
    count, preferred = case
    chosen = spread(preferred, range(count), turn)
    taken = Counter(chosen)
    base, remainder = divmod(len(preferred), count)
    assert sorted((taken[choice] for choice in range(count)), reverse=True) == [base + 1] * remainder + [base] * (
        count - remainder
    )
    kept = sum(wish == choice for wish, choice in zip(preferred, chosen, strict=True))
    wanted = [preferred.count(choice) for choice in range(count)]
    # At best every choice keeps base of its wishes, and remainder of them one more.
    best = sum(min(base, wish) for wish in wanted) + min(remainder, sum(wish > base for wish in wanted))
    assert kept == best
