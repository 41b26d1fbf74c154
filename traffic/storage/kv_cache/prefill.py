"""The time to the first token: what computing a prefix takes, and what reading it takes instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traffic.storage.kv_cache.models import Model


@dataclass(frozen=True)
class Prefill:
    """A request's prefill on a server that computes ``flops_per_s`` and reads from its cache at ``read_Bps``.

    ``cached``: tokens of the prompt that are in the cache. Reading and computing do not slow each other down.
    """

    model: Model
    tokens: int
    cached: int
    flops_per_s: float
    read_Bps: float  # noqa: N815 - a unit
    bytes_per_value: int = 2

    @property
    def compute_s(self) -> float:
        """The time to compute what is not in the cache."""
        return self.model.prefill_flops(self.tokens, self.cached) / self.flops_per_s

    @property
    def compute_all_s(self) -> float:
        """The time to compute all of it."""
        return self.model.prefill_flops(self.tokens) / self.flops_per_s

    @property
    def read_s(self) -> float:
        """The time to read what is in the cache."""
        return self.cached * self.model.bytes_per_token(self.bytes_per_value) / self.read_Bps

    @property
    def whole_s(self) -> float:
        """The time to the first token if all is read, and then the rest is computed."""
        return self.read_s + self.compute_s

    @property
    def layered_s(self) -> float:
        """The time to the first token if a layer is computed as soon as it is read, while the next ones are read: one
        layer's reading, then the slower of both for each further layer, then one layer's computing."""
        read_s, compute_s = self.read_s / self.model.layers, self.compute_s / self.model.layers
        return read_s + (self.model.layers - 1) * max(read_s, compute_s) + compute_s

    @property
    def saved_s(self) -> float:
        """How much sooner the first token comes, layer by layer; below 0 where computing is faster than reading."""
        return self.compute_all_s - self.layered_s


def computed_at(began_s: float, read_s: Sequence[float], compute_s: float) -> float:
    """Return when a prefill has computed its last layer. ``read_s``: when each layer of what is in the cache had been
    read, in the order in which they are computed; a layer takes its part of ``compute_s``. With nothing to read, it
    computes from ``began_s`` on; what is read as a whole before is a single layer."""
    if not read_s:
        return began_s + compute_s
    done_s = began_s
    for one in read_s:
        done_s = max(done_s, one) + compute_s / len(read_s)
    return done_s


def break_even_read_Bps(model: Model, cached: int, flops_per_s: float, bytes_per_value: int = 2) -> float:  # noqa: N802
    """Return the read rate at which reading a prompt that is in the cache whole takes as long as computing it."""
    compute_s = model.prefill_flops(cached) / flops_per_s
    return cached * model.bytes_per_token(bytes_per_value) / compute_s
