from __future__ import annotations

from tests.traffic.storage.kv_cache.test_kv_cache import trace
from traffic.storage.kv_cache.cache import PrefixCache, totals
from traffic.storage.kv_cache.files import BlockFiles
from traffic.storage.kv_cache.trace import BLOCK_TOKENS, Request


def asks(*blocks: int, at_s: float = 0.0) -> Request:
    return Request(at_s, len(blocks) * BLOCK_TOKENS, 1, blocks)


def index(capacity: int | None = None, ttl_s: float | None = None) -> BlockFiles:
    return BlockFiles(PrefixCache(capacity, ttl_s), 100)


def test_a_block_is_found_once_its_file_is_written() -> None:
    files = index()
    first = files.begin(asks(1, 2), 0)
    assert (first.files, first.in_theory, [file.number for file in first.missing]) == ((), 0, [100, 101])
    files.written(first.missing[0], is_whole=True)
    second = files.begin(asks(1, 2, 3), 1)
    assert [file.block for file in second.files] == [1]
    assert (second.in_theory, [file.block for file in second.missing]) == (2, [3]), "2 is written already, not anew"


def test_a_block_that_could_not_be_written_is_written_by_the_next_that_asks() -> None:
    files = index()
    (file,) = files.begin(asks(1), 0).missing
    files.written(file, is_whole=False)
    (again,) = files.begin(asks(1), 1).missing
    assert (again.block, again.number) == (1, 101)


def test_a_file_that_is_removed_is_garbage_once_nobody_uses_it() -> None:
    files = index(capacity=2)
    files.hold(1, 0)
    files.hold(2, 0)
    reading = files.begin(asks(1), 0)
    files.begin(asks(3, 4), 5.0)
    assert (files.removed, files.garbage) == (2, 2)
    assert files.due(4.9, 10) == [], "they were removed later"
    assert [file.block for file in files.due(5.0, 10)] == [2], "1 is read"
    files.end(reading)
    assert [file.block for file in files.due(5.0, 10)] == [1]
    assert files.due(5.0, 10) == []


def test_some_files_at_a_time_the_first_removed_first() -> None:
    files = index(ttl_s=10)
    for block in range(5):
        files.hold(block, 0)
    files.expire(7.0, trace_s=9.9)
    assert files.removed == 0
    files.expire(7.0, trace_s=10)
    assert [[file.block for file in files.due(7.0, 2)] for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_a_file_that_is_removed_while_it_is_written_is_never_found_again() -> None:
    files = index(capacity=1)
    (file,) = files.begin(asks(1), 0).missing
    (other,) = files.begin(asks(2), 1).missing
    assert (file.removed_s, files.due(1, 9)) == (1, [])
    files.written(file, is_whole=False)
    files.written(other, is_whole=True)
    assert files.due(1, 9) == [file]
    assert files.begin(asks(1), 2).files == ()


def test_where_writes_take_no_time_hits_are_lrus() -> None:
    """The exact counts of the excerpts, by the index that clients go by."""
    for name, capacity, count in (("conversation", None, 676), ("conversation", 2500, 315), ("synthetic", 1000, 145)):
        files, hits = index(capacity), 0
        for request in trace(name):
            found = files.begin(request, request.at_s)
            assert len(found.files) == found.in_theory
            hits += len(found.files)
            for file in found.missing:
                files.written(file, is_whole=True)
            files.end(found)
            for file in files.due(request.at_s, 10_000):
                assert not file.is_in_use
        assert hits == count == totals(map(PrefixCache(capacity).serve, trace(name))).hit_blocks
