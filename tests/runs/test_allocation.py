"""Jobs get nodes: next to each other, dealt, at random, and within zones."""

from __future__ import annotations

from collections import Counter

import pytest

from runs.allocation import Allocation, allocate, crossing_zones
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
PER_ZONE = len(SMALL.computes) // 2


@pytest.mark.parametrize("allocation", list(Allocation))
def test_each_job_has_what_it_asks_for_and_no_node_twice(allocation: Allocation) -> None:
    own = str(SMALL.computes[3])
    found = allocate({"a": 5, "b": [own], "c": 3}, SMALL, allocation, seed=7)
    assert [len(found[name]) for name in "abc"] == [5, 1, 3]
    assert [str(node) for node in found["b"]] == [own]
    assert max(Counter(node for nodes in found.values() for node in nodes).values()) == 1


def test_random_is_the_seeds() -> None:
    first, again, other = (allocate({"a": 6}, SMALL, Allocation.RANDOM, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first != allocate({"a": 6}, SMALL, Allocation.PACKED)


def test_jobs_stay_within_a_zone_and_one_crosses() -> None:
    asked = {"wide": PER_ZONE + 1, "left": PER_ZONE - 2}
    found = allocate(asked, SMALL, Allocation.ZONES)
    assert len({node.zone for node in found["left"]}) == 1
    assert Counter(node.zone for node in found["wide"]).most_common()[-1][1] == 1
    assert list(crossing_zones(asked, SMALL)) == []


def test_packed_would_have_crossed_where_zones_do_not() -> None:
    asked = {"a": PER_ZONE - 3, "b": 5}
    packed, zoned = (allocate(asked, SMALL, one) for one in (Allocation.PACKED, Allocation.ZONES))
    assert [len({node.zone for node in found["b"]}) for found in (packed, zoned)] == [2, 1]


def test_two_jobs_that_cross_are_named() -> None:
    three = load_fabric("fire_flyer_2_small", ["zones=3"])  # Of 8 nodes each.
    assert list(crossing_zones({"a": 9, "b": 7, "c": 7}, three)) == []
    assert list(crossing_zones({"a": 6, "b": 5, "c": 5, "d": 4, "e": 4}, three)) == ["d", "e"]
