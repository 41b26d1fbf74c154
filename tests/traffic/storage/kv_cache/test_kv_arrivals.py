from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fabric.errors import ConfigError
from traffic.storage.kv_cache.arrivals import window_of
from traffic.storage.kv_cache.cache import PrefixCache
from traffic.storage.kv_cache.config import BlocksConfig, RequestsConfig
from traffic.storage.kv_cache.trace import TRACES, Request, path_of, read_trace

KEPT = BlocksConfig()
CONVERSATION = read_trace(TRACES / "conversation_first300.jsonl")


def requests(**keys: object) -> RequestsConfig:
    return RequestsConfig.model_validate({"trace": "conversation_first300", **keys})


def test_a_whole_trace_comes_at_its_own_speed() -> None:
    found = window_of(requests(), KEPT, 1)
    assert [one.request for one in found.arrivals] == CONVERSATION
    assert [one.after_s for one in found.arrivals] == [one.at_s for one in CONVERSATION]
    assert (found.present, found.left_out) == ((), 0)


def test_compression_divides_the_times_between_requests_and_leaves_those_of_the_trace() -> None:
    found = window_of(requests(first=100, count=50, compression=40), KEPT, 1)
    part = CONVERSATION[100:150]
    assert [one.request for one in found.arrivals] == part
    assert [one.number for one in found.arrivals] == list(range(100, 150))
    after_s = [one.after_s for one in found.arrivals]
    assert after_s == pytest.approx([(one.at_s - part[0].at_s) / 40 for one in part])


def test_what_earlier_requests_left_is_there_of_what_the_window_asks_for() -> None:
    """By hand: requests 133 to 218 that find 80 % or more are these six, with 5, 14, 38, 27, 18 and 11 blocks."""
    found = window_of(requests(first=133, count=86, hot=0.8), KEPT, 1)
    assert [one.number for one in found.arrivals] == [133, 137, 166, 180, 201, 218]
    present = {block for block, _ in found.present}
    asked = {block for one in found.arrivals for block in one.request.blocks}
    assert present >= asked & {block for one in CONVERSATION[:133] for block in one.blocks}
    assert present <= asked
    assert found.left_out == 80
    used_s = [at_s for _, at_s in found.present]
    assert used_s == sorted(used_s)
    assert used_s[-1] <= found.began_s


def test_what_requests_that_are_left_out_leave_is_there_too() -> None:
    """The kept requests find what they would have found of the whole trace."""
    found = window_of(requests(hot=0.5), KEPT, 1)
    cache, played = PrefixCache(), PrefixCache()
    for block, used_s in found.present:
        played.hold(block, used_s)
    hits = [cache.serve(one).hit_blocks for one in CONVERSATION]
    assert [played.serve(one.request).hit_blocks for one in found.arrivals] == [
        hits[one.number] for one in found.arrivals
    ]
    assert 10 < len(found.arrivals) == 300 - found.left_out
    assert all(2 * hits[one.number] >= len(one.request.blocks) for one in found.arrivals)


def test_copies_have_blocks_of_their_own_and_begin_later() -> None:
    found = window_of(requests(count=20, instances=3, apart=0.5), KEPT, 1)
    by_copy = [[one for one in found.arrivals if one.instance == copy] for copy in range(3)]
    blocks = [{block for one in copy for block in one.request.blocks} for copy in by_copy]
    assert all(not one & other for one, other in itertools.combinations(blocks, 2))
    assert [{block // 3 for block in one} for one in blocks] == [
        {block for one in CONVERSATION[:20] for block in one.blocks}
    ] * 3
    assert [copy[0].after_s for copy in by_copy] == [0.0, 0.5, 1.0]
    after_s = [one.after_s for one in found.arrivals]
    assert after_s == sorted(after_s)


def test_cold_blocks_expire_evenly_from_the_begin_on() -> None:
    blocks = BlocksConfig(cold=4, ttl=8.0)
    found = window_of(requests(first=133, count=1), blocks, 1)
    cold = [(block, used_s + 8.0 - found.began_s) for block, used_s in found.present if block < 0]
    assert cold == [(-1, 0.0), (-2, pytest.approx(2.0)), (-3, pytest.approx(4.0)), (-4, pytest.approx(6.0))]


def test_without_a_time_to_live_cold_blocks_are_the_first_to_go() -> None:
    found = window_of(requests(first=133, count=1), BlocksConfig(cold=3), 1)
    assert [block for block, _ in found.present][:3] == [-1, -2, -3]
    assert len(found.present) == 3 + 5


def test_rounds_follow_each_other() -> None:
    found = window_of(requests(first=133, count=5), KEPT, 1)
    assert list(found.rounds(40, cycle=False)) == list(found.arrivals)
    twice = list(itertools.islice(found.rounds(40, cycle=True), 10))
    later_s = [b.after_s - a.after_s for a, b in zip(twice[:5], twice[5:], strict=True)]
    assert later_s == pytest.approx([found.round_s / 40] * 5)
    assert found.round_s > found.arrivals[-1].request.at_s - found.began_s


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"first": 300}, "requests 300 to 300 of a trace that has 0 to 299; lower first or count"),
        ({"first": 290, "count": 20}, "requests 290 to 309 of a trace that has 0 to 299"),
        ({"instances": 1000}, "300 requests of 1,000 instances, more than 100,000 together"),
        ({"count": 10, "hot": 1.0}, "requests.hot: no request finds 1 of its blocks; lower it"),
    ],
)
def test_windows_that_are_none_are_named(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        window_of(requests(**keys), KEPT, 1)


def test_traces_are_named_or_at_a_path() -> None:
    assert path_of("conversation_first300") == TRACES / "conversation_first300.jsonl"
    assert path_of("mine.jsonl") == Path("mine.jsonl")
    assert RequestsConfig(trace="mine.jsonl").trace == str(Path("mine.jsonl").absolute())
    assert RequestsConfig(trace="conversation_first300").trace == "conversation_first300"


def test_generated_requests_are_those_of_the_seed() -> None:
    config = RequestsConfig.model_validate({"generate": {"requests": 50}})
    one, same, other = (window_of(config, KEPT, seed) for seed in (1, 1, 2))
    assert one == same != other
    assert isinstance(one.arrivals[0].request, Request)
