from __future__ import annotations

import pytest

from fabric.errors import ConfigError
from traffic.storage.kv_cache.models import MODELS, model_named
from traffic.storage.kv_cache.prefill import Prefill, break_even_read_Bps

V3, L70 = MODELS["deepseek_v3"], MODELS["llama_3.1_70b"]


@pytest.mark.parametrize(
    ("name", "token", "block", "layer"),
    [
        ("deepseek_v3", 70_272, 35_979_264, 589_824),
        ("llama_3.1_8b", 131_072, 67_108_864, 2_097_152),
        ("llama_3.1_70b", 327_680, 167_772_160, 2_097_152),
        ("llama_3.1_405b", 516_096, 264_241_152, 2_097_152),
    ],
)
def test_bytes_of_tokens_blocks_and_layers(name: str, token: int, block: int, layer: int) -> None:
    model = model_named(name)
    assert (model.bytes_per_token(), model.block_bytes(), model.layer_bytes()) == (token, block, layer)
    assert model.bytes_per_token(bytes_per_value=1) * 2 == token


def test_an_unknown_model_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"model 'gpt' is unknown; choose one of deepseek_v3, llama_3.1_8b"):
        model_named("gpt")


def test_work_of_a_prefill_is_of_parameters_and_of_all_pairs_of_tokens() -> None:
    pairs = sum(range(1, 101))
    assert V3.prefill_flops(100) == 2 * 37e9 * 100 + 2 * 61 * 128 * (192 + 128) * pairs
    # arXiv 2505.09343, table 2: 250 GFLOPs per token in training at 4,096 tokens, of which a third is the forward pass.
    assert 3 * V3.prefill_flops(4096) / 4096 == pytest.approx(250e9, rel=0.1)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_work_of_two_parts_is_that_of_the_whole(model: object) -> None:
    assert isinstance(model, type(V3))
    whole = model.prefill_flops(8000)
    assert model.prefill_flops(3000) + model.prefill_flops(8000, cached=3000) == pytest.approx(whole)
    assert model.prefill_flops(8000, cached=8000) == 0
    with pytest.raises(ValueError, match="9000 cached tokens of 8000"):
        model.prefill_flops(8000, cached=9000)


def test_time_to_the_first_token() -> None:
    found = Prefill(V3, 8192, 6144, flops_per_s=4e15, read_Bps=40 * 2**30)
    assert found.read_s == pytest.approx(6144 * 70_272 / (40 * 2**30))
    assert found.whole_s == pytest.approx(found.read_s + found.compute_s)
    # Reading is faster here, so all of it but that of the first layer is hidden behind computing.
    assert found.read_s < found.compute_s
    assert found.layered_s == pytest.approx(found.compute_s + found.read_s / 61)
    assert found.saved_s == pytest.approx(found.compute_all_s - found.layered_s)
    assert found.saved_s > 0


def test_reading_that_is_slower_hides_computing() -> None:
    found = Prefill(L70, 8192, 8000, flops_per_s=4e15, read_Bps=1e9)
    assert found.layered_s == pytest.approx(found.read_s + found.compute_s / 80)
    assert found.saved_s < 0, "computing anew is faster than reading at 1 GB/s"


def test_layers_are_read_and_computed_as_a_pipeline() -> None:
    """Against a schedule, layer by layer."""
    for rate in (1e9, 5e10, 1e12):
        found = Prefill(V3, 4096, 2048, flops_per_s=1e15, read_Bps=rate)
        read, done = 0.0, 0.0
        for _ in range(61):
            read += found.read_s / 61
            done = max(read, done) + found.compute_s / 61
        assert found.layered_s == pytest.approx(done)


def test_without_a_cache_nothing_is_saved() -> None:
    found = Prefill(V3, 4096, 0, flops_per_s=1e15, read_Bps=1e10)
    assert found.saved_s == pytest.approx(0)


def test_at_the_break_even_rate_both_take_as_long() -> None:
    rate = break_even_read_Bps(V3, 8192, 4e15)
    found = Prefill(V3, 8192, 8192, flops_per_s=4e15, read_Bps=rate)
    assert found.read_s == pytest.approx(found.compute_all_s)
