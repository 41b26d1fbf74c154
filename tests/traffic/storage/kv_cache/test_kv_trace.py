from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from fabric.errors import ConfigError
from traffic.storage.kv_cache.trace import BLOCK_TOKENS, TRACES, Request, TraceConfig, generate, parse_trace, read_trace


@pytest.mark.parametrize(
    ("name", "span_s", "blocks", "tokens"),
    [("conversation", 102.0, 8490, 4_269_971), ("synthetic", 86.79, 7721, 3_853_165)],
)
def test_mooncakes_traces_are_read(name: str, span_s: float, blocks: int, tokens: int) -> None:
    path = TRACES / f"{name}_first300.jsonl"
    requests = read_trace(path)
    assert len(requests) == 300
    assert requests[-1].at_s - requests[0].at_s == pytest.approx(span_s, abs=0.005)
    assert sum(len(one.blocks) for one in requests) == blocks
    assert sum(one.input_tokens for one in requests) == tokens
    assert [json.loads(one.line) for one in requests] == [json.loads(line) for line in path.read_text().splitlines()]


def line(**changed: object) -> str:
    return json.dumps({"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]} | changed)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["{"], "line 1: no JSON"),
        (["[1]"], r"a JSON object is expected, here is \[1\]"),
        (['{"timestamp": 0}'], "input_length, output_length, hash_ids missing"),
        ([line(), line(hash_ids=[1])], "line 2: 1 hash_ids for input_length 600; there must be one for each 512"),
        ([line(hash_ids=[1, "2"])], "hash_ids is not a list of integers"),
        ([line(input_length=0, hash_ids=[])], "input_length 0 is not a number from 1"),
        ([line(output_length=2.5)], "output_length 2.5 is not a number"),
        ([line(timestamp=-1)], "timestamp -1 is not a number"),
        ([line(timestamp=float("nan"))], "timestamp nan is not a number"),
        ([line(), line(timestamp=4)], "line 2: timestamp 4 is before that of the line above, 5"),
        ([""], "it has no request"),
    ],
)
def test_what_is_no_trace_is_named(lines: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as error:
        parse_trace(lines, "my.jsonl")
    assert str(error.value).startswith("my.jsonl: ")
    assert error.value.exit_code == 2


def test_several_faults_are_named_at_once_and_not_thousands() -> None:
    with pytest.raises(ConfigError) as error:
        parse_trace(["{"] * 1000, "my.jsonl")
    assert len(error.value.faults) == 20


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.jsonl: cannot be read"):
        read_trace(tmp_path / "gone.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "bytes")


def test_a_generated_trace_is_one_that_can_be_read() -> None:
    requests = list(generate(TraceConfig(), seed=1))
    assert parse_trace([one.line for one in requests], "generated") == requests
    assert list(generate(TraceConfig(), seed=1)) == requests
    assert list(generate(TraceConfig(), seed=2)) != requests


def test_a_generated_trace_has_the_means_that_were_asked_for() -> None:
    requests = list(generate(TraceConfig(requests=4000, continuing=0, prompt_tokens=0, rate=5), seed=1))
    mean = sum(one.input_tokens for one in requests) / len(requests)
    assert mean == pytest.approx(6000, rel=0.05)
    assert requests[-1].at_s == pytest.approx(4000 / 5, rel=0.05)
    assert sum(one.output_tokens for one in requests) / len(requests) == pytest.approx(350, rel=0.05)
    assert len({block for one in requests for block in one.blocks}) == sum(len(one.blocks) for one in requests)


def test_conversations_go_on_with_whole_blocks_and_end_at_the_models_context() -> None:
    config = TraceConfig(requests=500, continuing=1, recent=1, prompts=1, most_input=40_000, prompt_tokens=1100)
    requests = list(generate(config, seed=3))
    assert all(one.input_tokens <= 40_000 for one in requests)
    begun = 0
    for before, after in itertools.pairwise(requests):
        kept = before.blocks[: before.input_tokens // BLOCK_TOKENS]
        begins_anew = after.blocks[: len(kept)] != kept
        begun += begins_anew
        assert after.blocks[:2] == requests[0].blocks[:2], "the whole blocks of the common prompt"
        assert begins_anew or after.input_tokens > before.input_tokens + before.output_tokens
    assert 0 < begun < 400


def test_tokens_of_a_prefix_end_with_the_input() -> None:
    request = Request(0, 600, 1, (0, 1))
    assert [request.tokens_of(blocks) for blocks in range(3)] == [0, 512, 600]
