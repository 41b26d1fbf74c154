"""Plans of every policy on whole and on failed fabrics: what stays where it was, what balances, what is told."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import blake2b

import pytest

from controllers.planning.detours import ring
from controllers.planning.ecmp import TCP, FiveTuple, hashing_of, way_of
from controllers.planning.paths import path_load, planned_path, planned_paths, port_load
from controllers.planning.plan import Purpose, RoutePlan
from controllers.planning.planner import Planner, plan_routes
from controllers.planning.policies import ADAPTIVE, ECMP, POLICIES, STATIC, Policy
from controllers.planning.policies.adaptive import decide
from controllers.planning.policies.policy import AdaptiveConfig
from controllers.planning.routes import plan_static_routes
from controllers.planning.updates import Installed, rounds_to
from controllers.routing import Repair, Routing
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Link, Port, Tier
from tests.controllers.sizes import may_reach, tree
from tests.fakes import FakeFabric
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
SIZES = [
    SMALL,
    tree(1, leaves=3, spines=2, compute=7, storage=2, exits=(0, 0)),
    tree(3, leaves=4, spines=3, compute=20, storage=3, exits=(2, 3)),
    tree(leaves=3, spines=2, parallel=2, compute=13, storage=5, exits=(1, 2)),
    tree(leaves=5, spines=4, compute=17, storage=3, exits=(1, 1)),
]
REROUTE = Routing(repair=Repair.REROUTE)


def link_between(fabric: Fabric, a: str, b: str) -> Link:
    return next(link for link in fabric.links if {port.node.name for port in link.ports} == {a, b})


def routes(plan: RoutePlan) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return the ports of each switch for each destination."""
    return {(dpid, rule.destination): tuple(plan.ways(rule)) for dpid, rules in plan.rules.items() for rule in rules
            if rule.destination and "/" not in rule.destination and rule.in_port is None}  # fmt: skip


@pytest.mark.parametrize("fabric", SIZES)
@pytest.mark.parametrize("policy", [STATIC, ADAPTIVE])
def test_a_whole_fabric_gets_the_static_routes(fabric: Fabric, policy: Policy) -> None:
    static = plan_static_routes(fabric)
    for repair in (Repair.WAIT, Repair.REROUTE):
        assert plan_routes(fabric, Routing(policy=policy, repair=repair)).rules == static.rules
    protected = plan_routes(fabric, Routing(policy=policy, repair=Repair.FAST_FAILOVER))
    assert routes(protected) == routes(static)


def test_after_a_failure_few_destinations_move_and_what_is_left_is_balanced() -> None:
    link = link_between(SMALL, "z0l00", "z0s00")
    before, after = routes(plan_routes(SMALL, REROUTE)), routes(plan_routes(SMALL, REROUTE, [link]))
    moved = [place for place in before if before[place] != after[place]]
    by_switch = Counter(dpid for dpid, _ in moved)
    leaf, spine = NodeId(Role.LEAF, 0, 0), NodeId(Role.SPINE, 0, 0)
    assert by_switch[leaf.dpid] == 3  # What it sent up the dead link: a quarter of 12.
    # The spine's four below the dead link go by another leaf, should any still come; other leaves avoid the spine.
    assert by_switch[spine.dpid] == 4 + sum(
        before[spine.dpid, ip] != after[spine.dpid, ip] for ip in _remote(before, spine)
    )
    load = port_load(plan_routes(SMALL, REROUTE, [link]), SMALL)
    uplinks = [load[port] for port in SMALL.ports_of[leaf] if SMALL.peer(port).node.role is Role.SPINE]
    assert sorted(uplinks) == [0, 4, 4, 4]


def _remote(before: dict[tuple[int, str], tuple[int, ...]], spine: NodeId) -> list[str]:
    return [ip for dpid, ip in before if dpid == spine.dpid and SMALL.nic_at_ip[ip].zone != spine.zone]


def test_same_failures_give_the_same_plan() -> None:
    down = list(SMALL.links_of_tier(Tier.UPLINK)[::5])
    for policy in POLICIES:
        routing = Routing(policy=policy, repair=Repair.FAST_FAILOVER)
        assert plan_routes(SMALL, routing, down) == plan_routes(SMALL, routing, down[::-1])


def test_a_fabric_that_is_cut_says_so_and_drops_at_the_first_leaf() -> None:
    fabric = tree(leaves=2, spines=2, compute=4, storage=1, exits=(1, 1))
    down = list(fabric.links_of_tier(Tier.INTER_ZONE))[:1]
    plan = plan_routes(fabric, REROUTE, down)
    assert {what: [len(part) for part in parts] for what, parts in plan.cuts.items()} == {"fabric": [3, 3]}
    fake = FakeFabric(fabric, plan)
    fake.down = set(down)
    for source in fabric.nics:
        for destination in fabric.nics:
            if source.node != destination.node and source.zone != destination.zone and may_reach(source, destination):
                journey = fake.send(source, destination.ip)
                assert journey.dropped_at == fabric.leaf_of(source)
                assert journey.dropped_by is not None
                assert journey.dropped_by.purpose == Purpose.UNREACHABLE


def test_storage_that_its_zone_can_no_longer_reach_is_format_apart() -> None:
    fabric = tree(leaves=2, spines=1, compute=4, storage=2, exits=(1, 2))
    down = [link_between(fabric, "z0l00", "z0s00")]
    plan = plan_routes(fabric, REROUTE, down)
    assert list(plan.cuts) == ["storage of zone 0"]
    fake = FakeFabric(fabric, plan)
    fake.down = set(down)
    a, b = (nic for nic in fabric.nics if nic.zone == 0 and nic.node.role is Role.COMPUTE)
    assert fabric.leaf_of(a) != fabric.leaf_of(b)
    journey = fake.send(a, b.ip)
    assert journey.delivered_to == b
    assert "ix0" in {port.node.name for port in journey.path}
    storage = next(
        nic for nic in fabric.nics if nic.node.role is Role.STORAGE and fabric.leaf_of(nic) == fabric.leaf_of(a)
    )
    dropped = fake.send(storage, b.ip)
    assert dropped.dropped_by is not None
    assert (dropped.dropped_at, dropped.dropped_by.purpose) == (fabric.leaf_of(a), Purpose.STORAGE_GUARD)


# ECMP


def test_ecmp_spreads_a_pair_over_all_spines() -> None:
    plan = plan_routes(SMALL, Routing(policy=ECMP))
    a, b = SMALL.nic_at_ip["10.0.0.1"], SMALL.nic_at_ip["10.0.0.2"]
    paths = planned_paths(plan, SMALL, a, b)
    assert [share for _, share in paths] == [0.25] * 4
    assert {path[2].node for path, _ in paths} == set(SMALL.with_role(Role.SPINE, 0))
    assert planned_path(plan, SMALL, a, b) in [path for path, _ in paths]
    load = path_load(plan, SMALL, a, b)
    assert load[a.port] == 1
    assert sorted(load.values()) == [0.25] * 8 + [1, 1]


def test_expected_load_of_ecmp_is_even() -> None:
    load = port_load(plan_routes(SMALL, Routing(policy=ECMP)), SMALL)
    uplinks = [load[port] for port in load if port.node.role is Role.LEAF and SMALL.peer(port).node.role is Role.SPINE]
    assert uplinks == pytest.approx([3.0] * len(uplinks))


def test_hash_is_open_vswitchs() -> None:
    """As ``ofproto/trace`` of Open vSwitch 3.1.0 said for ``multipath(symmetric_l3l4+udp,7,modulo_n,3,...)``."""
    hashing = hashing_of(1, (2, 3, 4), 0)
    hashing = type(hashing)(hashing.choice, basis=7, ways=3)
    flows = [FiveTuple("10.0.0.1", "10.0.0.7", TCP, port, 80) for port in range(1000, 1006)]
    assert [way_of(hashing, flow) for flow in flows] == [1, 1, 1, 1, 2, 2]


def test_hash_spreads_flows_and_a_seed_deals_anew() -> None:
    flows = [FiveTuple("10.0.0.1", "10.0.0.2", TCP, port, 5201) for port in range(20_000, 24_000)]
    ways = [[way_of(hashing_of(SMALL.switches[0].dpid, (5, 6, 7, 8), seed), flow) for flow in flows] for seed in (0, 1)]
    assert all(900 < count < 1100 for count in Counter(ways[0]).values()), Counter(ways[0])
    assert ways[0] != ways[1]


# Local repair


def test_a_ring_is_gone_round_once() -> None:
    assert ring([4, 5, 6, 7], 1) == [6, 7, 4]
    assert ring([4, 5, 6, 7], 3, 1) == [4]
    assert ring([4, 5, 6, 7], 0, 1) == []
    assert ring([4], 0) == []


def test_a_spine_without_its_downlink_sends_back_and_the_leaf_takes_the_next() -> None:
    fake = FakeFabric(SMALL, plan_routes(SMALL, Routing(repair=Repair.FAST_FAILOVER)))
    a, b = SMALL.nic_at_ip["10.0.0.1"], SMALL.nic_at_ip["10.0.0.2"]
    path = fake.send(a, b.ip).path
    fake.down = {SMALL.link_at[path[2]]}
    detour = fake.send(a, b.ip)
    spine, leaf = path[2].node, path[1].node
    assert detour.delivered_to == b
    assert [port.node for port in detour.path[:4]] == [a.node, leaf, spine, leaf]
    assert detour.path[4].node.role is Role.SPINE
    assert detour.path[4].node != spine


def test_local_repair_costs_few_rules() -> None:
    """Searches do not depend on destinations."""
    fabric = load_fabric("two_hundred_hosts")
    protected = plan_routes(fabric, Routing(repair=Repair.FAST_FAILOVER))
    assert protected.rule_count < 1.2 * plan_static_routes(fabric).rule_count
    per_switch: dict[int, int] = defaultdict(int)
    for dpid, groups in protected.groups.items():
        per_switch[dpid] = len(groups)
    assert max(per_switch.values()) < 50


# Adaptive


CONFIG = AdaptiveConfig.model_validate({"threshold": "10 KB", "moves": 1})
PORTS = {"a": 1, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("depths", "carried", "held", "moves"),
    [
        pytest.param({1: 30_000, 2: 0}, {"a": 500, "b": 400, "c": 0}, [], {"a": 2}, id="the busiest of a deep queue"),
        pytest.param({1: 9_000, 2: 0}, {"a": 500, "b": 400, "c": 0}, [], {}, id="below the threshold"),
        pytest.param({1: 30_000, 2: 0}, {"a": 900, "b": 0, "c": 0}, [], {}, id="one flow fills any link"),
        pytest.param({1: 30_000, 2: 0}, {"a": 500, "b": 400, "c": 0}, ["a"], {"b": 2}, id="moved too recently"),
        pytest.param({1: 30_000, 2: 0}, {"a": 500, "b": 400, "c": 450}, [], {"b": 2}, id="the busiest would not help"),
        pytest.param({1: 0, 2: 30_000}, {"a": 1, "b": 1, "c": 900}, [], {}, id="alone on its link"),
    ],
)
def test_what_moves(depths: dict[int, int], carried: dict[str, int], held: list[str], moves: dict[str, int]) -> None:
    assert decide(depths, PORTS, carried, held, CONFIG) == moves


def test_a_move_changes_one_leafs_way_and_gives_way_to_failures() -> None:
    leaf = NodeId(Role.LEAF, 0, 0)
    routing = Routing(policy=ADAPTIVE, repair=Repair.REROUTE)
    before = routes(plan_routes(SMALL, routing))
    ip = "10.0.0.2"
    other = next(p.number for p in SMALL.ports_of[leaf] if p.number > 4 and (p.number,) != before[leaf.dpid, ip])
    after = routes(plan_routes(SMALL, routing, moves={(leaf, ip): other}))
    assert {place for place in before if before[place] != after[place]} == {(leaf.dpid, ip)}
    assert after[leaf.dpid, ip] == (other,)
    down = [SMALL.link_at[Port(leaf, other)]]
    assert routes(plan_routes(SMALL, routing, down, {(leaf, ip): other}))[leaf.dpid, ip] == before[leaf.dpid, ip]


# Config


def test_routing_is_config() -> None:
    data = {"policy": "ecmp", "repair": "reroute", "sweep_delay": "0.5 s", "adaptive": {"period": "50 ms"}}
    routing = checked(Routing, data, "test")
    assert (routing.policy, routing.sweep_delay, routing.adaptive.period) == (ECMP, 0.5, 0.05)
    with pytest.raises(ConfigError, match="only repair: reroute waits for a sweep, not wait; remove it"):
        checked(Routing, {"sweep_delay": "1 s"}, "test")


def test_a_move_has_one_switch_planned_again() -> None:
    """Twenty times a second, destinations may move: in a large fabric that must not cost a plan of all."""
    leaf, ip = NodeId(Role.LEAF, 0, 0), "10.0.0.2"
    planner = Planner(SMALL, Routing(policy=ADAPTIVE, repair=Repair.FAST_FAILOVER))
    before = planner.plan()
    planned = routes(before)[leaf.dpid, ip]
    other = next(p.number for p in SMALL.ports_of[leaf] if p.number > 4 and (p.number,) != planned)
    after = planner.plan({(leaf, ip): other})
    assert [dpid for dpid, switch in after.switches.items() if switch is not before.switches[dpid]] == [leaf.dpid]
    assert after == plan_routes(SMALL, planner.routing, (), {(leaf, ip): other})
    assert planner.plan() == before
    moved = rounds_to(after, {d: Installed(dict(s.cookies), set(s.groups)) for d, s in before.switches.items()})
    assert [list(one) for one in moved] == [[leaf.dpid]]


def test_where_failures_are_waited_out_no_switch_is_planned_again() -> None:
    planner = Planner(SMALL, Routing(policy=ECMP))
    before = planner.plan()
    after = planner.after(SMALL.links[-1:]).plan()
    assert all(switch is before.switches[dpid] for dpid, switch in after.switches.items())
    assert planner.after(()) is planner


# All plans, and their cost


GOLDEN = {
    "static, wait": "25aa72790cb0e9ba",
    "static, fast_failover": "63388b63d7149d5f",
    "static, reroute": "81c3db47cc734128",
    "ecmp, wait": "00c5622b12e175ea",
    "ecmp, fast_failover": "fdc40f7d355fde75",
    "ecmp, reroute": "f6ffc386776a4824",
    "adaptive, wait": "48586c7e8cad7ea1",
    "adaptive, fast_failover": "63388b63d7149d5f",
    "adaptive, reroute": "81c3db47cc734128",
}
"""Digests of the plans of the small fabric: whole, with a link of each tier down, and with all three down."""


def digest(routing: Routing) -> str:
    """Return a digest of plans, in which groups stand for their numbers."""
    links = [SMALL.links_of_tier(tier)[0] for tier in (Tier.UPLINK, Tier.INTER_ZONE, Tier.ACCESS)]
    said = blake2b(digest_size=8)
    for down in ([], links[:1], links[1:2], links):
        plan = plan_routes(SMALL, routing, down)
        for dpid, rules in plan.rules.items():
            groups = {number: (group.buckets, group.bounces) for number, group in plan.groups[dpid].items()}
            for rule in rules:
                said.update(repr((*rule.key, rule.outputs, rule.hashing, rule.purpose, rule.writes)).encode())
                said.update(repr((rule.distance, rule.group and groups[rule.group])).encode())
            said.update(repr(sorted(groups.values(), key=repr)).encode())
        said.update(repr(plan.cuts).encode())
    return said.hexdigest()


@pytest.mark.parametrize("policy", (STATIC, ECMP, ADAPTIVE), ids=str)
@pytest.mark.parametrize("repair", Repair)
def test_plans_are_what_they_were(policy: Policy, repair: Repair) -> None:
    """If you meant to change them, take over the new digest."""
    routing = Routing(policy=policy, repair=repair)
    assert digest(routing) == GOLDEN[routing.name]


def test_a_rule_of_the_full_fabric_takes_as_long_to_plan_as_one_of_a_quarter_of_it() -> None:
    """First and after a cut. The whole takes 2.2 and 1.4 s (docs/performance.md, ``app.benchmarks plans``), and took a
    minute when each rule looked through all destinations: a rule then takes four times as long where there are four
    times as many."""
    quarter, whole = (planning_s(load_fabric("fire_flyer_2", [f"compute={compute}"])) for compute in (160, 1200))
    print(f"seconds of the CPU per rule, first and after a cut: {quarter}, of the whole {whole}")
    assert whole[0] < 2.5 * quarter[0]
    assert whole[1] < 2.5 * quarter[1]


def planning_s(fabric: Fabric) -> tuple[float, float]:
    """Return the CPU time per rule of a first plan and of one after a cut; to move a destination takes far less."""
    planner = Planner(fabric, Routing(repair=Repair.FAST_FAILOVER))
    plans: list[RoutePlan] = []
    first_s = cpu_s(lambda: plans.append(planner.plan()))
    replan_s = cpu_s(lambda: planner.after(fabric.links_of_tier(Tier.UPLINK)[:1]).plan())
    moved_s = cpu_s(lambda: planner.plan({(NodeId(Role.LEAF, 0, 0), "10.0.0.2"): 41}))
    assert moved_s < replan_s / 5
    return first_s / plans[0].rule_count, replan_s / plans[0].rule_count


def cpu_s(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return time.process_time() - started_s
