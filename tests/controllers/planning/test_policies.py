"""Routing policies are values with a file each: their plans are what they were, and one more is a file and an entry."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from controllers.planning.paths import planned_path, planned_paths
from controllers.planning.plan import Purpose
from controllers.planning.planner import plan_routes, routing_faults
from controllers.planning.policies import (
    ADAPTIVE,
    ECMP,
    ENTROPY,
    POLICIES,
    ROUND_ROBIN,
    SPRAY,
    STATIC,
    AtSwitch,
    BySource,
    Chosen,
    Policy,
)
from controllers.planning.policies.policy import keep_planned, or_list
from controllers.routing import Repair, Routing
from fabric.config import checked
from fabric.errors import ConfigError, ControllerError, TopologyError
from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from fabric.suggestions import one_of
from tests.controllers.planning.failing import FABRICS, Play
from topologies.load import load_fabric

ROOT = Path(__file__).parents[3]
PLANNED = {
    "fire_flyer_2_tiny": "4fe3d30c71ad8e56",
    "fire_flyer_2_small": "e46eb351da31d283",
    "dual_tor_small": "e2ec8c456999bf8b",
    "fat_tree_k4": "fb11d0ac0c6ae723",
    "rail_optimised_small": "abf3fb2e8bbfb992",
    "three_layer_1600_small": "3c89bda7156741da",
    "uneven_small": "70416cb29e596079",
    "storage_zone_small": "1e9e21c3c3b29858",
    "dgx_a100_nodes": "e72c5bba72bf0d94",
    "head_of_line": "ee0a3afc9159994c",
    "fire_flyer_2_nodes": "5e7f69680cd04011",
    "next_generation_32768_small": "d7cd750676e533f6",
}
"""Digests of all that the first three policies plan or refuse on a fabric, with every repair."""


def digest_of_plans(fabric: Fabric, routing: Routing) -> str:
    """Return a digest of rules with their cookies, groups and cuts, on the whole fabric and with links down."""
    said = blake2b(digest_size=8)
    links = fabric.links
    for down in ([], links[-1:], [links[0], links[len(links) // 2]]):
        plan = plan_routes(fabric, routing, down)
        said.update(plan.policy.encode())
        for dpid, switch in plan.switches.items():
            said.update("".join(f"{dpid:x} {rule!r} {rule.cookie:x}\n" for rule in switch.rules).encode())
            said.update("".join(f"{number} {group!r}\n" for number, group in sorted(switch.groups.items())).encode())
        said.update(repr(sorted(plan.cuts.items())).encode())
    return said.hexdigest()


@pytest.mark.parametrize("name", PLANNED)
def test_plans_and_refusals_are_what_they_were(name: str) -> None:
    """If you meant to change them, take over the new digest."""
    fabric, lines = load_fabric(name), []
    for policy in (STATIC, ECMP, ADAPTIVE):
        for repair in Repair:
            routing = Routing(policy=policy, repair=repair)
            try:
                found = digest_of_plans(fabric, routing)
            except TopologyError as error:
                found = str(error).partition("; use ")[0]  # What it offers grows with the list of policies.
            lines.append(f"{routing.name}: {found}")
    assert blake2b("\n".join(lines).encode(), digest_size=8).hexdigest() == PLANNED[name]


def test_configs_call_policies_by_name() -> None:
    for policy in POLICIES:
        routing = checked(Routing, {"policy": policy.name}, "test")
        assert routing.policy is policy
        assert routing.model_dump(mode="json")["policy"] == routing.model_dump()["policy"] == policy.name
    with pytest.raises(ConfigError) as failed:
        checked(Routing, {"policy": "sprinkle"}, "test")
    known = one_of(f"'{policy}'" for policy in POLICIES)
    assert failed.value.faults == (f"policy: Input should be {known} (got 'sprinkle')",)


def test_what_policies_say_of_themselves() -> None:
    assert [policy.moves for policy in (STATIC, ECMP, ADAPTIVE)] == [False, False, True]
    assert [policy.is_by_destination for policy in (STATIC, ECMP, ADAPTIVE)] == [True, False, False]
    assert [policy.keeps_static_routes for policy in (STATIC, ECMP, ADAPTIVE)] == [True, False, False]
    known = (STATIC, ECMP, ADAPTIVE, SPRAY, ROUND_ROBIN, ENTROPY)
    assert [policy.sprays for policy in known] == [False, False, False, True, True, True]
    assert [policy.has_one_path for policy in known] == [True, True, False, False, False, False]
    assert or_list((STATIC, ECMP, ADAPTIVE)) == "static, ecmp or adaptive"
    assert or_list([ECMP]) == "ecmp"


def test_a_refusal_offers_policies_that_work_on_the_fabric() -> None:
    fabric = load_fabric("uneven_small")
    (fault,) = routing_faults(fabric, Routing(policy=ADAPTIVE))
    assert fault.endswith(f"; use {or_list(policy for policy in POLICIES if policy is not ADAPTIVE)}")


def test_a_policy_that_assigns_a_port_that_leads_elsewhere_is_refused() -> None:
    lost = replace(STATIC, name="lost", assign=lambda at: [99 for _ in at.nearer])
    with pytest.raises(
        ControllerError, match=r"routing\.policy: lost: sends 10\.\S+ out of \w+:99, and it comes nearer"
    ):
        plan_routes(FABRICS[0], Routing(policy=lost))


def test_a_policy_sees_its_switch_rates_sources_and_load() -> None:
    fabric, seen = load_fabric("fat_tree_k4"), list[AtSwitch]()

    def looked(at: AtSwitch) -> list[Chosen]:
        seen.append(at)
        return keep_planned(at)

    plan_routes(fabric, Routing(policy=replace(STATIC, assign=looked), repair=Repair.REROUTE))
    assert [one.switch for one in seen] == list(fabric.switches)
    leaf = next(one for one in seen if one.switch.role is Role.LEAF)
    assert leaf.sources == tuple(nic.ip for nic in fabric.nics if fabric.leaf_at_ip[nic.ip] == leaf.switch)
    assert set(leaf.sources) < set(leaf.destinations)
    assert sum(leaf.load[port] * leaf.rate_bps(port) for port in leaf.load) == len(leaf.destinations)
    assert not any(one.sources for one in seen if one.switch.role is not Role.LEAF)


def test_flows_spread_by_weights() -> None:
    """The first uplink has three shares of four: a hash chooses among ways, and it has three of these."""
    fabric = load_fabric("fat_tree_k4")
    weighted = replace(ECMP, name="weighted", spread=lambda at, ports: (ports[0],) * 2 * (len(ports) > 1) + ports)
    plan = plan_routes(fabric, Routing(policy=weighted))
    a, b = fabric.nics[0], fabric.nics[-1]
    shares: dict[Port, float] = {}
    for path, share in planned_paths(plan, fabric, a, b):
        shares[path[1]] = shares.get(path[1], 0.0) + share
    assert sorted(shares.values()) == [0.25, 0.75]
    for wrong in ((), (99,)):
        with pytest.raises(ControllerError, match=r"routing\.policy: ecmp: spreads flows at \w+ over ports"):
            plan_routes(fabric, Routing(policy=replace(ECMP, spread=lambda at, ports, wrong=wrong: wrong)))


def by_sender(at: AtSwitch) -> list[Chosen]:
    """Each of a leaf's senders takes an uplink of its own."""

    def chosen(ports: tuple[int, ...]) -> Chosen:
        own = {ip: ports[place % len(ports)] for place, ip in enumerate(at.sources)}
        return BySource(ports[0], own) if len(ports) > 1 else (ports or (None,))[0]

    return [chosen(ports) for ports in at.nearer]


@pytest.mark.parametrize("repair", [Repair.WAIT, Repair.REROUTE])
def test_routes_go_by_source(repair: Repair) -> None:
    policy = replace(STATIC, name="by_sender", assign=by_sender)
    fabric = load_fabric("fat_tree_k4")
    plan = plan_routes(fabric, Routing(policy=policy, repair=repair))
    leaf, far = fabric.with_role(Role.LEAF)[0], fabric.nics[-1]
    own = [nic for nic in fabric.nics if fabric.leaf_at_ip[nic.ip] == leaf]
    taken = [planned_path(plan, fabric, nic, far)[1] for nic in own]
    assert taken == [fabric.uplinks_of(leaf)[place] for place in range(len(own))]
    play = Play(fabric, Routing(policy=policy, repair=repair))
    play.verify_reach("whole")


def test_routes_by_source_and_repair_by_switches_exclude_each_other() -> None:
    policy = replace(STATIC, name="by_sender", assign=by_sender)
    with pytest.raises(ControllerError, match="by_sender: chooses by source, and fast_failover repairs by destination"):
        plan_routes(load_fabric("fire_flyer_2_small"), Routing(policy=policy, repair=Repair.FAST_FAILOVER))


# One more


LOWEST = '''
"""All destinations leave by the lowest numbered port that brings them nearer."""

from controllers.planning.policies.policy import Policy


def _lowest(at):
    return [min(ports, default=None) for ports in at.nearer]


LOWEST = Policy("lowest", "by the lowest port", assign=_lowest)
'''


@pytest.fixture
def lowest(tmp_path: Path) -> Policy:
    """A policy in a module of its own, which nothing lists."""
    path = tmp_path / "lowest.py"
    path.write_text(LOWEST)
    spec = importlib.util.spec_from_file_location("lowest", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    policy: Policy = module.LOWEST
    return policy


def test_a_policy_of_ones_own_plans_a_fabric(lowest: Policy) -> None:
    fabric = load_fabric("fat_tree_k4")
    plan = plan_routes(fabric, Routing(policy=lowest))
    for leaf in fabric.with_role(Role.LEAF):
        up = {rule.outputs for rule in plan.rules[leaf.dpid] if rule.purpose == Purpose.UP}
        assert up == {(min(port.number for port in fabric.uplinks_of(leaf)),)}
    assert plan.policy == "lowest"


@pytest.mark.parametrize("repair", Repair)
def test_what_a_policy_of_ones_own_plans_delivers(lowest: Policy, repair: Repair) -> None:
    for fabric in FABRICS[:3]:
        play = Play(fabric, Routing(policy=lowest, repair=repair))
        play.verify_reach("whole")
        if repair is Repair.WAIT:
            continue
        for link in fabric.links[-2:]:
            play.fake.down ^= {link}
            for _ in play.converge():
                play.verify_no_loop()
            play.verify_reach("cut")


USE = """
import sys
from controllers.routing import Routing
from app.cli import main
from fabric.config import checked
from fabric.config_keys import Words

assert "lowest" in Words().type_of(Routing.model_fields["policy"])
assert "by the lowest port (lowest)" in Routing.model_fields["policy"].description
sys.exit(main(["path", "fire_flyer_2_tiny", "z0h000", "z0h003", "--routing", "lowest"])
         or main(["check", "mine.yaml"]))
"""


def test_a_file_and_an_entry_of_the_list_make_a_policy_that_configs_and_commands_know(tmp_path: Path) -> None:
    copy = tmp_path / "controllers"
    shutil.copytree(ROOT / "controllers", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "planning/policies/lowest.py").write_text(LOWEST)
    listing = copy / "planning/policies/__init__.py"
    entry = "from controllers.planning.policies.lowest import LOWEST\n\nPOLICIES"
    listing.write_text(listing.read_text().replace("\nPOLICIES", entry).replace(" = (STATIC, ", " = (STATIC, LOWEST, "))
    config = (ROOT / "experiments/head_of_line/head_of_line.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(f"{config}\nrouting: {{policy: lowest}}\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def imported_policies(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("controllers.planning.policies"):
            yield from (alias.name for alias in node.names)


def test_planners_controllers_and_runs_know_no_policy_by_name() -> None:
    """They ask it. Experiments may name those that they compare, a config its default, and what has paths as arrays
    those that it can."""
    folders = [ROOT / name for name in ("controllers", "runs", "traffic", "fabric")]
    paths = [path for folder in folders for path in folder.rglob("*.py") if path.parent.name != "policies"]
    named = {str(path.relative_to(ROOT)): {*imported_policies(path)} & {"STATIC", "ECMP", "ADAPTIVE"} for path in paths}
    assert {name: found for name, found in named.items() if found} == {
        "controllers/routing.py": {"STATIC"},
        "controllers/planning/many_paths.py": {"STATIC", "ECMP"},
    }
