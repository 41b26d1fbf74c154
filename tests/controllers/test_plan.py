from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controllers.plan import DROP_COOKIE_BIT, FlowRule, Priority, Purpose, RoutePlan, table_miss
from controllers.routes import plan_static_routes
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


def test_plan_survives_a_file(tmp_path: Path) -> None:
    plan = plan_static_routes(load_fabric("fire_flyer_2_small"))
    plan.save(tmp_path / "plan.json")
    assert RoutePlan.load(tmp_path / "plan.json") == plan


def test_every_field_survives_json() -> None:
    plan = plan_of(ROUTE, GUARD, FROM_PORT)
    assert RoutePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_cookies_tell_rules_and_drops_apart() -> None:
    cookies = plan_of(ROUTE, GUARD).cookies[LEAF]
    assert len(cookies) == 3
    assert {rule for cookie, rule in cookies.items() if cookie & DROP_COOKIE_BIT} == {GUARD, table_miss(LEAF)}


def test_no_rule_has_the_cookie_of_a_stranger() -> None:
    assert 0 not in plan_of(ROUTE).cookies[LEAF]


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"plan\.json: is not JSON"),
        ("[]", r"plan\.json: format_version None is not 1"),
        ('{"format_version": 2}', r"plan\.json: format_version 2 is not 1"),
        ('{"format_version": 1, "policy": "static"}', r"plan\.json: is damaged \(KeyError: 'switches'\)"),
        (
            '{"format_version": 1, "policy": "x", "switches": {"z0l00": {"dpid": 1, "rules": [{"priority": 0}]}}}',
            r"plan\.json: is damaged \(KeyError: 'purpose'\)",
        ),
    ],
)
def test_file_that_is_no_plan_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ControllerError, match=message):
        RoutePlan.load(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match=r"none\.json: cannot be read: No such file"):
        RoutePlan.load(tmp_path / "none.json")


def test_unwritable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match=r"plan\.json: cannot be written: No such file"):
        plan_of().save(tmp_path / "missing" / "plan.json")


@pytest.mark.parametrize("module", ["controllers.plan", "controllers.routes", "controllers.client"])
def test_planning_and_asking_import_neither_ryu_nor_mininet(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'ryu', 'eventlet', 'mininet'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
