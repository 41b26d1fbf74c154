"""Packets that are on a wire while links and rules change: none may loop, and none may vanish without a count."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from controllers.planning.policies import ECMP, STATIC, Policy
from controllers.routing import Repair, Routing
from fabric.model.network import Fabric, Link, Nic, Port, Tier
from tests.controllers.planning.failing import FABRICS, ROUTINGS, Play, change_links
from tests.controllers.sizes import tree
from tests.fakes import End, Packet, is_storage
from topologies.load import fabric_of

State = tuple[Port, Packet]
"""A packet on the wire that a port sends into."""
SEQUENCES, QUICK_SEQUENCES, EVENTS = 1000, 30, 3
BORDER = tree(leaves=3, spines=2, compute=3, storage=0, exits=(2, 2))
"""Its leaves with and without inter-zone links; few hosts, so that it is quickly looked through."""


def fat_tree(**keys: Any) -> Fabric:
    rates = {"nic_rate": "1 Mbit/s", "uplink_rate": "1 Mbit/s", "reference_nic_rate": "1 Mbit/s"}
    shape = {"spines_per_pod": 2, "leaves_per_pod": 2, "compute": 4}
    return fabric_of(
        {"name": "tree", "builder": "fat_tree", "switch_ports": 8, "mtu": 1500} | rates | shape | keys, "test"
    )


LEVELS = fat_tree(pods=2, cores={"switches": 2, "groups": 2, "links_per_spine": 1})
"""Three layers, with a core for each spine of a pod: a cut above or below one leaves it a way through another pod."""
RAILS = fat_tree(nics_per_host=2, compute=3)
"""Two NICs for each host, on two leaves: zoned, so that switches repair routes by themselves."""


class Flight:
    """What may be on the wires of a fabric: all that hosts may have sent since it was at rest, wherever it may be."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.ends: Counter[End] = Counter()
        self.on_wires: set[State] = set()
        self.meet("the first plan")

    def sent(self) -> Iterator[State]:
        """Yield what hosts send: one of each leaf to all others, for where a packet goes hangs on its leaf alone."""
        seen = set()
        for source in self.play.fabric.nics:
            place = self.play.fabric.leaf_of(source), is_storage(source)
            if place not in seen:
                seen.add(place)
                yield from ((source.port, Packet(source.ip, other.ip)) for other in self._others(source))

    def _others(self, source: Nic) -> Iterator[Nic]:
        return (nic for nic in self.play.fabric.nics if nic.node != source.node)

    def rest(self) -> None:
        """Let all that is on the wires arrive before anything else changes."""
        self.on_wires.clear()
        self.meet("at rest")

    def meet(self, why: str) -> None:
        """Let all that is on a wire, and all that is sent, go on by rules and links as they are now.

        It may be anywhere on its way when they change again.
        """
        known: set[State] = set()
        for state in [*self.on_wires, *self.sent()]:
            self._go_on(state, known, why)
        self.on_wires = known

    def _go_on(self, first: State, known: set[State], why: str) -> None:
        """Follow a packet's ways, depth first: a state that comes again on one way is a loop."""
        way: dict[State, Iterator[State | End]] = {}
        if first not in known:
            way[first] = self.play.fake.steps(*first)
        while way:
            state = next(reversed(way))
            step = next(way[state], None)
            if step is None:
                known.add(state)
                del way[state]
            elif isinstance(step, End):
                self.ends[step] += 1
                assert step not in (End.SILENT, End.MISDELIVERED), f"{why}: {step.value}: {self._in_words(way)}"
            else:
                assert step not in way, f"{why}: it loops: {self._in_words(way)} {step[0]}"
                if step not in known:
                    way[step] = self.play.fake.steps(*step)

    def _in_words(self, way: dict[State, Iterator[State | End]]) -> str:
        path = " ".join(str(port) for port, _ in way)
        return f"{next(reversed(way))[1]} over {path}; down: {self.play.down}; {self.play.routing.name}"


def cut_and_repair(play: Play, link: Link) -> None:
    """Cut a link and let it return, with packets in flight at every change of rules: only those on its wire may end."""
    draw = random.Random(str(link))
    flight = Flight(play)
    for state in ("cut", "back"):
        play.fake.down ^= {link}
        flight.meet(f"{link} {state}")
        for _ in play.converge(draw=draw):
            flight.meet(f"{link} {state}, while rules change")
        assert flight.ends.keys() <= {End.DELIVERED, End.ON_A_DEAD_WIRE}, f"{link} {state}: {flight.ends}"


@pytest.mark.parametrize("repair", [Repair.FAST_FAILOVER, Repair.REROUTE])
@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
def test_a_cut_and_a_return_take_only_what_is_on_the_cut_wire(policy: Policy, repair: Repair) -> None:
    """By one link at a time; whatever is on another wire meets every state that comes after, and arrives."""
    for link in (link for link in BORDER.links if link.tier is not Tier.ACCESS):
        cut_and_repair(Play(BORDER, Routing(policy=policy, repair=repair)), link)


@pytest.mark.parametrize("policy", [STATIC, ECMP], ids=str)
def test_nor_does_rerouting_between_levels_lose_or_loop_anything_else(policy: Policy) -> None:
    for link in (link for link in LEVELS.links if link.tier is not Tier.ACCESS):
        cut_and_repair(Play(LEVELS, Routing(policy=policy, repair=Repair.REROUTE)), link)


def play_sequence(
    seed: int, fabrics: Sequence[Fabric] = FABRICS, routings: Sequence[Routing] = ROUTINGS
) -> Counter[End]:
    """Play a random sequence of failures and returns with packets in flight, and return how they ended."""
    draw = random.Random(seed)
    play = Play(draw.choice(fabrics), routings[seed % len(routings)])
    flight = Flight(play)
    for event in range(EVENTS):
        change_links(draw, play)
        flight.meet(f"seed {seed}, event {event}")
        for number, _ in enumerate(play.converge(draw=draw)):
            flight.meet(f"seed {seed}, event {event}, change {number}")
            if draw.random() < 0.02:
                change_links(draw, play)  # In the midst of an update, which is then given up for a new one.
                flight.meet(f"seed {seed}, event {event}, links change again")
                break
        if draw.random() < 0.5:
            flight.rest()
    return flight.ends


def play_sequences(seeds: range) -> None:
    started_s, ends = time.monotonic(), Counter[End]()
    for seed in seeds:
        ends += play_sequence(seed)
    told = ", ".join(f"{count:,} {end.value}" for end, count in ends.items())
    print(f"{len(seeds)} sequences with packets in flight: {told}; {time.monotonic() - started_s:.0f} s")
    assert ends[End.DELIVERED] > 500 * len(seeds)


def test_no_packet_in_flight_between_levels_loops_or_vanishes() -> None:
    routings = [routing for routing in ROUTINGS if routing.repair is Repair.REROUTE]
    ends = sum((play_sequence(seed, [LEVELS], routings) for seed in range(3 * QUICK_SEQUENCES)), Counter[End]())
    print(ends)
    assert ends[End.DELIVERED] > 100 * QUICK_SEQUENCES


def test_no_packet_in_flight_between_rails_loops_or_vanishes() -> None:
    ends = sum((play_sequence(seed, [RAILS]) for seed in range(QUICK_SEQUENCES)), Counter[End]())
    print(ends)
    assert ends[End.DELIVERED] > 100 * QUICK_SEQUENCES


def test_after_any_failures_between_levels_what_has_a_way_is_delivered() -> None:
    for seed in range(QUICK_SEQUENCES):
        draw = random.Random(seed)
        play = Play(LEVELS, Routing(policy=draw.choice([STATIC, ECMP]), repair=Repair.REROUTE))
        for event in range(EVENTS):
            change_links(draw, play)
            for _ in play.converge():
                pass
            play.verify_reach(f"seed {seed}, event {event}")


def test_no_packet_in_flight_loops_or_vanishes() -> None:
    play_sequences(range(QUICK_SEQUENCES))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_no_packet_in_flight_loops_or_vanishes_in_a_thousand_sequences(part: int) -> None:
    count = SEQUENCES // 10
    play_sequences(range(part * count, (part + 1) * count))
