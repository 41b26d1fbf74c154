"""Who reads beside an incast: what a pair shares with it is what its kind says, whatever the fabric."""

from __future__ import annotations

from itertools import combinations

import pytest

from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP
from controllers.routing import Routing
from experiments.routing_incast.bystanders import (
    APART,
    CROSSING,
    Incast,
    Pair,
    choose_bystanders,
    planned_ports,
)
from fabric.errors import ConfigError
from fabric.model.identity import Role
from fabric.model.network import Fabric, Port
from runs.job_metrics import DOWN, FROM_HOSTS, OTHER, TO_CLIENT, TO_OTHERS, UP, tiers
from topologies.load import load_fabric

FABRICS = {
    "spread": load_fabric("storage_zone_small"),
    "packed": load_fabric("storage_zone_small", ["placement=packed"]),
    "two zones": load_fabric("fire_flyer_2_small"),
}


def plans(fabric: Fabric) -> tuple[RoutePlan, RoutePlan]:
    return plan_routes(fabric, Routing()), plan_routes(fabric, Routing(policy=ECMP))


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize(("clients", "crossing"), [(1, 1), (2, 1)])
def test_pairs_share_with_the_incast_what_their_kind_says(name: str, clients: int, crossing: int) -> None:
    fabric = FABRICS[name]
    static, hashed = plans(fabric)
    incast = Incast.of(fabric, clients, None)
    chosen = choose_bystanders(fabric, static, hashed, incast, 3, crossing)
    used = {port for pair in incast.pairs for port in planned_ports(fabric, static, pair)}
    assert {kind: len(pairs) for kind, pairs in chosen.items()} == {APART: 3, CROSSING: crossing}
    for pair in chosen[APART]:
        both_ways = planned_ports(fabric, static, pair) | planned_ports(fabric, static, Pair(pair.reader, pair.server))
        assert used.isdisjoint(both_ways), pair
    for pair in chosen[CROSSING]:
        shared = used & planned_ports(fabric, static, pair)
        assert shared, pair
        assert {(port.node.role, fabric.peer(port).node.role) for port in shared} == {(Role.LEAF, Role.SPINE)}


@pytest.mark.parametrize("name", FABRICS)
def test_pairs_cross_a_spine_and_take_nothing_from_one_another(name: str) -> None:
    fabric = FABRICS[name]
    static, hashed = plans(fabric)
    incast = Incast.of(fabric, 1, None)
    chosen = choose_bystanders(fabric, static, hashed, incast, 3, 1)
    paths = [planned_ports(fabric, static, pair) for pairs in chosen.values() for pair in pairs]
    assert all(any(port.node.role is Role.SPINE for port in path) for path in paths)
    assert all(a.isdisjoint(b) for a, b in combinations(paths, 2))
    hosts = {host for pairs in chosen.values() for pair in pairs for host in (pair.server, pair.reader)}
    assert hosts.isdisjoint({*incast.clients, *incast.servers})


def test_pairs_apart_lie_where_other_routes_would_lead_the_incast() -> None:
    fabric = FABRICS["spread"]
    static, hashed = plans(fabric)
    incast = Incast.of(fabric, 1, None)
    possible = {port for pair in incast.pairs for port in planned_ports(fabric, hashed, pair)}
    chosen = choose_bystanders(fabric, static, hashed, incast, 4, 2)
    assert all(possible & planned_ports(fabric, static, pair) for pair in chosen[APART])
    # Two of them lead to the client's own leaf, where all that an incast may take there would meet them.
    down = [port for pair in chosen[APART] for port in planned_ports(fabric, static, pair) & possible]
    assert sum(port.node.role is Role.SPINE for port in down) == 2


def test_a_fabric_without_room_is_refused_by_kind_and_number() -> None:
    fabric = FABRICS["spread"]
    with pytest.raises(
        ConfigError, match=r"bystanders\.apart: 40 wanted, storage_zone_small has room for \d; lower it"
    ):
        choose_bystanders(fabric, *plans(fabric), Incast.of(fabric, 1, None), 40, 1)


@pytest.mark.parametrize(
    ("clients", "servers", "fault"),
    [
        (13, None, "incast.clients: 13 exceed the 12 compute nodes of zone 0"),
        (1, 9, "incast.servers: 9 are needed, the topology has 8 storage nodes; give it more"),
    ],
)
def test_an_incast_of_more_than_there_are_is_refused(clients: int, servers: int | None, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Incast.of(FABRICS["spread"], clients, servers)
    assert list(refused.value.faults) == [fault]


def test_an_incast_has_the_last_computes_and_the_first_storage_nodes() -> None:
    incast = Incast.of(FABRICS["spread"], 2, 3)
    assert [node.name for node in incast.clients] == ["z0h010", "z0h011"]
    assert [node.name for node in incast.servers] == ["st000", "st001", "st002"]


def test_each_port_has_a_tier_by_what_it_joins() -> None:
    fabric = FABRICS["two zones"]
    client = fabric.computes[0]
    leaf = fabric.leaf_of(fabric.nics_of[client][0])
    found = tiers(fabric, [client])
    to_client = next(port for port in fabric.ports_of[leaf] if fabric.peer(port).node == client)
    assert [port for port, tier in found.items() if tier == TO_CLIENT] == [to_client]
    assert found[Port(client, 0)] == FROM_HOSTS
    kinds = {(port.node.role, fabric.peer(port).node.role): tier for port, tier in found.items() if port != to_client}
    assert kinds[Role.LEAF, Role.SPINE] == UP
    assert kinds[Role.SPINE, Role.LEAF] == DOWN
    assert kinds[Role.LEAF, Role.STORAGE] == TO_OTHERS
    assert kinds[Role.LEAF, Role.INTER_ZONE] == kinds[Role.INTER_ZONE, Role.LEAF] == OTHER
    assert len(found) == 2 * len(fabric.links)
