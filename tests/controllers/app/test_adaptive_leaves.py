"""What moves destinations between uplinks: it looks at queues, asks leaves what they carry, and has a policy decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from controllers.app import adaptive_leaves
from controllers.app.adaptive_leaves import AdaptiveLeaves
from controllers.planning.plan import Purpose, RoutePlan
from controllers.planning.planner import Moves, plan_routes
from controllers.planning.policies import ADAPTIVE
from controllers.planning.policies.policy import AdaptiveConfig
from controllers.routing import Routing
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")
LEAF = NodeId(Role.LEAF, 0, 0)
DEEP = 64 * 1024


@dataclass
class FakeKeeper:
    """Keeps what it was told, and counts what a test says."""

    fabric: Fabric
    routing: Routing
    plan: RoutePlan
    settled: bool = True
    counted: dict[str, int] = field(default_factory=dict)
    moved: list[Moves] = field(default_factory=list)

    def bytes_by_destination(self, switch: NodeId) -> dict[str, int]:
        return self.counted if switch == LEAF else {}

    def move(self, moves: Moves) -> None:
        self.moved.append(moves)


@dataclass
class Asked:
    """A decision that moves nothing, and keeps what it was asked."""

    carried: list[dict[str, int]] = field(default_factory=list)
    held: list[list[str]] = field(default_factory=list)

    def __call__(
        self,
        depths: Mapping[int, int],
        ports: Mapping[str, int],
        carried: Mapping[str, int],
        held: Collection[str],
        config: AdaptiveConfig,
    ) -> dict[str, int]:
        self.carried.append(dict(carried))
        self.held.append(list(held))
        return dict.fromkeys(list(ports)[:1], max(depths)) if len(self.held) == 1 else {}


def keeper() -> FakeKeeper:
    routing = Routing(policy=ADAPTIVE)
    return FakeKeeper(FABRIC, routing, plan_routes(FABRIC, routing))


def deep(port: Port) -> Counter[Port]:
    return Counter({port: DEEP})


def test_the_busiest_destination_of_a_deep_uplink_moves() -> None:
    known = keeper()
    assert ADAPTIVE.decide is not None
    leaves = AdaptiveLeaves(known, ADAPTIVE.decide)
    uplink = FABRIC.uplinks_of(LEAF)[0]
    routes = known.plan.switches[LEAF.dpid]
    over = [ip for ip, key in routes.routes.items() if routes.ways(routes.by_key[key])[:1] == [uplink.number]]
    known.counted = {over[0]: 0, over[1]: 10_000}
    leaves._look(deep(uplink))
    assert known.moved == [], "what was sent before the queues differed says nothing"
    known.counted = {over[0]: 1000, over[1]: 10_900}
    leaves._look(deep(uplink))
    ((moves,),) = [list(moves.items()) for moves in known.moved]
    (leaf, ip), port = moves
    assert (leaf, ip) == (LEAF, over[0])
    assert port != uplink.number


def test_shallow_queues_ask_nobody() -> None:
    known, asked = keeper(), Asked()
    AdaptiveLeaves(known, asked)._look(Counter({FABRIC.uplinks_of(LEAF)[0]: 1024}))
    assert (asked.carried, known.moved) == ([], [])


def test_a_decision_gets_what_was_carried_since_and_what_moved_lately() -> None:
    known, asked = keeper(), Asked()
    leaves = AdaptiveLeaves(known, asked)
    uplink = FABRIC.uplinks_of(LEAF)[0]
    for count in (700, 1200, 1500):
        known.counted = {"10.0.0.9": count}
        leaves._look(deep(uplink))
    assert asked.carried == [{"10.0.0.9": 500}, {"10.0.0.9": 300}]
    assert asked.held[0] == []
    assert asked.held[1] == [ip for moves in known.moved for _, ip in moves]


def test_after_even_queues_a_leaf_is_asked_before_anything_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent most long ago stays; the destination that fills the queue now moves."""
    now = [100.0]
    monkeypatch.setattr(adaptive_leaves, "time", SimpleNamespace(monotonic=lambda: now[0]))
    known, asked = keeper(), Asked()
    leaves = AdaptiveLeaves(known, asked)
    uplink = FABRIC.uplinks_of(LEAF)[0]
    for at_s, count in ((100.0, 5), (100.1, 10**9), (160.0, 2 * 10**9), (160.1, 2 * 10**9 + 7), (161.0, 2 * 10**9 + 9)):
        now[0], known.counted = at_s, {"10.0.0.9": count}
        leaves._look(deep(uplink))
    assert asked.carried == [{"10.0.0.9": 10**9 - 5}, {"10.0.0.9": 7}, {"10.0.0.9": 2}]


def test_a_node_with_an_inside_moves_by_the_address_of_its_nic() -> None:
    """Its rules match the block of its addresses, and count by it."""
    fabric, routing = load_fabric("fire_flyer_2_nodes"), Routing(policy=ADAPTIVE)
    known = FakeKeeper(fabric, routing, plan_routes(fabric, routing))
    assert ADAPTIVE.decide is not None
    leaves = AdaptiveLeaves(known, ADAPTIVE.decide)
    leaf = next(leaf for leaf in fabric.with_role(Role.LEAF) if leaf == LEAF)
    routes = known.plan.switches[leaf.dpid]
    nics = {fabric.block_of(nic): nic for nic in fabric.nics}
    uplinks = {port.number: port for port in fabric.uplinks_of(leaf)}
    over: dict[int, list[str]] = {}
    for block, key in routes.routes.items():
        if "/" in block and routes.by_key[key].purpose == Purpose.UP:
            over.setdefault(routes.ways(routes.by_key[key])[0], []).append(block)
    port, (block, other, *_) = next((port, blocks) for port, blocks in over.items() if len(blocks) > 1)
    for number in (0, 1):
        known.counted = {block: 1000 * number, other: 900 * number, "10.0.0.250": 400 * number}
        leaves._look(deep(uplinks[port]))
    (moves,) = known.moved
    ((where, ip), to) = next(iter(moves.items()))
    assert (where, ip) == (leaf, nics[block].ip)
    assert to != port
    plan_routes(fabric, routing, moves=moves)
