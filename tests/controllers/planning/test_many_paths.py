"""Routes and paths as arrays are those that the planner's rules make."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from controllers.planning import next_ports
from controllers.planning.ecmp import TCP, FiveTuple, hashing_of, way_of
from controllers.planning.many_paths import Endpoints, PortArrays, flow_paths, ways_of
from controllers.planning.next_ports import NONE, static_next_ports
from controllers.planning.paths import planned_path
from controllers.planning.plan import FlowRule
from controllers.planning.planner import all_routes, plan_routes
from controllers.planning.policies import ECMP, STATIC, Policy
from controllers.routing import Routing
from fabric.errors import TopologyError
from fabric.model.network import Fabric
from tests.controllers.free_forms import SHAPES, free_form
from topologies.load import load_fabric

NAMED = ("fat_tree_k4", "fat_tree_k8", "fire_flyer_2_small", "rail_optimised", "uneven_small", "dual_tor_small")
NAMES = (*NAMED, "next_generation_32768_small", "dgx_a100_10000_small")
JOINED = [name for name in SHAPES if name != "one host"]
FLOWS = 300


@cache
def fabric_called(name: str) -> Fabric:
    return free_form(SHAPES[name]) if name in SHAPES else load_fabric(name)


def some_flows(fabric: Fabric) -> Endpoints:
    draw = random.Random(fabric.name)
    places = range(len(fabric.nics))
    drawn = [(draw.choice(places), draw.choice(places)) for _ in range(FLOWS)]
    pairs = [pair for pair in drawn if fabric.reaches(fabric.nics[pair[0]], fabric.nics[pair[1]])]
    assert len(pairs) > FLOWS / 20
    sources, destinations = np.array(pairs).T
    return Endpoints(sources, destinations)


@pytest.mark.parametrize("name", [*NAMES, *SHAPES])
def test_static_ports_are_those_of_the_routes(name: str) -> None:
    fabric = fabric_called(name)
    rows = {switch.dpid: row for row, switch in enumerate(fabric.switches)}
    columns = {nic.ip: column for column, nic in enumerate(fabric.nics)}
    wanted = np.full((len(rows), len(columns)), NONE)
    for route in all_routes(fabric):
        if not isinstance(route, FlowRule):
            wanted[rows[route.dpid], columns[route.destination]] = route.output
    assert (static_next_ports(fabric) == wanted).all()


def test_most_shapes_need_no_routes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a fabric of 10,000 hosts would take minutes."""
    monkeypatch.setattr(next_ports, "all_routes", None)
    for name in ("fat_tree_k4", "dgx_a100_10000_small", "uneven_small"):
        assert (static_next_ports(fabric_called(name)) != NONE).any()


@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
@pytest.mark.parametrize("name", [*NAMES, *JOINED])
def test_paths_are_those_of_the_rules(name: str, policy: Policy) -> None:
    fabric, routing = fabric_called(name), Routing(policy=policy)
    ports, flows = PortArrays(fabric), some_flows(fabric_called(name))
    found = flow_paths(ports, routing, flows, seed=5)
    plan = plan_routes(fabric, routing)
    drawn = np.random.default_rng(5).integers(1024, 65_535, size=(2, len(flows.sources)), endpoint=True)
    for row in range(len(flows.sources)):
        nic, other = fabric.nics[flows.sources[row]], fabric.nics[flows.destinations[row]]
        key = FiveTuple(nic.ip, other.ip, TCP, int(drawn[0, row]), int(drawn[1, row]))
        path = planned_path(plan, fabric, nic, other, key)
        assert tuple(ports.ports[at] for at in found[row] if at != NONE) == path


def test_a_policy_that_somebody_added_goes_by_its_rules() -> None:
    """Its choice is not that of static routes: the last port that leads nearer."""
    last = Policy("last", "by the last port", assign=lambda at: [ports[-1] if ports else None for ports in at.nearer])
    fabric = fabric_called("fat_tree_k4")
    ports, flows = PortArrays(fabric), some_flows(fabric)
    plan = plan_routes(fabric, Routing().model_copy(update={"policy": last}))
    found = flow_paths(ports, Routing().model_copy(update={"policy": last}), flows, seed=1)
    assert (found != flow_paths(ports, Routing(), flows, seed=1)).any()
    first = fabric.nics[flows.sources[0]], fabric.nics[flows.destinations[0]]
    assert tuple(ports.ports[at] for at in found[0] if at != NONE) == planned_path(plan, fabric, *first)


def test_a_fabric_without_routes_is_refused_by_what_is_wrong() -> None:
    fabric = load_fabric("fat_tree_k4")
    routing = Routing.model_validate({"policy": "static", "repair": "fast_failover"})
    with pytest.raises(TopologyError, match="fast_failover"):
        flow_paths(PortArrays(fabric), routing, some_flows(fabric), seed=1)


def test_hashes_of_many_flows_are_those_of_each() -> None:
    draw = np.random.default_rng(2)
    hashing = hashing_of(77, (3, 4, 5), 9)
    flows = [
        FiveTuple(f"10.0.{a}.1", f"10.1.{b}.2", TCP, p, q) for a, b, p, q in draw.integers(1, 250, (200, 4)).tolist()
    ]
    fields = [
        [int.from_bytes(bytes(map(int, ip.split("."))), "little") for ip in (one.source, one.destination)]
        for one in flows
    ]
    swapped = [
        [int.from_bytes(port.to_bytes(2, "big"), "little") for port in (one.source_port, one.destination_port)]
        for one in flows
    ]
    addresses = np.array([a ^ b for a, b in fields], dtype=np.uint32)
    numbers = np.array([a ^ b for a, b in swapped], dtype=np.uint32)
    assert ways_of(hashing, addresses, numbers).tolist() == [way_of(hashing, one) for one in flows]
