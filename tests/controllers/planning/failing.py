"""Fabrics whose links fail and return, with switches that are told what a controller would tell them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from controllers.planning.planner import Moves, plan_routes
from controllers.planning.policies import POLICIES
from controllers.planning.updates import rounds_to
from controllers.routing import Repair, Routing
from fabric.model.network import Fabric, Nic, Tier
from tests.controllers.sizes import tree
from tests.fakes import FakeFabric, Fates, reachable

FABRICS = [
    # The last may be cut in two by one link.
    tree(leaves=2, spines=2, compute=4, storage=1, exits=(2, 2)),
    tree(leaves=2, spines=2, compute=4, storage=1, exits=(1, 2)),
    tree(leaves=2, spines=1, parallel=2, compute=4, storage=1, exits=(2, 3)),
    tree(1, leaves=3, spines=2, compute=3, storage=1, exits=(0, 0)),
    tree(3, leaves=2, spines=2, compute=3, storage=1, exits=(2, 2)),
    tree(leaves=3, spines=3, compute=4, storage=0, exits=(2, 3)),
    tree(leaves=4, spines=2, compute=8, storage=0, exits=(2, 2)),  # With leaves that have no inter-zone link.
    tree(leaves=3, spines=2, compute=6, storage=0, exits=(1, 2)),
    tree(leaves=2, spines=1, compute=4, storage=1, exits=(2, 2)),
]
ROUTINGS = [
    Routing(policy=policy, repair=repair) for policy in POLICIES for repair in (Repair.REROUTE, Repair.FAST_FAILOVER)
]


class Play:
    """A fabric with switches, a controller's part played by hand, and links that fail and return."""

    def __init__(self, fabric: Fabric, routing: Routing) -> None:
        self.fabric, self.routing = fabric, routing
        self.fake = FakeFabric(fabric)
        self.rounds = 0
        for _ in self.converge():
            pass

    def converge(self, moves: Moves | None = None, draw: random.Random | None = None) -> Iterator[None]:
        """Bring all switches to the plan for the links as they are; yields after each round.

        With ``draw``, the switches of a round change one after the other, in any order, and it yields after each.
        """
        plan = plan_routes(self.fabric, self.routing, self.fake.down, moves)
        for changes in rounds_to(plan, {dpid: switch.installed() for dpid, switch in self.fake.by_dpid.items()}):
            for dpid, change in draw.sample(list(changes.items()), len(changes)) if draw else changes.items():
                self.fake.by_dpid[dpid].change(change)
                if draw:
                    yield
            self.rounds += 1
            if not draw:
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

    def verify_reach(self, why: str, into_zone: int | None = None) -> None:
        fates = Fates(self.fake)
        for a, b in self.pairs():
            if into_zone is not None and (a.zone == into_zone or b.zone != into_zone):
                continue
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
