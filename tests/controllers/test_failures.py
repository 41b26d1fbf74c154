"""Random failures and returns of links: no packet loops, none is lost where a path exists, no rule is stale."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from controllers.planner import plan_routes
from controllers.routing import Policy, Repair, Routing
from controllers.updates import rounds_to
from fabric.model import Fabric, Nic, Tier
from tests.controllers.sizes import tree
from tests.fakes import FakeFabric, Fates, reachable

SEQUENCES = 1000
EVENTS = 4
FABRICS = [
    tree(leaves=2, spines=2, compute=4, storage=1, exits=(2, 2)),
    tree(leaves=2, spines=2, compute=4, storage=1, exits=(1, 2)),
    tree(leaves=2, spines=1, parallel=2, compute=4, storage=1, exits=(2, 3)),
    tree(1, leaves=3, spines=2, compute=3, storage=1, exits=(0, 0)),
    tree(3, leaves=2, spines=2, compute=3, storage=1, exits=(2, 2)),
    tree(leaves=3, spines=3, compute=4, storage=0, exits=(2, 3)),
    tree(leaves=2, spines=1, compute=4, storage=1, exits=(2, 2)),
]
ROUTINGS = [
    Routing(policy=policy, repair=repair) for policy in Policy for repair in (Repair.REROUTE, Repair.FAST_FAILOVER)
]


class Play:
    """A fabric with switches, a controller's part played by hand, and links that fail and return."""

    def __init__(self, fabric: Fabric, routing: Routing) -> None:
        self.fabric, self.routing = fabric, routing
        self.fake = FakeFabric(fabric)
        self.rounds = 0
        for _ in self.converge():
            pass

    def converge(self, moves: dict[tuple[object, str], int] | None = None) -> Iterator[None]:
        """Bring all switches to the plan for the links as they are; yields after each round."""
        plan = plan_routes(self.fabric, self.routing, self.fake.down, moves)  # type: ignore[arg-type]
        for changes in rounds_to(plan, {dpid: switch.installed() for dpid, switch in self.fake.by_dpid.items()}):
            for dpid, change in changes.items():
                self.fake.by_dpid[dpid].change(change)
            self.rounds += 1
            yield
        for dpid, switch in self.fake.by_dpid.items():
            assert set(switch.rules.values()) == set(plan.rules[dpid]), "a rule is stale or missing"
            assert switch.groups == plan.groups[dpid], "a group is stale or missing"

    def pairs(self) -> Iterator[tuple[Nic, Nic]]:
        return ((a, b) for a in self.fabric.nics for b in self.fabric.nics if a.node != b.node)

    def verify_no_loop(self) -> None:
        fates = Fates(self.fake)
        for a, b in self.pairs():
            fates.of(a, b)

    def verify_reach(self, why: str) -> None:
        fates = Fates(self.fake)
        for a, b in self.pairs():
            exists = reachable(self.fabric, self.fake.down, a, b)
            assert fates.of(a, b) == {exists}, f"{why}: {a.ip} to {b.ip}, a path exists: {exists}; down: {self.down}"

    @property
    def down(self) -> str:
        return ", ".join(map(str, sorted(self.fake.down, key=str)))


def change_links(draw: random.Random, play: Play) -> None:
    """Let one to four links fail or return, fabric links rather than hosts'."""
    links = [link for link in play.fabric.links if link.tier is not Tier.ACCESS or draw.random() < 0.2]
    for link in draw.sample(links, min(len(links), draw.choice([1, 1, 2, 4]))):
        play.fake.down ^= {link}


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


@pytest.mark.parametrize("part", range(10))
def test_random_failures_neither_loop_nor_lose_nor_leave_stale_rules(part: int) -> None:
    started_s = time.monotonic()
    count = SEQUENCES // 10
    rounds = sum(play_sequence(seed) for seed in range(part * count, (part + 1) * count))
    print(f"{count} sequences, {rounds} rounds of updates, {time.monotonic() - started_s:.1f} s")


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("fabric", FABRICS[:6])
def test_fast_failover_loses_nothing_after_any_single_failure_before_the_controller_acts(
    fabric: Fabric, policy: Policy
) -> None:
    play = Play(fabric, Routing(policy=policy, repair=Repair.FAST_FAILOVER))
    for link in fabric.links:
        play.fake.down = {link}
        play.verify_reach(f"{link} down")


def test_waiting_changes_nothing() -> None:
    fabric = FABRICS[0]
    for policy in Policy:
        routing = Routing(policy=policy)
        failed = plan_routes(fabric, routing, fabric.links[-3:])
        assert failed.rules == plan_routes(fabric, routing).rules
        assert set(failed.cuts) == {"fabric"}, "it says what is cut all the same"
