from __future__ import annotations

from typing import Any

import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from topologies.load import load_fabric
from traffic.storage.kv_cache.config import KvCacheConfig, RequestsConfig, ServingConfig, Value
from traffic.storage.kv_cache.kinds import KV_CACHE

FABRIC = load_fabric("fire_flyer_2_small")


def config_of(**parts: Any) -> KvCacheConfig:
    return checked(KvCacheConfig, parts, "test")


def test_bytes_are_the_models_by_what_a_number_takes() -> None:
    assert ServingConfig().block_bytes == 35_979_264
    assert ServingConfig(value=Value.FP8).block_bytes == 35_979_264 // 2
    assert ServingConfig(model="llama_3.1_70b").block_bytes == 167_772_160
    assert ServingConfig(scale=1000).layer_bytes == 589
    assert ServingConfig(scale=1000).block_bytes == 61 * 589


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"serving": {"model": "gpt"}}, "'gpt' is unknown; choose one of deepseek_v3"),
        ({"serving": {"scale": 600_000}}, "serving.scale: 600000 leaves nothing of a layer of 589824 B; lower it"),
        ({"blocks": {"cold": 1_000_000}}, "blocks.cold: .* chunks, more than 1,000,000; lower it"),
        ({"blocks": {"cold": 5, "capacity": 4}}, "blocks.cold: 5 exceeds capacity 4; lower it"),
        ({"storage": {"dataloader": {"depth": 3}}}, "storage.dataloader: clients of a KV cache play no such load"),
        ({"storage": {"checkpoint": {"share": 1.0}}}, "storage.checkpoint: clients of a KV cache play no such load"),
        ({"storage": {"chunk_io": {}}}, "storage.chunk_io: clients of a KV cache play no such load; leave it out"),
        ({"requests": {"instances": 101}}, r"requests: 101,000 requests \(count x instances\)"),
        ({"requests": {"first": 1000}}, "requests.first: 1000, and 1000 are generated; lower it"),
    ],
)
def test_what_is_no_cache_is_named(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(**parts)


def test_what_a_config_was_read_as_can_be_read_again() -> None:
    config = config_of(requests={"trace": "synthetic_first300", "first": 5})
    assert KvCacheConfig.model_validate(config.model_dump(mode="json")) == config


def test_a_trace_that_is_not_there_is_named_before_a_run() -> None:
    faults = list(KV_CACHE.faults(config_of(requests={"trace": "/nowhere.jsonl"}), FABRIC))
    assert len(faults) == 1
    assert "/nowhere.jsonl: cannot be read" in faults[0]
    assert list(KV_CACHE.faults(config_of(requests={"trace": "synthetic_first300"}), FABRIC)) == []
    faults = list(KV_CACHE.faults(config_of(requests={"trace": "synthetic_first300", "first": 400}), FABRIC))
    assert "a trace that has 0 to 299" in faults[0]
    assert RequestsConfig().trace is None
