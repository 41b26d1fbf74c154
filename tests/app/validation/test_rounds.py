"""Who sends to whom and when, and what that should reach."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.validation.expectations import busiest_flows, fair_goodputs_bps, goodput_bps
from app.validation.load import TurnsOfFlows, in_turns, load_that_fits
from app.validation.rounds import Path, nic_pairs, rounds, sample
from controllers.planning.paths import planned_path
from controllers.planning.plan import RoutePlan
from controllers.planning.routes import plan_static_routes
from fabric.model.identity import Role
from fabric.model.network import Port
from fabric.model.patterns import NicPair, all_to_all
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric
from traffic.metrics import payload_fraction

SMALL = load_fabric("fire_flyer_2_small", AT_20_MBIT)
GOODPUT_BPS = SMALL.nic_rate_bps * payload_fraction(SMALL.mtu_bytes)
INFINITE = float("inf")


@cache
def plan() -> RoutePlan:
    return plan_static_routes(SMALL)


def path(pair: NicPair) -> Path:
    return planned_path(plan(), SMALL, *pair)


def test_every_two_nics_that_may_reach_each_other_are_a_pair_once() -> None:
    pairs = nic_pairs(SMALL)
    unordered = [frozenset(pair) for pair in pairs]
    assert len(set(unordered)) == len(unordered) == 24 * 23 // 2 + 2 * 4 * 12 + 2 * 4 * 3 // 2
    for one, other in combinations(SMALL.nics, 2):
        crosses = one.zone != other.zone and Role.STORAGE in (one.node.role, other.node.role)
        assert (frozenset((one, other)) in unordered) is (one.node != other.node and not crosses)


def test_every_nic_sends_and_receives() -> None:
    pairs = nic_pairs(SMALL)
    sends, receives = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    for nic in SMALL.nics:
        assert abs(sends[nic] - receives[nic]) <= (sends[nic] + receives[nic]) / 3


@pytest.mark.parametrize("budget", [INFINITE, 10.0, 0.5])
def test_rounds_hold_every_pair_once_and_no_link_twice(budget: float) -> None:
    pairs = nic_pairs(SMALL)
    made = rounds(pairs, path, lambda path: len(path) - 1.0, budget)
    assert Counter(pair for one in made for pair, _ in one.pairs) == Counter(pairs)
    for one in made:
        ports = [port for _, path in one.pairs for port in path]
        assert len(ports) == len(set(ports))
        assert len(one.pairs) == 1 or sum(len(path) - 1 for _, path in one.pairs) <= budget


def test_rounds_are_few() -> None:
    """Of the 144 pairs that cross zones, a round has room for 4 each way: 18 rounds at the least; NICs' own pairs ask
    for 23, and no greedy packing reaches that."""
    made = rounds(nic_pairs(SMALL), path, lambda path: 0.0, INFINITE)
    assert 18 <= len(made) <= 36


def test_a_sample_is_what_it_says_and_the_same_again() -> None:
    pairs = nic_pairs(SMALL)
    assert sample(pairs, len(pairs), 1) == pairs
    some = sample(pairs, 50, 1)
    assert some == sample(pairs, 50, 1) != sample(pairs, 50, 2)
    assert len(set(some)) == 50
    assert set(some) < set(pairs)


def test_a_flow_alone_gets_its_slowest_link_less_headers() -> None:
    slow = load_fabric("fire_flyer_2_small", [*AT_20_MBIT, "inter_zone.rate=5 Mbit/s"])
    one, near, far = (
        slow.nics_of[slow.computes[0]][0],
        slow.nics_of[slow.computes[1]][0],
        slow.nics_of[slow.computes[-1]][0],
    )
    routes = plan_static_routes(slow)
    assert goodput_bps(slow, planned_path(routes, slow, one, near)) == pytest.approx(GOODPUT_BPS)
    assert goodput_bps(slow, planned_path(routes, slow, one, far)) == pytest.approx(GOODPUT_BPS / 4)


def test_flows_that_share_a_link_share_it_and_others_take_the_rest() -> None:
    """Two flows on a: 1/2 each; the third shares b with one of them and gets what that one leaves; one alone: all."""
    a, b, c = (link.a for link in SMALL.links[:3])
    assert fair_goodputs_bps(SMALL, [(a,), (a, b), (b,), (c,)]) == pytest.approx(
        [GOODPUT_BPS / 2, GOODPUT_BPS / 2, GOODPUT_BPS / 2, GOODPUT_BPS]
    )
    assert fair_goodputs_bps(SMALL, [(a,), (a,), (a, b), (b,)]) == pytest.approx(
        [GOODPUT_BPS / 3, GOODPUT_BPS / 3, GOODPUT_BPS / 3, GOODPUT_BPS * 2 / 3]
    )


@settings(max_examples=30)
@given(st.lists(st.sampled_from(nic_pairs(SMALL)), min_size=1, max_size=40, unique=True))
def test_fair_shares_fill_no_link_beyond_its_rate_and_no_flow_could_have_more(pairs: list[NicPair]) -> None:
    """Max-min fair: every flow crosses a full link on which none has more than it."""
    paths = [path(pair) for pair in pairs]
    shares = fair_goodputs_bps(SMALL, paths)
    used: Counter[Port] = Counter()
    most: dict[Port, float] = {}
    for share, ports in zip(shares, paths, strict=True):
        for port in ports:
            used[port] += share  # type: ignore[assignment]
            most[port] = max(most.get(port, 0.0), share)
    assert max(used.values()) <= GOODPUT_BPS * (1 + 1e-6)
    for share, ports in zip(shares, paths, strict=True):
        assert any(used[port] >= GOODPUT_BPS * (1 - 1e-6) and share >= most[port] * (1 - 1e-6) for port in ports)


def test_the_busiest_link_of_all_to_all_is_known() -> None:
    nics = [nic for nic in SMALL.nics if nic.node.role is Role.COMPUTE]
    flows, _ = all_to_all(nics, 10_000)
    assert busiest_flows([path(flow) for flow in flows]) == 144 // 4


# What sends at once ---------------------------------------------------------------------------------------------------

FRAME_BYTES = SMALL.frame_bytes


def load(queue_bytes: int, budget: float = INFINITE) -> TurnsOfFlows:
    nics = [nic for node in SMALL.computes for nic in SMALL.nics_of[node]]
    return load_that_fits(nics, SMALL, path, queue_bytes, budget)


def test_all_send_to_all_at_once_where_queues_have_room() -> None:
    found = load(36 * FRAME_BYTES)  # So many flows are on the busiest link.
    assert found.each == 23
    assert [len(turn) for turn in found.turns] == [24 * 23]


@pytest.mark.parametrize(("frames", "budget"), [(35, INFINITE), (20, INFINITE), (5, INFINITE), (5, 30_000)])
def test_queues_have_room_for_a_frame_of_each_flow_that_shares_a_link(frames: int, budget: float) -> None:
    found = load(frames * FRAME_BYTES, budget)
    assert 1 < found.each < 23
    for turn in found.turns:
        assert busiest_flows([path(flow) for flow in turn]) <= frames
    assert Counter(source for turn in found.turns for source, _ in turn) == dict.fromkeys(
        (nic for node in SMALL.computes for nic in SMALL.nics_of[node]), found.each
    )


def test_where_queues_have_room_for_nothing_each_sends_to_one_other() -> None:
    assert load(FRAME_BYTES - 1).each == 1


def test_senders_take_turns_where_a_machine_cannot_switch_all_at_once() -> None:
    (flows,) = load(1 << 21).turns
    assert in_turns(flows, SMALL, path, INFINITE) == [list(flows)]
    turns = in_turns(flows, SMALL, path, 30_000)
    assert 1 < len(turns) < 8
    assert Counter(flow for turn in turns for flow in turn) == Counter(flows)
    for turn in turns:
        assert len({source for source, _ in turn}) >= 24 // len(turns)
        shares = fair_goodputs_bps(SMALL, [path(flow) for flow in turn])
        passed_bits = sum(share * (len(path(flow)) - 1) for share, flow in zip(shares, turn, strict=True))
        assert 1.5 * passed_bits / 8 / FRAME_BYTES <= 30_000
    assert len(in_turns(flows, SMALL, path, 1.0)) == 24
