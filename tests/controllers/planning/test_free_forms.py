"""Free forms of any shape: all NICs that links join reach each other, by all policies and repairs not refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.planning.credit_loops import a_loop, dependencies
from controllers.planning.paths import planned_path, planned_paths, port_load
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes, routing_faults
from controllers.planning.policies import ADAPTIVE, ECMP, POLICIES
from controllers.planning.routes import is_zoned
from controllers.planning.up_down import UpDownGraph
from controllers.routing import Repair, Routing
from fabric.errors import TopologyError
from fabric.model.network import Fabric, Tier
from tests.controllers.free_forms import (
    SHAPES,
    STAR,
    free_form,
    hosted,
    link_lists,
    link_lists_of_zones,
    pairs_of,
    verify_delivery,
)

ROUTINGS = [Routing(policy=policy, repair=repair) for policy in POLICIES for repair in Repair]
STATIC, REROUTE = Routing(), Routing(repair=Repair.REROUTE)


def verify(fabric: Fabric) -> None:
    """Every routing plans it and delivers, or says by name why it does not; the static one always plans."""
    assert list(routing_faults(fabric, STATIC)) == []
    for routing in ROUTINGS:
        faults = list(routing_faults(fabric, routing))
        if faults:
            assert all(fault.startswith("routing.") for fault in faults)
            with pytest.raises(TopologyError):
                plan_routes(fabric, routing)
        else:
            verify_delivery(fabric, plan_routes(fabric, routing))
    plan = plan_routes(fabric, STATIC)
    if not is_zoned(fabric):
        verify_up_and_down(fabric, plan)
    assert a_loop(dependencies(fabric, plan)) == ()
    assert set(port_load(plan, fabric)) == {port for switch in fabric.switches for port in fabric.ports_of[switch]}
    assert plan.cuts == plan_routes(fabric, REROUTE).cuts == {}
    assert fabric.round_trip_s > 0


def verify_up_and_down(fabric: Fabric, plan: RoutePlan) -> None:
    """Between switches, every step up comes before every step down: so there is no cycle of waits, whatever is sent."""
    order = UpDownGraph(fabric).order
    for source, destination in pairs_of(fabric):
        if fabric.reaches(source, destination):
            path = planned_path(plan, fabric, source, destination)
            places = [order[port.node] for port in path if port.node.is_switch]
            steps = [after > before for before, after in pairwise(places)]
            assert steps == sorted(steps, reverse=True), " ".join(map(str, path))


@pytest.mark.parametrize("name", SHAPES)
def test_all_that_links_join_reach_each_other(name: str) -> None:
    if "256" in name:  # Its 65,280 pairs are looked at by one policy.
        fabric = free_form(SHAPES[name])
        verify_delivery(fabric, plan_routes(fabric, STATIC))
        return
    verify(free_form(SHAPES[name]))


@settings(max_examples=120, deadline=None)
@given(link_lists())
def test_so_do_those_of_any_free_form(links: list[Any]) -> None:
    verify(free_form(links))


@settings(max_examples=300, deadline=None)
@given(link_lists_of_zones())
def test_zones_are_planned_or_refused_by_what_is_wrong_with_them(links: list[Any]) -> None:
    try:
        fabric = free_form(links)
    except TopologyError as error:
        assert all("Error" not in fault for fault in error.faults)
        return
    if list(routing_faults(fabric, STATIC)):
        for routing in ROUTINGS:
            with pytest.raises(TopologyError):
                plan_routes(fabric, routing)
        return
    verify_of_zones(fabric)


def verify_of_zones(fabric: Fabric) -> None:
    for routing in ROUTINGS:
        if not list(routing_faults(fabric, routing)):
            verify_delivery(fabric, plan_routes(fabric, routing))


@settings(max_examples=100, deadline=None)
@given(link_lists(most_switches=6, most_hosts=4), st.data())
def test_rerouting_reaches_all_that_live_links_join(links: list[Any], data: st.DataObject) -> None:
    fabric = free_form(links)
    joining = [link for link in fabric.links if link.tier is Tier.UPLINK]
    down = data.draw(st.lists(st.sampled_from(joining), max_size=3, unique=True)) if joining else []
    graph = UpDownGraph(fabric, down)
    plan = plan_routes(fabric, REROUTE, down)
    for source, destination in pairs_of(fabric):
        if any(
            fabric.leaf_of(source) in part and fabric.leaf_of(destination) in part
            for part in graph.parts_of(fabric.switches)
        ):
            path = planned_path(plan, fabric, source, destination)
            assert not any(fabric.link_at[port] in down for port in path)


# How long ways are


def longest(links: list[Any]) -> int:
    """Return the links between switches on the longest static route."""
    fabric = free_form(links)
    plan = plan_routes(fabric, STATIC)
    return max(len(planned_path(plan, fabric, *pair)) - 2 for pair in pairs_of(fabric))


@pytest.mark.parametrize(
    ("name", "hops"),
    [("star of leaves", 2), ("star of leaves around the last", 2), ("line", 7), ("mesh", 1), ("tree of leaves", 6)],
)
def test_ways_in_trees_and_meshes_are_the_shortest(name: str, hops: int) -> None:
    assert longest(SHAPES[name]) == hops


def test_a_ring_is_cut_open_opposite_its_middle() -> None:
    """Of 7 leaves the middle is any: 3 on each side of it, and the link between the two last is for these only."""
    assert longest(SHAPES["ring"]) == 5


def test_a_torus_has_ways_as_short_as_up_and_down_allows() -> None:
    rows = [f"z0l{3 * r + c:02d}-z0l{3 * r + (c + 1) % 3:02d}" for r in range(3) for c in range(3)]
    columns = [f"z0l{3 * r + c:02d}-z0l{3 * ((r + 1) % 3) + c:02d}" for r in range(3) for c in range(3)]
    assert longest(hosted(rows + columns)) == 2


def test_ecmp_uses_all_parallel_links_between_two_leaves() -> None:
    fabric = free_form(SHAPES["two leaves, three links"])
    paths = planned_paths(plan_routes(fabric, Routing(policy=ECMP)), fabric, fabric.nics[0], fabric.nics[1])
    assert [share for _, share in paths] == pytest.approx([1 / 3] * 3)


def test_the_round_trip_is_of_the_leaves_that_are_farthest_apart() -> None:
    """8 leaves in a line: 2 access links and 7 between leaves, there and back, of 4214 B at 1 Gbit/s."""
    frame_s = 4214 * 8 / 1e9
    assert free_form(SHAPES["line"]).round_trip_s == pytest.approx(9 * frame_s)
    assert free_form(STAR).round_trip_s == pytest.approx(2 * frame_s)
    assert free_form(SHAPES["ring"]).round_trip_s == pytest.approx(5 * frame_s)


def test_adaptive_is_refused_where_leaves_send_to_leaves() -> None:
    with pytest.raises(TopologyError, match=r"routing\.policy: adaptive: z0l00 does not reach all it sends up"):
        plan_routes(free_form(SHAPES["two leaves, three links"]), Routing(policy=ADAPTIVE))


@pytest.mark.parametrize(
    ("links", "text"),
    [
        (["z0h000-z0l00", "z1h000-z1l00"], "no switch joins the 2 zones"),
        (["z0h000-z0l00", "z0h001-z0l01", "z0l00-ix0", "z0l01-ix0"], "zone 0: no spine joins its 2 leaves"),
        (["z0h000-z0l00", "z1h000-z1l00", "z0l00-ix0", "z1l00-ix1", "ix0-ix1"], "link ix0:2--ix1:2: with inter-zone"),
        (["z0h000-z0l00", "z1h000-z1l00", "z0l00-ix0", "z1l00-ix0", "z0l00-z1l00"], "link z0l00:3--z1l00:3"),
        (["z0h000-z0l00", "z0l00-ix0", "ix0-c00"], "core switch c00: zones are joined by inter-zone switches only"),
    ],
)
def test_zones_that_have_no_routes_are_refused_by_name(links: list[str], text: str) -> None:
    fabric = free_form(links)
    assert any(text in fault for fault in routing_faults(fabric, STATIC))
