"""Random failures and returns of links: no packet loops, none is lost where a path exists, no rule is stale."""

from __future__ import annotations

import random
import time

import pytest

from controllers.planning.distances import LiveGraph
from controllers.planning.planner import plan_routes
from controllers.planning.policies import POLICIES, Policy
from controllers.routing import Repair, Routing
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric
from tests.controllers.planning.failing import FABRICS, ROUTINGS, Play, change_links
from tests.controllers.sizes import tree

SEQUENCES = 1000
EVENTS = 4


def play_sequence(seed: int) -> int:
    """Play one random sequence, and return the rounds of updates that it took."""
    draw = random.Random(seed)
    play = Play(draw.choice(FABRICS), ROUTINGS[seed % len(ROUTINGS)])
    for _ in range(EVENTS):
        change_links(draw, play)
        play.verify_no_loop()  # Before anybody has told the controller.
        for number, _ in enumerate(play.converge()):
            play.verify_no_loop()
            if number == 1 and draw.random() < 0.2:
                change_links(draw, play)  # In the midst of an update, which is then given up for a new one.
                play.verify_no_loop()
                break
        for _ in play.converge():
            play.verify_no_loop()
        play.verify_reach(f"seed {seed}, {play.routing.name}")
    play.fake.down.clear()
    for _ in play.converge():
        play.verify_no_loop()
    play.verify_reach(f"seed {seed}, {play.routing.name}, all links back")
    return play.rounds


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, 10))])
def test_random_failures_neither_loop_nor_lose_nor_leave_stale_rules(part: int) -> None:
    started_s = time.monotonic()
    count = SEQUENCES // 10
    rounds = sum(play_sequence(seed) for seed in range(part * count, (part + 1) * count))
    print(f"{count} sequences, {rounds} rounds of updates, {time.monotonic() - started_s:.1f} s")


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("fabric", FABRICS[:-1])
def test_fast_failover_loses_nothing_after_any_single_failure_before_the_controller_acts(
    fabric: Fabric, policy: Policy
) -> None:
    play = Play(fabric, Routing(policy=policy, repair=Repair.FAST_FAILOVER))
    for link in fabric.links:
        play.fake.down = {link}
        play.verify_reach(f"{link} down")


def test_waiting_changes_nothing() -> None:
    fabric = FABRICS[0]
    for policy in POLICIES:
        routing = Routing(policy=policy)
        failed = plan_routes(fabric, routing, fabric.links[-3:])
        assert failed.rules == plan_routes(fabric, routing).rules
        assert set(failed.cuts) == {"fabric"}, "it says what is cut all the same"


def test_an_inter_zone_switch_without_a_way_into_a_zone_leaves_local_repair_to_all_others() -> None:
    """It has only to send back what still comes: nobody sends it anything new, so nothing need be planned plainly."""
    fabric = tree(leaves=4, spines=2, compute=8, storage=0, exits=(2, 4))
    lost = NodeId(Role.INTER_ZONE, None, 0)
    cut = {fabric.link_at[port] for port in fabric.ports_of[lost] if fabric.peer(port).node.zone == 0}
    leaf = NodeId(Role.LEAF, 0, 0)
    distances = LiveGraph(fabric, cut).distances(leaf)
    assert lost not in distances.regular
    assert distances.is_regular
    play = Play(fabric, Routing(repair=Repair.FAST_FAILOVER))
    play.fake.down |= cut
    play.verify_reach("before the controller acts")
    for _ in play.converge():
        play.verify_reach("on the way to the new plan")
    for link in set(fabric.links) - cut:
        play.fake.down = cut | {link}
        play.verify_reach(f"{link} down, too, before the controller acts", into_zone=0)
