from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fabric.stalls.congestion_trees import CongestionTree, PortLane, RootKind, forest, trees_of


def lane(name: str) -> PortLane:
    return PortLane(name, "lossless")


def waits(**holders: str) -> dict[PortLane, dict[PortLane, int]]:
    """``a="b c"``: a waits for b and c, 100 bytes each."""
    return {lane(name): {lane(other): 100 for other in others.split()} for name, others in holders.items()}


def depths(tree: CongestionTree) -> dict[str, int]:
    return {one.port: depth for one, depth in tree.depth_of.items()}


def test_a_tree_leads_from_the_busy_port_back_to_the_farthest_that_waits() -> None:
    (tree,) = forest(waits(nic="up", up="down", down="full", other="down"))
    assert (tree.root, tree.kind) == (lane("full"), RootKind.BUSY)
    assert depths(tree) == {"full": 0, "down": 1, "up": 2, "other": 2, "nic": 3}
    assert (tree.depth, len(tree.ports), tree.waiting_bytes) == (3, 5, 400)


def test_a_lane_that_waits_for_two_roots_is_in_both_trees() -> None:
    found = forest(waits(nic="up", up="one two"))
    assert {tree.root.port: depths(tree) for tree in found} == {
        "one": {"one": 0, "up": 1, "nic": 2},
        "two": {"two": 0, "up": 1, "nic": 2},
    }
    assert [tree.waiting_bytes for tree in found] == [200, 200]  # Of what up waits for, each has its own.
    assert [tree.root.port for tree in trees_of(found)[lane("nic")]] == ["one", "two"]


def test_the_largest_tree_comes_first_and_a_port_with_two_lanes_counts_once() -> None:
    graph = waits(x="first", a="b", b="second")
    graph[PortLane("a", "nccl")] = {lane("b"): 5}
    large, small = forest(graph)
    assert (large.root.port, len(large.depth_of), len(large.ports)) == ("second", 4, 3)
    assert small.root.port == "first"


def test_lanes_that_wait_for_each_other_alone_are_the_root_of_what_waits_for_them() -> None:
    (tree,) = forest(waits(c="a", a="b", b="c", nic="up", up="b"))
    assert (tree.root, tree.kind, tree.root_ports) == (lane("a"), RootKind.CYCLE, frozenset("abc"))
    assert depths(tree) == {"a": 0, "b": 0, "c": 0, "up": 1, "nic": 2}


def test_a_cycle_with_a_way_out_is_part_of_the_tree_that_it_leads_to() -> None:
    (tree,) = forest(waits(a="b", b="c", c="a full"))
    assert (tree.root.port, tree.kind, tree.depth) == ("full", RootKind.BUSY, 3)


def test_what_waits_for_a_cycle_and_for_a_busy_port_is_in_both_trees() -> None:
    found = {tree.kind: depths(tree) for tree in forest(waits(a="b", b="a", nic="a full"))}
    assert found == {RootKind.CYCLE: {"a": 0, "b": 0, "nic": 1}, RootKind.BUSY: {"full": 0, "nic": 1}}


def test_two_cycles_are_two_roots_and_a_lane_before_both_is_in_neither_cycle() -> None:
    found = forest(waits(a="b", b="a", c="d", d="c", nic="a c"))
    assert [(tree.root.port, tree.root_ports) for tree in found] == [("a", frozenset("ab")), ("c", frozenset("cd"))]
    assert [depths(tree)["nic"] for tree in found] == [1, 1]


def test_a_lane_that_stood_still_for_what_nobody_saw_is_a_root_of_its_own_kind() -> None:
    (tree,) = forest(waits(nic="up", up=""))
    assert (tree.root.port, tree.kind, depths(tree)) == ("up", RootKind.UNSEEN, {"up": 0, "nic": 1})


def test_where_nothing_waits_there_is_no_tree() -> None:
    assert forest({}) == []


NAMES = st.sampled_from("abcdefgh")
GRAPHS = st.dictionaries(NAMES, st.sets(NAMES, max_size=4), max_size=8).map(
    lambda graph: {lane(name): {lane(other): 1 for other in sorted(others)} for name, others in graph.items()}
)


def reached(start: PortLane, graph: Mapping[PortLane, Mapping[PortLane, int]]) -> set[PortLane]:
    """What a lane waits for, itself included, by growing until nothing is added."""
    found = {start}
    while more := {holder for one in found for holder in graph.get(one, {})} - found:
        found |= more
    return found


@given(GRAPHS)
def test_every_lane_that_stands_still_is_in_exactly_the_trees_of_the_roots_that_it_reaches(
    graph: dict[PortLane, dict[PortLane, int]],
) -> None:
    trees = forest(graph)
    inside = trees_of(trees)
    for one in graph:
        expected = {tree.root for tree in trees if tree.root in reached(one, graph)}
        assert {tree.root for tree in inside[one]} == expected
        assert expected


@given(GRAPHS)
def test_a_root_waits_for_nobody_but_its_own_cycle(graph: dict[PortLane, dict[PortLane, int]]) -> None:
    for tree in forest(graph):
        cycle = {one for one, depth in tree.depth_of.items() if depth == 0}
        assert tree.root == min(cycle)
        assert (tree.kind is RootKind.BUSY) == (tree.root not in graph)
        if tree.kind is RootKind.CYCLE:
            assert all(reached(one, graph) == cycle for one in cycle)
        else:
            assert cycle == {tree.root}
            assert not graph.get(tree.root)


@given(GRAPHS)
def test_depth_is_the_number_of_waits_to_the_root_and_waits_stay_in_the_tree(
    graph: dict[PortLane, dict[PortLane, int]],
) -> None:
    for tree in forest(graph):
        for one, depth in tree.depth_of.items():
            ahead = [tree.depth_of[holder] for holder in graph.get(one, {}) if holder in tree.depth_of]
            assert depth == 0 or depth == min(ahead) + 1
        assert all(set(holders) <= set(tree.depth_of) for holders in tree.waits.values())
