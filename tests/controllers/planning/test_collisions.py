"""Loads of links by permutations on k-ary fat-trees: static routes and hashes against their theory."""

from __future__ import annotations

from functools import cache

import pytest

from controllers.planning.collisions import Collisions, binomial, collisions, hypergeometric
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC, Policy
from controllers.routing import Routing
from fabric.errors import UsageError
from tests.controllers.free_forms import SHAPES, free_form, hosted
from topologies.load import load_fabric

PERMUTATIONS = {"fat_tree_k4": 600, "fat_tree_k8": 60}


@cache
def found(name: str, policy: Policy) -> Collisions:
    fabric = load_fabric(name)
    return collisions(fabric, plan_routes(fabric, Routing(policy=policy)), policy, PERMUTATIONS[name])


@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
@pytest.mark.parametrize("name", PERMUTATIONS)
def test_flows_per_uplink_are_as_theory_says(name: str, policy: Policy) -> None:
    """Over thousands of links, within three standard deviations of a share and a bit for links of one leaf."""
    one = found(name, policy)
    print(
        name,
        policy.name,
        {count: (round(one.counted.get(count, 0), 3), round(p, 3)) for count, p in one.theory.items()},
    )
    assert sum(one.counted.values()) == pytest.approx(1)
    assert sum(one.theory.values()) == pytest.approx(1)
    for count in range(4):
        assert one.counted.get(count, 0) == pytest.approx(one.theory.get(count, 0), abs=0.025)


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_static_routes_collide_on_the_way_up_only_and_hashes_both_ways(name: str) -> None:
    """A k-ary tree has a way down of its own for every destination of a pod: d-mod-k uses exactly these."""
    assert found(name, STATIC).busiest_down == 1
    assert found(name, ECMP).busiest_down > 1


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_hashes_leave_more_links_idle_than_static_routes(name: str) -> None:
    static, ecmp = (found(name, policy).idle_share[0] for policy in (STATIC, ECMP))
    assert ecmp > static


def test_probabilities_of_small_numbers() -> None:
    assert binomial(2, 2) == pytest.approx({0: 0.25, 1: 0.5, 2: 0.25})
    assert hypergeometric(2, 4, 2) == pytest.approx({0: 1 / 6, 1: 4 / 6, 2: 1 / 6})
    assert sum(binomial(8, 4).values()) == pytest.approx(1)
    assert sum(hypergeometric(4, 124, 31).values()) == pytest.approx(1)


def test_a_fabric_without_uplinks_is_refused_by_name() -> None:
    fabric = free_form(SHAPES["ring"])
    with pytest.raises(UsageError, match="drawn: no leaf has a link to a spine, where flows could meet"):
        collisions(fabric, plan_routes(fabric, Routing()), STATIC, 1)


def test_leaves_without_uplinks_are_left_out() -> None:
    fabric = free_form([*hosted(["z0l00-z0s00", "z0l01-z0s00"]), "z0h003-z0l03", "z0h004-z0l03"])
    found = collisions(fabric, plan_routes(fabric, Routing(policy=ECMP)), ECMP, 4)
    assert sum(found.counted.values()) == pytest.approx(1)
