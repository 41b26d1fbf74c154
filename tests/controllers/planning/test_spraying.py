"""Policies that send each packet by itself: what they plan reaches everybody, over all ways in equal shares."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from controllers.app import messages
from controllers.planning.fairness import max_min_of_parts_bps
from controllers.planning.many_paths import Endpoints, PortArrays, flow_ways
from controllers.planning.next_ports import NONE
from controllers.planning.paths import path_load, planned_path, planned_paths
from controllers.planning.plan import Spraying
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, ENTROPY, ROUND_ROBIN, SPRAY, Policy
from controllers.planning.spraying import spraying_of
from controllers.routing import Repair, Routing
from fabric.errors import ControllerError
from fabric.model.drawing import code_of
from fabric.model.identity import Role
from fabric.model.network import Fabric
from tests.controllers.planning.failing import Play
from topologies.load import load_fabric

SPRAYED = (SPRAY, ROUND_ROBIN, ENTROPY)
FABRICS = ("fat_tree_k4", "fire_flyer_2_small", "rail_optimised_small", "dual_tor_small", "uneven_small")
"""Two and three layers, zones, rails, planes."""


@pytest.mark.parametrize("policy", SPRAYED, ids=str)
def test_ways_are_those_of_ecmp_in_equal_shares(policy: Policy) -> None:
    for name in FABRICS:
        fabric = load_fabric(name)
        plans = [plan_routes(fabric, Routing(policy=one)) for one in (ECMP, policy)]
        pairs = [pair for other in fabric.computes[1:] if (pair := fabric.nic_pair(fabric.computes[0], other))]
        for pair in pairs[-3:]:
            hashed, sprayed = (dict(planned_paths(one, fabric, *pair)) for one in plans)
            assert sprayed == pytest.approx(hashed)
            assert planned_path(plans[1], fabric, *pair) in sprayed


@pytest.mark.parametrize(
    ("name", "repair"),
    [
        ("fire_flyer_2_small", Repair.REROUTE),
        ("fire_flyer_2_small", Repair.FAST_FAILOVER),
        ("fat_tree_k4", Repair.REROUTE),
    ],
)
def test_failed_links_leave_their_share_to_the_others(name: str, repair: Repair) -> None:
    fabric, routing = load_fabric(name), Routing(policy=SPRAY, repair=repair)
    play = Play(fabric, routing)
    play.verify_reach("whole")
    leaf = fabric.with_role(Role.LEAF)[0]
    uplinks = fabric.uplinks_of(leaf)
    play.fake.down ^= {fabric.link_at[uplinks[0]]}
    for _ in play.converge():
        play.verify_no_loop()
    play.verify_reach("one link down")
    source = next(nic for nic in fabric.nics if fabric.leaf_of(nic) == leaf)
    far = next(nic for nic in reversed(fabric.nics) if fabric.reaches(source, nic) and nic.zone == source.zone)
    assert fabric.leaf_of(far) != leaf
    load = path_load(plan_routes(fabric, routing, play.fake.down), fabric, source, far)
    left = [load.get(port, 0.0) for port in uplinks]
    assert left == pytest.approx([0.0, *[1 / (len(uplinks) - 1)] * (len(uplinks) - 1)])


def test_rules_of_ways_match_digits_that_the_action_copies() -> None:
    """Of six ways: one by two and one by three. The register's bits are those that the mark's digits are copied to."""
    hashing = spraying_of(1, (1, 2, 3, 4, 5, 6), 0)
    move = [action for action in messages._hash_actions(hashing) if hasattr(action, "src_field")]
    assert [(one.src_field, one.src_ofs, one.dst_field, one.dst_ofs, one.n_bits) for one in move] == [
        ("pkt_mark", 0, "reg0", 0, 1),
        ("pkt_mark", 4, "reg0", 1, 2),
    ]
    assert [hashing.code(number) for number in range(6)] == [0, 3, 4, 1, 2, 5]


def test_each_switch_of_a_plan_has_a_rule_for_each_way() -> None:
    fabric = load_fabric("fire_flyer_2_small")
    plan = plan_routes(fabric, Routing(policy=SPRAY))
    sprayed = 0
    for rules in plan.rules.values():
        ways = {rule.way for rule in rules}
        for rule in rules:
            if isinstance(rule.hashing, Spraying):
                made = rule.hashing
                assert {(made.choice, code_of(made.ways, number)) for number in range(made.ways)} <= ways
                sprayed += 1
    assert sprayed


def test_more_ways_than_a_mark_has_digits_for_are_refused() -> None:
    with pytest.raises(ControllerError, match=r"switch 0x1: 23 ways: a mark has digits for at most 22; use"):
        spraying_of(1, tuple(range(23)), 0)


def ends(fabric: Fabric, *pairs: tuple[int, int]) -> Endpoints:
    sources, destinations = np.array(pairs).T
    return Endpoints(sources, destinations)


@pytest.mark.parametrize("name", FABRICS)
def test_parts_of_many_flows_are_those_of_the_plan(name: str) -> None:
    fabric = load_fabric(name)
    ports, plan = PortArrays(fabric), plan_routes(fabric, Routing(policy=SPRAY))
    nics = fabric.nics
    pairs = [(0, place) for place in range(1, len(nics)) if fabric.reaches(nics[0], nics[place])][-6:]
    ways = flow_ways(ports, Routing(policy=SPRAY), ends(fabric, *pairs), 1)
    assert ways.parts is not None
    for row, (source, sink) in enumerate(pairs):
        places = [int(at) for at in ways.ports[row] if at != NONE]
        found = {ports.ports[at]: part for at, part in zip(places, ways.parts[row].tolist(), strict=False)}
        assert found == pytest.approx(path_load(plan, fabric, nics[source], nics[sink]))
        paths = [path for path, _ in planned_paths(plan, fabric, nics[source], nics[sink])]
        assert ways.delays_s[row] == pytest.approx(max(ports.delays_s(ports.places(paths))))


def test_a_sprayed_permutation_has_all_of_its_links() -> None:
    """And a flow over a link that others fill gets what they leave, by the part that it has there."""
    fabric = load_fabric("fat_tree_k4")
    plan = plan_routes(fabric, Routing(policy=SPRAY))
    nics = fabric.nics
    loads = [path_load(plan, fabric, nic, nics[(place + 4) % 16]) for place, nic in enumerate(nics)]
    assert max_min_of_parts_bps(fabric, loads) == pytest.approx([fabric.nic_rate_bps] * 16)
    port = fabric.uplinks_of(fabric.with_role(Role.LEAF)[0])[0]
    last = fabric.peer(nics[0].port)
    flows = [{last: 1.0, port: 0.5}, {port: 1.0}]
    rate = fabric.link_at[port].rate_bps
    assert max_min_of_parts_bps(fabric, flows) == pytest.approx([rate * 2 / 3] * 2)


def test_shares_of_paths_add_up() -> None:
    fabric = load_fabric("fat_tree_k8")
    plan = plan_routes(fabric, Routing(policy=ROUND_ROBIN))
    paths = planned_paths(plan, fabric, fabric.nics[0], fabric.nics[-1])
    assert Counter(Fraction(share).limit_denominator(1000) for _, share in paths) == {Fraction(1, 16): 16}
