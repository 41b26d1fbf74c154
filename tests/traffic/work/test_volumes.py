"""What a step sends and computes, and the short graph that warms it up."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.errors import ConfigError
from traffic.collectives.node_allreduce import NodeAllreduce
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.work.checks import graph_faults
from traffic.work.files import file_faults, sizes_of
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Receive, Send
from traffic.work.schedules import RankPlaces, ScheduleChoice
from traffic.work.volumes import computed_s, moved_by_files, sent_between
from traffic.work.warm_up import COLLECTIVE_BYTES, MESSAGE_BYTES, warm_up_of

APART = ScheduleChoice(4096, RankPlaces((0, 1, 2, 3), (0, 0, 1, 1)))


def call(size_bytes: int, **values: Any) -> CollectiveCall:
    return CollectiveCall(collective="allreduce", size_bytes=size_bytes, group="all", **values)


def test_bytes_between_ranks_are_those_of_messages_and_of_collectives() -> None:
    """Twice a ring of 3/2 S, and rank 1's blocks."""
    rank = (call(4000), call(4000))
    ranks = (
        (*rank, Send(peer=2, size_bytes=7), Send(peer=0, size_bytes=9), Receive(peer=0, size_bytes=9)),
        rank,
        (*rank, Receive(peer=0, size_bytes=7)),
        rank,
    )
    assert dict(sent_between(WorkGraph("g", ranks), APART)) == {
        (0, 1): 12_000,
        (1, 2): 12_000,
        (2, 3): 12_000,
        (3, 0): 12_000,
        (0, 2): 7,
    }


def test_an_all_to_all_v_sends_what_its_ranks_say_and_a_root_is_where_it_is() -> None:
    blocks = [tuple(4 * (source + target) for target in range(4)) for source in range(4)]
    ranks = tuple(
        (CollectiveCall(collective="all_to_all_v", size_bytes=sum(row), group="all", sent_bytes=row),) for row in blocks
    )
    sent = sent_between(WorkGraph("g", ranks), APART)
    assert dict(sent) == {(a, b): 4 * (a + b) for a in range(4) for b in range(4) if a != b}
    broadcast = CollectiveCall(collective="broadcast", size_bytes=8, group="three", root=1)
    graph = WorkGraph("g", ((broadcast,), (), (broadcast,), (broadcast,)), {"three": (0, 2, 3)})
    assert set(sent_between(graph, APART)) == {(2, 3), (3, 0)}


def test_ranks_that_share_a_node_are_known_and_a_layout_that_will_not_do_is_named() -> None:
    places = RankPlaces((0, 0, 1, 1), (0, 0, 0, 0))
    assert places.layout((0, 1, 2, 3)).groups == ((0, 1), (2, 3))
    assert places.layout((1, 2)).groups is None
    uneven = ScheduleChoice(4096, RankPlaces((0, 0, 0, 1), (0, 0, 0, 0)))
    with pytest.raises(ConfigError, match="group all: allreduce: hfreduce is between nodes, and ranks share some"):
        uneven.planned(call(64, algorithm="hfreduce"), (0, 1, 3))
    with pytest.raises(ConfigError, match="group all: allreduce: "):
        uneven.planned(call(64, algorithm="hierarchical"), (0, 1, 2, 3))


def test_hfreduce_over_whole_nodes_is_between_their_leaders() -> None:
    """Of nodes of two GPUs; a rank's place in its node does not matter, and one of each node talks for itself."""
    nodes = ScheduleChoice(4096, RankPlaces((0, 1, 1, 0, 2), (0, 0, 0, 0, 1)), gpus=2)
    planned = nodes.planned(call(64, algorithm="hfreduce"), (0, 1, 2, 3))
    assert isinstance(planned.schedule, NodeAllreduce)
    assert planned.schedule.groups == ((0, 3), (1, 2))
    assert {pair for source, target, _ in planned.flows for pair in (source, target)} == {0, 1}
    assert isinstance(nodes.planned(call(64, algorithm="hfreduce"), (0, 1, 4)).schedule, TreeAllreduce)
    with pytest.raises(ConfigError, match="hfreduce adds up whole nodes of 2 GPUs, and the group has 1 of one; give"):
        nodes.planned(call(64, algorithm="hfreduce"), (0, 1, 3))


def test_all_computing_counts() -> None:
    graph = WorkGraph("g", ((Compute(duration_s=1.0), Compute(duration_s=0.5)), ()))
    assert computed_s(graph) == [1.5, 0]


def test_files_count_by_rank() -> None:
    read = FileRead(path="/a", offset_bytes=0, size_bytes=5)
    graph = WorkGraph("g", ((read, read, FileWrite(path="/a", offset_bytes=0, size_bytes=3)), ()))
    assert moved_by_files(graph) == {0: (10, 3)}
    assert sizes_of(graph) == {"/a": 5}
    assert list(file_faults(graph, 4)) == [
        "rank 0, operation 2 (write of /a): 3 B from 0 on are not whole chunks of 4 B; write these, or change "
        "files.chunk_size"
    ]


def test_what_warms_up_is_short_goes_over_all_connections_and_ends() -> None:
    big = 2**30
    ranks = (
        (Send(peer=1, size_bytes=9), Send(peer=1, size_bytes=big, tag=4), call(big, after=(0,)), call(8, dtype="bf16")),
        (Receive(peer=0, size_bytes=9), Receive(peer=0, size_bytes=big, tag=4), call(big), call(8, dtype="bf16")),
    )
    found = warm_up_of(WorkGraph("g", ranks))
    assert found.operations[0] == (
        Send(peer=1, size_bytes=MESSAGE_BYTES),
        call(COLLECTIVE_BYTES),
        call(8, dtype="bf16"),
    )
    assert list(graph_faults(found)) == []
