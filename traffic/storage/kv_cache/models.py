"""Models: what a token takes in the cache, and what a prefill computes.

Of grouped-query attention, keys and values of every layer are kept; of DeepSeek's latent attention, what both are made
of and the part of the key that has its position. Sizes are those of the published configs.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.errors import ConfigError
from traffic.storage.kv_cache.trace import BLOCK_TOKENS


@dataclass(frozen=True)
class Model:
    """A model, as far as its cache and its prefill go.

    ``values_per_token``: numbers kept for a token in each layer; ``parameters``: those that a token passes, without
    experts that it is not sent to; ``heads``, ``key_dim``, ``value_dim``: of attention as it is computed.
    """

    name: str
    layers: int
    values_per_token: int
    parameters: float
    heads: int
    key_dim: int
    value_dim: int

    def bytes_per_token(self, bytes_per_value: int = 2) -> int:
        """Return the bytes of a token in all layers; a value has 2 (bfloat16) or 1 (FP8)."""
        return self.layers * self.values_per_token * bytes_per_value

    def block_bytes(self, bytes_per_value: int = 2) -> int:
        """Return the bytes of a block of 512 tokens."""
        return BLOCK_TOKENS * self.bytes_per_token(bytes_per_value)

    def layer_bytes(self, bytes_per_value: int = 2) -> int:
        """Return the bytes of one layer of a block."""
        return self.block_bytes(bytes_per_value) // self.layers

    def prefill_flops(self, tokens: int, cached: int = 0) -> float:
        """Return the floating-point operations to prefill ``tokens``, of which the first ``cached`` are there already.

        Two for each parameter that a token passes, and in each layer and head two for each number of a key and of a
        value, for each token that is looked back at. Raises ValueError if more are there than are wanted.
        """
        if not 0 <= cached <= tokens:
            raise ValueError(f"{self.name}: {cached} cached tokens of {tokens}; there can be 0 to {tokens}")
        new = tokens - cached
        looked_at = new * cached + new * (new + 1) // 2
        return 2 * self.parameters * new + 2.0 * self.layers * self.heads * (self.key_dim + self.value_dim) * looked_at


def _grouped(name: str, layers: int, parameters: float, heads: int, kv_heads: int, dim: int = 128) -> Model:
    return Model(name, layers, 2 * kv_heads * dim, parameters, heads, dim, dim)


MODELS = {
    model.name: model
    for model in (
        # kv_lora_rank 512 and qk_rope_head_dim 64; keys of 128 + 64 as they are computed; 37 of 671 billion are active.
        Model("deepseek_v3", 61, 512 + 64, 37e9, 128, 128 + 64, 128),
        _grouped("llama_3.1_8b", 32, 8.0e9, 32, 8),
        _grouped("llama_3.1_70b", 80, 70.6e9, 64, 8),
        _grouped("llama_3.1_405b", 126, 405e9, 128, 8),
    )
}
"""By name."""


def model_named(name: str) -> Model:
    """Return a model. Raises ConfigError, naming those that there are."""
    if name not in MODELS:
        raise ConfigError("kv_cache", [f"model {name!r} is unknown; choose one of {', '.join(MODELS)}"])
    return MODELS[name]
