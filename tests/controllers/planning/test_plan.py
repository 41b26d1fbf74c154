from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from controllers.planning.plan import (
    DROP_COOKIE_BIT,
    Bucket,
    FailoverGroup,
    FlowRule,
    Mark,
    Priority,
    Purpose,
    RoutePlan,
    table_miss,
)
from controllers.planning.routes import plan_static_routes
from fabric.errors import ControllerError
from topologies.load import load_fabric

LEAF = 0x1_0000_0000
ROUTE = FlowRule(LEAF, Priority.ROUTE, Purpose.DELIVER, destination="10.0.0.1", outputs=(1,))
GUARD = FlowRule(LEAF, Priority.GUARD, Purpose.STORAGE_GUARD, destination="10.0.0.0/16", source="10.128.0.0/9")
FROM_PORT = FlowRule(LEAF, Priority.ROUTE + 1, "detour", destination="10.0.0.1", in_port=7, outputs=(2,))


def plan_of(*rules: FlowRule) -> RoutePlan:
    return RoutePlan.of("test", {LEAF: "z0l00"}, (table_miss(LEAF), *rules))


def test_rules_are_sorted_highest_priority_first_then_by_address() -> None:
    later = FlowRule(LEAF, Priority.ROUTE, Purpose.DELIVER, destination="10.0.0.10", outputs=(1,))
    earlier = FlowRule(LEAF, Priority.ROUTE, Purpose.DELIVER, destination="10.0.0.9", outputs=(1,))
    assert plan_of(later, earlier, GUARD).rules[LEAF] == (GUARD, earlier, later, table_miss(LEAF))


@pytest.mark.parametrize(
    ("in_port", "source", "destination", "acting"),
    [
        (3, "10.0.0.2", "10.0.0.1", ROUTE),
        (7, "10.0.0.2", "10.0.0.1", FROM_PORT),
        (7, "10.128.0.2", "10.0.0.1", GUARD),
        (3, "10.128.0.2", "10.1.0.1", table_miss(LEAF)),
        (3, "10.0.0.2", "10.0.0.11", table_miss(LEAF)),
    ],
)
def test_lookup_takes_the_highest_priority_that_matches(
    in_port: int, source: str, destination: str, acting: FlowRule
) -> None:
    assert plan_of(ROUTE, GUARD, FROM_PORT).lookup(LEAF, in_port, source, destination) == acting


def test_a_digest_tells_plans_apart_by_a_rule_a_group_and_a_switch() -> None:
    group = FailoverGroup(LEAF, (Bucket(1), Bucket(2)))
    plans = [
        plan_of(ROUTE, GUARD),
        plan_of(dataclasses.replace(ROUTE, outputs=(2,)), GUARD),
        plan_of(ROUTE),
        RoutePlan.of("test", {LEAF: "z0l00"}, (table_miss(LEAF), ROUTE, GUARD), [group]),
        RoutePlan.of("test", {LEAF: "z0l00", 5: "z0l01"}, (table_miss(LEAF), ROUTE, GUARD, table_miss(5))),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert plan_of(GUARD, ROUTE).digest == plans[0].digest


def test_cookies_tell_rules_and_drops_apart() -> None:
    cookies = plan_of(ROUTE, GUARD).switches[LEAF].by_cookie
    assert len(cookies) == 3
    assert {rule for cookie, rule in cookies.items() if cookie & DROP_COOKIE_BIT} == {GUARD, table_miss(LEAF)}


def test_no_rule_has_the_cookie_of_a_stranger() -> None:
    assert 0 not in plan_of(ROUTE).switches[LEAF].by_cookie


def test_every_planned_switch_drops_what_misses() -> None:
    plan = plan_static_routes(load_fabric("fire_flyer_2_small"))
    assert all(rules[-1] == table_miss(dpid) for dpid, rules in plan.rules.items())


def test_two_rules_for_one_match_are_refused() -> None:
    with pytest.raises(ControllerError, match=r"z0l00 has 2 rules of priority 100 for 10\.0\.0\.1; a switch keeps"):
        plan_of(ROUTE, FlowRule(LEAF, Priority.ROUTE, Purpose.UP, destination="10.0.0.1", outputs=(4,)))


def test_switch_without_table_miss_is_refused() -> None:
    with pytest.raises(ControllerError, match="z0l00 has no table-miss rule"):
        RoutePlan.of("test", {LEAF: "z0l00"}, [ROUTE])


def test_rule_of_an_unknown_switch_is_refused() -> None:
    with pytest.raises(ControllerError, match="DPID 0x5, which no switch has"):
        plan_of(table_miss(5))


def test_a_group_that_a_rule_names_and_nobody_has_is_refused() -> None:
    with pytest.raises(ControllerError, match=r"z0l00 has no group 77, which .* names; add it"):
        plan_of(FlowRule(LEAF, Priority.ROUTE, Purpose.UP, destination="10.0.0.1", chosen_by=77))


def test_a_digest_says_what_a_rule_says_and_not_how_far_it_is() -> None:
    assert dataclasses.replace(ROUTE, distance=4).cookie == ROUTE.cookie
    others = [dataclasses.replace(ROUTE, outputs=(2,)), dataclasses.replace(ROUTE, mark=Mark(1, 1)), FROM_PORT, GUARD]
    assert len({rule.cookie for rule in (ROUTE, *others)}) == 5


def test_groups_that_say_the_same_have_one_number() -> None:
    group = FailoverGroup(LEAF, (Bucket(1), Bucket(2, Mark(1, 1))))
    assert group.number == FailoverGroup(LEAF, (Bucket(1), Bucket(2, Mark(1, 1)))).number
    assert (
        len(
            {
                group.number,
                FailoverGroup(LEAF, group.buckets, bounces=True).number,
                FailoverGroup(LEAF, (Bucket(1),)).number,
            }
        )
        == 3
    )


PURE = ("plan", "planner", "paths", "policies.adaptive")


@pytest.mark.parametrize("module", [*(f"controllers.planning.{name}" for name in PURE), "controllers.client"])
def test_planning_and_asking_import_neither_ryu_nor_mininet(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'ryu', 'eventlet', 'mininet'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
