"""Which link is to blame for the pairs that fell short."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.validation.blame import PairResult, blame, blame_fault, unexplained
from app.validation.rounds import nic_pairs
from controllers.planning.paths import planned_path
from controllers.planning.routes import plan_static_routes
from fabric.model.network import Port
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
_PLAN = plan_static_routes(SMALL)
PATHS = {pair: planned_path(_PLAN, SMALL, *pair) for pair in nic_pairs(SMALL)}
USED = sorted({port for path in PATHS.values() for port in path})


def results(slow: set[Port]) -> tuple[list[PairResult], list[PairResult]]:
    """Return short and good pairs where some ports are slow."""
    short: list[PairResult] = []
    good: list[PairResult] = []
    for pair, path in PATHS.items():
        is_short = not slow.isdisjoint(path)
        (short if is_short else good).append(PairResult(pair, path, 5e6 if is_short else 19e6, 19e6))
    return short, good


def test_nothing_short_nothing_blamed() -> None:
    short, good = results(set())
    assert list(blame(short, good)) == []


@given(st.sampled_from(USED))
def test_one_slow_link_is_the_only_one_blamed(slow: Port) -> None:
    short, good = results({slow})
    (found,) = blame(short, good)
    assert slow in found.ports
    assert set(found.pairs) == set(short)
    # What is blamed beside it cannot be told apart: every pair that uses the one uses the other.
    for port in found.ports:
        assert {pair for pair, path in PATHS.items() if port in path} >= {one.pair for one in short}


@settings(max_examples=50)
@given(st.sets(st.sampled_from(USED), min_size=2, max_size=3))
def test_of_several_slow_links_each_short_pair_is_explained_once(slow: set[Port]) -> None:
    short, good = results(slow)
    found = list(blame(short, good))
    assert Counter(one.pair for each in found for one in each.pairs) == Counter(one.pair for one in short)
    assert all(each.ports for each in found)
    cleared = {port for one in good for port in one.path}
    assert all(cleared.isdisjoint(each.ports) for each in found)


def test_a_short_pair_whose_links_all_carry_good_pairs_is_told_without_a_link() -> None:
    _, good = results(set())
    odd = PairResult(good[0].pair, good[0].path, 1e6, 19e6)
    (found,) = blame([odd], good[1:])
    assert found.ports == ()
    fault = blame_fault(SMALL, found)
    assert fault.name == f"no one link: {odd}"
    assert fault.expected == "19 Mbit/s"


def test_what_known_faults_explain_is_left_out() -> None:
    slow = next(port for port in USED if port.node.is_switch and SMALL.peer(port).node.is_switch)
    short, _ = results({slow})
    assert unexplained(short, [slow]) == []
    assert unexplained(short, []) == short


def test_a_blame_names_the_link_with_both_ends_and_the_worst_pair() -> None:
    slow = next(port for port in USED if str(port) == "z0l00:6")
    (found,) = blame(*results({slow}))
    fault = blame_fault(SMALL, found)
    assert fault.name == "z0l00:6--z0s01:1"
    assert set(map(str, fault.ports)) == {"z0l00:6", "z0s01:1"}
    assert "5 Mbit/s" in fault.measured


@pytest.mark.parametrize("count", [1, 3])
def test_a_blame_counts_its_pairs(count: int) -> None:
    short, good = results({next(port for port in USED if str(port) == "z0l00:6")})
    kept = short[:count]
    (first, *_) = blame(kept, good)
    text = blame_fault(SMALL, first).measured
    assert text.startswith("the pair that uses it" if len(first.pairs) == 1 else f"{len(first.pairs)} pairs")
