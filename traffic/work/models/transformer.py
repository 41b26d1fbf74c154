"""A transformer by its shapes.

FLOPs are those of matrix products, a multiplication and an addition being two, and attention counts all pairs of
tokens, as Megatron-LM's formula does (:func:`traffic.work.models.theory.gpt_flops`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from fabric.config import Strict
from traffic.work.models.shapes import Layer, Part, Role, Share, Tensor

MOST = 10**7
"""Of a dimension: no model has more of anything."""


class LatentAttention(Strict):
    """Multi-head latent attention: queries, keys and values come of vectors of a low rank."""

    query_rank: int = Field(gt=0, le=MOST, description="Size of the vector that queries are made of.")
    key_value_rank: int = Field(gt=0, le=MOST, description="Size of the vector that keys and values are made of.")
    rope_size: int = Field(gt=0, le=MOST, description="Part of a query and a key that has the position in it.")
    value_size: int = Field(gt=0, le=MOST, description="Size of a head's value.")


class Attention(Strict):
    """Attention of a layer."""

    heads: int = Field(gt=0, le=MOST, description="Heads.")
    key_value_heads: int | None = Field(None, gt=0, le=MOST, description="Heads of keys and values; None: as many.")
    head_size: int = Field(gt=0, le=MOST, description="Size of a head's query and key, apart from rope_size.")
    biases: bool = Field(False, description="Whether its products have biases.")
    latent: LatentAttention | None = Field(None, description="Multi-head latent attention, if it is that.")

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def key_value_size(self) -> int:
        """Numbers in a token's keys and values, which context parallelism passes on."""
        if self.latent:
            return self.latent.key_value_rank + self.latent.rope_size
        return 2 * self.groups * self.head_size


class Mlp(Strict):
    """The feed-forward part of a layer."""

    inner: int = Field(gt=0, le=MOST, description="Size of its inner vector.")
    gated: bool = Field(True, description="Three matrices (SwiGLU); else two.")
    biases: bool = Field(False, description="Whether its products have biases.")


class Experts(Strict):
    """Experts in place of the feed-forward part."""

    routed: int = Field(gt=1, le=MOST, description="Experts; each token takes some of them.")
    shared: int = Field(0, ge=0, le=MOST, description="Experts that all tokens take.")
    inner: int = Field(gt=0, le=MOST, description="Size of an expert's inner vector.")
    top: int = Field(gt=0, le=MOST, description="Routed experts that a token takes.")
    dense_layers: int = Field(0, ge=0, le=MOST, description="First layers that have a feed-forward part instead.")
    groups: int = Field(
        1, gt=0, le=MOST, description="Groups that experts are in; a token takes those of a few groups."
    )
    top_groups: int = Field(1, gt=0, le=MOST, description="Groups that a token takes experts of.")

    @model_validator(mode="after")
    def _fits(self) -> Experts:
        if self.routed % self.groups:
            raise ValueError(f"routed: {self.routed} experts are not in {self.groups} equal groups; change groups")
        if self.top_groups > self.groups:
            raise ValueError(f"top_groups: {self.top_groups} of {self.groups} groups; take at most groups")
        if self.top > self.top_groups * (self.routed // self.groups):
            limit = self.top_groups * (self.routed // self.groups)
            raise ValueError(f"top: {self.top} experts, but top_groups have {limit}; take at most these")
        return self


class Transformer(Strict):
    """A decoder of text."""

    family: Literal["transformer"]
    source: str = Field(description="Where its shapes are from.")
    layers: int = Field(gt=0, le=10_000, description="Layers.")
    hidden: int = Field(gt=0, le=MOST, description="Size of a token's vector between layers.")
    sequence: int = Field(gt=0, le=10**8, description="Tokens of a sequence.")
    vocabulary: int = Field(gt=0, le=MOST, description="Tokens that there are.")
    attention: Attention = Field(description="Attention of each layer.")
    mlp: Mlp = Field(description="Feed-forward part of each layer without experts.")
    experts: Experts | None = Field(None, description="Experts, if it has them.")
    norm: Literal["rms", "layer"] = Field("rms", description="layer: norms have a bias, too.")
    positions: int = Field(0, ge=0, le=10**8, description="Positions that are learned.")
    tied: bool = Field(False, description="Whether the head has the embedding's matrix.")

    def all_layers(self) -> tuple[Layer, ...]:
        """Return the embedding, the layers and the head."""
        blocks = (
            Layer(f"layers.{number}", (self._attention(f"layers.{number}"), self._feed_forward(number)))
            for number in range(self.layers)
        )
        return (self._embedding(), *blocks, self._head())

    def with_sequence(self, tokens: int) -> Transformer:
        """Return it for sequences of another length."""
        return self.model_copy(update={"sequence": tokens})

    def _embedding(self) -> Layer:
        tensors = [Tensor("embedding.weight", self.vocabulary * self.hidden, Share.TENSOR)]
        if self.positions:
            tensors.append(Tensor("positions.weight", self.positions * self.hidden))
        return Layer("embedding", (Part(Role.EMBEDDING, tuple(tensors), 0.0),))

    def _head(self) -> Layer:
        tensors = [*self._norm("norm", self.hidden)]
        if not self.tied:
            tensors.append(Tensor("head.weight", self.vocabulary * self.hidden, Share.TENSOR))
        flops = 2.0 * self.sequence * self.vocabulary * self.hidden
        return Layer("head", (Part(Role.HEAD, tuple(tensors), flops),))

    def _norm(self, name: str, size: int) -> Iterator[Tensor]:
        yield Tensor(f"{name}.weight", size)
        if self.norm == "layer":
            yield Tensor(f"{name}.bias", size)

    def _attention(self, name: str) -> Part:
        tensors = [*self._norm(f"{name}.attention_norm", self.hidden)]
        products = [*(self._latent(name) if self.attention.latent else self._projections(name))]
        tensors += products
        one = self.attention
        key = one.head_size + (one.latent.rope_size if one.latent else 0)
        value = one.latent.value_size if one.latent else one.head_size
        pairs = 2.0 * self.sequence * self.sequence * one.heads * (key + value)
        return Part(Role.ATTENTION, tuple(tensors), 2.0 * self.sequence * _of_products(products) + pairs)

    def _projections(self, name: str) -> Iterator[Tensor]:
        one = self.attention
        inner, outer = one.heads * one.head_size, one.key_value_size
        yield from self._linear(f"{name}.attention.qkv", self.hidden, inner + outer, one.biases)
        yield from self._linear(f"{name}.attention.out", inner, self.hidden, one.biases, Share.WHOLE)

    def _latent(self, name: str) -> Iterator[Tensor]:
        one = self.attention
        assert one.latent
        latent, heads = one.latent, one.heads
        yield Tensor(f"{name}.attention.query_down.weight", self.hidden * latent.query_rank)
        yield Tensor(f"{name}.attention.query_norm.weight", latent.query_rank)
        query = latent.query_rank * heads * (one.head_size + latent.rope_size)
        yield Tensor(f"{name}.attention.query_up.weight", query, Share.TENSOR)
        down = self.hidden * (latent.key_value_rank + latent.rope_size)
        yield Tensor(f"{name}.attention.key_value_down.weight", down)
        yield Tensor(f"{name}.attention.key_value_norm.weight", latent.key_value_rank)
        up = latent.key_value_rank * heads * (one.head_size + latent.value_size)
        yield Tensor(f"{name}.attention.key_value_up.weight", up, Share.TENSOR)
        yield Tensor(f"{name}.attention.out.weight", heads * latent.value_size * self.hidden, Share.TENSOR)

    def _linear(self, name: str, ins: int, outs: int, biases: bool, of_bias: Share = Share.TENSOR) -> Iterator[Tensor]:
        """Yield the tensors of a product. The bias of one whose inputs are split, the output's, is whole on all."""
        yield Tensor(f"{name}.weight", ins * outs, Share.TENSOR)
        if biases:
            yield Tensor(f"{name}.bias", outs, of_bias)

    def _feed_forward(self, number: int) -> Part:
        name = f"layers.{number}"
        tensors = [*self._norm(f"{name}.mlp_norm", self.hidden)]
        experts = self.experts
        if experts is None or number < experts.dense_layers:
            inner = [*self._mlp(f"{name}.mlp")]
            return Part(Role.MLP, (*tensors, *inner), 2.0 * self.sequence * _of_products(inner))
        router = Tensor(f"{name}.router.weight", experts.routed * self.hidden)
        one = 3 * self.hidden * experts.inner
        routed = [Tensor(f"{name}.experts.{expert}.weight", one, Share.EXPERT) for expert in range(experts.routed)]
        shared = [Tensor(f"{name}.shared.{expert}.weight", one) for expert in range(experts.shared)]
        active = router.elements + (experts.top + experts.shared) * one
        return Part(Role.EXPERTS, (*tensors, router, *routed, *shared), 2.0 * self.sequence * active)

    def _mlp(self, name: str) -> Iterator[Tensor]:
        outs = self.mlp.inner * (2 if self.mlp.gated else 1)
        yield from self._linear(f"{name}.up", self.hidden, outs, self.mlp.biases)
        yield from self._linear(f"{name}.down", self.mlp.inner, self.hidden, self.mlp.biases, Share.WHOLE)


def _of_products(tensors: list[Tensor]) -> int:
    """Return the numbers in matrices: each takes part in one multiplication and one addition per token."""
    return sum(one.elements for one in tensors if one.name.endswith(".weight") and "norm" not in one.name)
