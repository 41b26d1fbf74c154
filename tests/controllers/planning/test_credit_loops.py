"""Which ports wait for which by a plan, and whether that goes round in a circle."""

from __future__ import annotations

from itertools import pairwise

import pytest

from controllers.planning.credit_loops import a_loop, dependencies, in_loops
from controllers.planning.paths import planned_paths
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC, Policy
from controllers.routing import Repair, Routing
from fabric.errors import ControllerError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from tests.controllers.planning.failing import FABRICS
from topologies.load import load_fabric


def port(number: int) -> Port:
    return Port(NodeId(Role.CORE, None, 0), number)


def of(**edges: str) -> dict[Port, frozenset[Port]]:
    return {port(ord(a)): frozenset(port(ord(b)) for b in others) for a, others in edges.items()}


def by_paths(fabric: Fabric, routing: Routing) -> dict[Port, set[Port]]:
    """The dependencies by following every path of every two NICs."""
    plan = plan_routes(fabric, routing)
    found: dict[Port, set[Port]] = {}
    for source in fabric.nics:
        for destination in fabric.nics:
            if source.node == destination.node:
                continue
            try:
                paths = planned_paths(plan, fabric, source, destination)
            except ControllerError:
                continue  # They do not talk.
            for (_, *path), _share in paths:
                for sent, sent_next in pairwise(path):
                    found.setdefault(sent, set()).add(sent_next)
    return found


@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
@pytest.mark.parametrize("fabric", [*FABRICS, load_fabric("rail_optimised_small"), load_fabric("dual_tor_small")])
def test_dependencies_are_those_of_all_paths(fabric: Fabric, policy: Policy) -> None:
    routing = Routing(policy=policy)
    assert dependencies(fabric, plan_routes(fabric, routing)) == by_paths(fabric, routing)


def test_what_leads_into_a_circle_or_out_of_it_is_not_in_it() -> None:
    found = of(a="b", b="c", c="db", d="e")
    assert in_loops(found) == of(b="c", c="b")
    assert a_loop(found) == (port(ord("b")), port(ord("c")))


def test_a_way_between_two_circles_is_in_no_loop_that_is_shown() -> None:
    found = of(b="cx", c="b", x="y", y="z", z="y")
    assert set(in_loops(found)) == {port(ord(name)) for name in "bcxyz"}
    assert a_loop(found) == (port(ord("b")), port(ord("c")))


def test_without_a_circle_there_is_none() -> None:
    assert in_loops(of(a="bc", b="c")) == {}
    assert a_loop(of(a="bc", b="c")) == ()


@pytest.mark.parametrize("name", ["fire_flyer_2_tiny", "fire_flyer_2_small", "fat_tree_k4", "rail_optimised_small"])
def test_routes_up_and_down_have_no_credit_loop(name: str) -> None:
    fabric = load_fabric(name)
    assert a_loop(dependencies(fabric, plan_routes(fabric, Routing()))) == ()


def test_routes_between_zones_by_other_leaves_than_ones_own_have_one() -> None:
    """Packets to another zone come down to a border leaf, those from it go up there: neither is up and then down."""
    fabric = load_fabric("two_hundred_hosts")
    found = dependencies(fabric, plan_routes(fabric, Routing()))
    loop = a_loop(found)
    assert {port.node.role for port in loop} == {Role.LEAF, Role.SPINE, Role.INTER_ZONE}
    for sent, sent_next in zip(loop, (*loop[1:], loop[0]), strict=True):
        assert sent_next in found[sent]
        assert fabric.peer(sent).node == sent_next.node


def test_cutting_the_ways_between_zones_ends_it() -> None:
    fabric = load_fabric("two_hundred_hosts")
    between = [link for link in fabric.links if Role.INTER_ZONE in (link.a.node.role, link.b.node.role)]
    plan = plan_routes(fabric, Routing(repair=Repair.REROUTE), between)
    assert a_loop(dependencies(fabric, plan)) == ()
