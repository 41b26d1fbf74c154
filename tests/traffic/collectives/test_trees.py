"""The trees of HFReduce: spanning, balanced, and crossing zones once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crossings import crossing_pairs
from traffic.collectives.trees import DoubleTree, RankTree, double_binary_tree, sent_fractions, zone_aware_double_tree

RANKS = range(2, 301)
ZONE_SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def assert_spanning(tree: RankTree) -> None:
    assert sum(parent is None for parent in tree.parent) == 1
    reached, waiting = set(), [tree.root]
    while waiting:
        rank = waiting.pop()
        assert rank not in reached
        reached.add(rank)
        waiting += tree.children[rank]
    assert reached == set(range(tree.ranks))


def inner_in_both(trees: DoubleTree) -> int:
    return sum(all(tree.children[rank] for tree in trees) for rank in range(trees[0].ranks))


def zones_of(sizes: Sequence[int]) -> list[int]:
    return [zone for zone, size in enumerate(sizes) for _ in range(size)]


def test_double_binary_tree_of_14_is_the_one_drawn_in_nccl() -> None:
    first, second = double_binary_tree(14)
    assert first.children[0] == (8,)
    assert first.children[8] == (4, 12)
    assert first.children[12] == (10, 13)
    assert first.children[10] == (9, 11)
    assert first.children[4] == (2, 6)
    assert second == RankTree(tuple(None if p is None else 13 - p for p in reversed(first.parent)))


def test_double_binary_tree_of_13_shifts_the_second_tree_by_one() -> None:
    first, second = double_binary_tree(13)
    assert second.root == 1
    assert all(second.parent[(rank + 1) % 13] == (parent + 1) % 13 for rank, parent in first.edges())


def test_double_binary_tree_spans_all_ranks_and_none_sends_more_than_twice_the_size() -> None:
    for ranks in RANKS:
        trees = double_binary_tree(ranks)
        for tree in trees:
            assert_spanning(tree)
            assert tree.depth <= ranks.bit_length(), ranks
        sent = sent_fractions(trees)
        assert max(sent) <= 2, ranks
        assert sum(sent) == 2 * (ranks - 1), ranks
        assert inner_in_both(trees) <= ranks % 2, ranks


def test_zone_aware_tree_of_two_even_zones_is_at_most_one_edge_deeper_than_the_plain_one() -> None:
    for ranks in RANKS:
        zones = [0] * ((ranks + 1) // 2) + [1] * (ranks // 2)
        plain, aware = double_binary_tree(ranks), zone_aware_double_tree(zones)
        assert max(tree.depth for tree in aware) <= max(tree.depth for tree in plain) + 1, ranks


@settings(max_examples=150)
@given(sizes=ZONE_SIZES, order=st.integers(0, 2**32))
def test_zone_aware_tree_has_one_pair_a_border_and_keeps_to_twice_the_size(sizes: list[int], order: int) -> None:
    zones = zones_of(sizes)
    random.Random(order).shuffle(zones)
    trees = zone_aware_double_tree(zones)
    for tree in trees:
        assert_spanning(tree)
    crossing = crossing_pairs(trees, zones)
    assert {tuple(sorted((zones[a], zones[b]))) for a, b in crossing} == {(z, z + 1) for z in range(len(sizes) - 1)}
    assert len(crossing) == len(sizes) - 1
    assert max(sent_fractions(trees)) <= 2


@settings(max_examples=100)
@given(sizes=st.tuples(st.integers(1, 80), st.integers(1, 80)))
def test_only_the_two_gateways_are_inner_in_both_trees_of_two_zones(sizes: tuple[int, int]) -> None:
    trees = zone_aware_double_tree(zones_of(sizes))
    assert inner_in_both(trees) <= 2
    assert trees[0].root == trees[1].root == 0


def test_plain_tree_over_two_zones_has_more_than_one_crossing_pair() -> None:
    zones = [0] * 12 + [1] * 12
    assert len(crossing_pairs(double_binary_tree(24), zones)) == 8
    assert crossing_pairs(zone_aware_double_tree(zones), zones) == {(0, 12)}


def test_single_zone_gives_the_plain_tree() -> None:
    assert zone_aware_double_tree([3] * 9) == double_binary_tree(9)


def test_tree_without_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="a tree of 0 ranks: has no root"):
        double_binary_tree(0)
