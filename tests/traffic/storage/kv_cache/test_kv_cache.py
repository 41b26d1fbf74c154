from __future__ import annotations

import os
from pathlib import Path

import pytest

from traffic.storage.kv_cache.cache import CacheTotals, PrefixCache, totals
from traffic.storage.kv_cache.trace import TRACES, Request, TraceConfig, generate, read_trace


def trace(name: str) -> list[Request]:
    return read_trace(TRACES / f"{name}_first300.jsonl")


def run(requests: list[Request], capacity: int | None = None, ttl_s: float | None = None) -> CacheTotals:
    return totals(map(PrefixCache(capacity, ttl_s).serve, requests))


@pytest.mark.parametrize(
    ("name", "unique", "hits", "tokens"),
    [("conversation", 7814, 676, 345_966), ("synthetic", 7352, 369, 187_951)],
)
def test_hits_of_mooncakes_excerpts_without_a_limit(name: str, unique: int, hits: int, tokens: int) -> None:
    """Exact: the counts of the first 300 requests of its traces, by themselves."""
    found = run(trace(name))
    assert (found.hit_blocks, found.hit_tokens, found.written) == (hits, tokens, unique)
    assert (found.evicted, found.expired) == (0, 0)


def hits_by_stack_distance(requests: list[Request], capacities: list[int]) -> list[int]:
    """The same by one list of all blocks, the latest used first (Mattson et al., 1970): a block is in every cache that
    is larger than its place in the list."""
    used: dict[int, int] = {}
    clock = 0
    hits = [0] * len(capacities)
    for request in requests:
        newest_first = sorted(used, key=lambda block: -used[block])
        places = {block: place for place, block in enumerate(newest_first)}
        for which, capacity in enumerate(capacities):
            for block in request.blocks:
                if places.get(block, capacity) >= capacity:
                    break
                hits[which] += 1
        for block in request.blocks:
            clock += 1
            used[block] = clock
    return hits


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_hits_of_a_small_cache_are_those_of_stack_distances(name: str) -> None:
    capacities = [300, 1000, 2500, 5000, 8000]
    expected = hits_by_stack_distance(trace(name), capacities)
    assert [run(trace(name), capacity).hit_blocks for capacity in capacities] == expected
    assert expected[0] < expected[-1]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("conversation", {1000: 299, 2500: 315, 5000: 464}), ("synthetic", {1000: 145, 2500: 301, 5000: 369})],
)
def test_lru_counts_of_mooncakes_excerpts(name: str, counts: dict[int, int]) -> None:
    assert {capacity: run(trace(name), capacity).hit_blocks for capacity in counts} == counts


WHOLE = os.environ.get("MOONCAKE_TRACES", "")
"""A folder with conversation_trace.jsonl and synthetic_trace.jsonl of Mooncake's FAST25-release/traces."""


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="MOONCAKE_TRACES names no folder with Mooncake's whole traces")
@pytest.mark.parametrize(
    ("name", "blocks", "hits"),
    [
        ("conversation", 288_500, {None: 105_710, 50_000: 102_290, 30_000: 93_967, 10_000: 60_921, 1000: 12_831}),
        ("synthetic", 121_877, {None: 77_953, 50_000: 77_953, 30_000: 76_077, 10_000: 51_614, 1000: 10_050}),
    ],
)
def test_lru_counts_of_mooncakes_whole_traces(name: str, blocks: int, hits: dict[int | None, int]) -> None:
    requests = read_trace(Path(WHOLE) / f"{name}_trace.jsonl")
    assert sum(len(one.blocks) for one in requests) == blocks
    assert {capacity: run(requests, capacity).hit_blocks for capacity in hits} == hits


def test_what_is_written_and_not_removed_is_there() -> None:
    requests = list(generate(TraceConfig(requests=400), seed=2))
    for capacity, ttl_s in ((None, None), (500, None), (None, 20.0), (800, 20.0)):
        cache = PrefixCache(capacity, ttl_s)
        found = totals(map(cache.serve, requests))
        assert found.written - found.evicted - found.expired == len(cache)
        assert (found.evicted > 0) == (capacity is not None)
        assert (found.expired > 0) == (ttl_s is not None)
        assert len(cache) <= (capacity or len(cache))


def test_blocks_that_are_not_used_for_their_time_are_gone() -> None:
    cache = PrefixCache(ttl_s=10)
    assert cache.serve(Request(0, 1024, 1, (1, 2))).expired == ()
    assert cache.serve(Request(9, 512, 1, (1,))).hit_blocks == 1
    found = cache.serve(Request(10, 1024, 1, (1, 2)))
    assert (found.expired, found.hit_blocks, found.written) == ((2,), 1, (2,))


def by_definition(requests: list[Request], ttl_s: float) -> int:
    last: dict[int, float] = {}
    hits = 0
    for request in requests:
        for block in request.blocks:
            if block not in last or request.at_s - last[block] >= ttl_s:
                break
            hits += 1
        last |= dict.fromkeys(request.blocks, request.at_s)
    return hits


@pytest.mark.parametrize("ttl_s", [1, 7.5, 30, 1000])
def test_hits_with_a_time_to_live_are_those_of_its_definition(ttl_s: float) -> None:
    assert run(trace("conversation"), ttl_s=ttl_s).hit_blocks == by_definition(trace("conversation"), ttl_s)


def test_a_block_behind_the_first_that_is_missing_is_neither_found_nor_written_anew() -> None:
    cache = PrefixCache(capacity=2)
    cache.serve(Request(0, 1536, 1, (1, 2, 3)))
    found = cache.serve(Request(1, 1536, 1, (1, 2, 3)))
    assert (found.hit_blocks, found.written, found.evicted) == (0, (1,), (1,))


def test_looking_up_changes_nothing() -> None:
    cache = PrefixCache(capacity=2)
    cache.serve(Request(0, 1024, 1, (1, 2)))
    assert cache.lookup(Request(1, 700, 1, (1, 9))) == 1
    assert cache.serve(Request(2, 512, 1, (3,))).evicted == (1,), "the look-up of 1 did not count as a use"


@pytest.mark.parametrize("limits", [(0, None), (None, 0), (None, float("nan"))])
def test_limits_that_are_none_are_named(limits: tuple[int | None, float | None]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        PrefixCache(*limits)


def test_no_requests_have_no_share() -> None:
    assert totals([]) == CacheTotals()
    assert CacheTotals().hit_share != CacheTotals().hit_share
