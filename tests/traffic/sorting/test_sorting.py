"""The graph of a sort: what it moves, that it ends, and what cannot be sorted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fabric.config import checked
from topologies.load import load_fabric
from traffic.sorting.config import SortConfig, sort_faults
from traffic.sorting.graph import Exchange, SortShape, sort_graph
from traffic.work.checks import require_playable
from traffic.work.files import file_faults, sizes_of
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite
from traffic.work.volumes import moved_by_files

FABRIC = load_fabric("fire_flyer_2_small")
CHUNK = 1 << 16


def shape_of(exchange: Exchange, ranks: int = 3) -> SortShape:
    return SortShape(ranks, 2, 2, CHUNK, exchange, 4, partition_s=0.5, sort_s=0.25)


def config_of(**settings: Any) -> SortConfig:
    return checked(SortConfig, {"ranks": 4, "part": CHUNK, "files": {"chunk_size": CHUNK}, **settings}, "test")


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("exchange", Exchange)
def test_a_sort_ends_and_reads_and_writes_all_data_in_each_of_its_passes(exchange: Exchange, ranks: int) -> None:
    shape = shape_of(exchange, ranks)
    graph = sort_graph(shape)
    require_playable(graph)
    assert list(file_faults(graph, CHUNK)) == []
    for moved in moved_by_files(graph).values():
        assert moved == (shape.passes * shape.node_bytes, shape.passes * shape.node_bytes)
    computed = Counter[int]()
    for rank, _, one in graph.all_operations():
        if isinstance(one, Compute):
            computed[rank] += round(1000 * (one.duration_s or 0))
    assert computed == dict.fromkeys(range(ranks), 1000 * (2 * 0.5 + 2 * 0.25))


def test_each_part_is_written_once_and_read_once_by_the_node_that_sorts_its_partition() -> None:
    shape = shape_of(Exchange.STORAGE)
    graph = sort_graph(shape)
    written, read = Counter[tuple[str, int, int]](), Counter[str]()
    for rank, _, one in graph.all_operations():
        if isinstance(one, FileWrite) and one.path.startswith("/parts"):
            assert one.path.split("/")[2] == str(rank)
            written[one.path, one.offset_bytes, one.size_bytes] += 1
        elif isinstance(one, FileRead) and one.path.startswith("/parts"):
            assert int(one.path.split("/")[3]) // shape.partitions == rank
            assert (one.offset_bytes, one.size_bytes) == (0, sizes_of(graph)[one.path])
            read[one.path] += 1
    assert set(written.values()) == {1}
    assert len(written) == shape.ranks * shape.ranks * shape.partitions * shape.tasks
    assert read == dict.fromkeys({path for path, _, _ in written}, 1)


def test_nobody_sorts_before_all_have_taken_their_data_apart() -> None:
    graph = sort_graph(shape_of(Exchange.STORAGE))
    for operations in graph.operations:
        (met,) = (place for place, one in enumerate(operations) if isinstance(one, CollectiveCall))
        before = {place for place, one in enumerate(operations) if one.name.startswith("part ")}
        assert set(operations[met].after) == before
        fetches = [one for one in operations if one.name.startswith("fetch")]
        assert fetches
        assert all(one.after == (met,) for one in fetches)


def test_from_node_to_node_each_task_is_an_exchange_of_what_it_has_read() -> None:
    shape = shape_of(Exchange.NODES)
    for operations in sort_graph(shape).operations:
        calls = [one for one in operations if isinstance(one, CollectiveCall)]
        assert [(one.collective, one.size_bytes) for one in calls] == [("all_to_all", shape.task_bytes)] * shape.tasks
        sorts = [one for one in operations if one.name.startswith("sort")]
        assert all(len(one.after) == shape.tasks for one in sorts)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"part": 3 * CHUNK // 2}, "part: 96 KiB is not a multiple of files.chunk_size, 64 KiB"),
        ({"ranks": 2000}, "24,000,000 reads and writes; at most 200,000"),
    ],
)
def test_what_cannot_be_sorted_is_told(settings: dict[str, Any], words: str) -> None:
    (fault,) = sort_faults(config_of(**settings), FABRIC)
    assert words in fault


def test_a_sort_needs_storage_and_has_the_storage_that_its_keys_say() -> None:
    (fault,) = sort_faults(config_of(), load_fabric("fire_flyer_2_small", ["storage=0"]))
    assert "has no storage nodes" in fault
    storage = config_of(files={"chunk_size": CHUNK, "replicas": 3, "request_to_send": 5}).files.storage()
    assert (storage.chunk_size, storage.replicas, storage.request_to_send) == (CHUNK, 3, 5)
    assert list(sort_faults(config_of(), FABRIC)) == []
