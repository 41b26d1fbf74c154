"""Tensors of a checkpoint, and which bytes of them a node holds.

A tensor is its bytes in row-major order. A node holds ranges of them: all (data parallel), a slice of rows (tensor
parallel along the first axis), an even part of all (FSDP, ZeRO). Ranges that several nodes hold are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fabric.errors import ConfigError

_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor by its name, the name of its type, and its shape; ``()`` is one value."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in _BYTES:
            raise ConfigError(f"tensor {self.name}", [f"dtype: {self.dtype!r} is not one of {', '.join(_BYTES)}"])
        if any(size < 1 for size in self.shape):
            raise ConfigError(f"tensor {self.name}", [f"shape: {self.shape}; each size is 1 or more"])

    @property
    def item_bytes(self) -> int:
        """Bytes of one value."""
        return _BYTES[self.dtype]

    @property
    def size_bytes(self) -> int:
        """Bytes of all values."""
        return prod(self.shape) * self.item_bytes


@dataclass(frozen=True, order=True)
class Range:
    """Bytes of a tensor, from ``begin`` up to ``end``, which is not one of them."""

    tensor: str
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.begin


Held = Mapping[int, Sequence[Range]]
"""By the number of a node: what it holds, or wants."""


def replicated(tensors: Sequence[Tensor], nodes: int) -> Held:
    """Return that each node holds all of all tensors."""
    return {node: [Range(one.name, 0, one.size_bytes) for one in tensors] for node in range(nodes)}


def sharded(tensors: Sequence[Tensor], nodes: int) -> Held:
    """Return that each node holds an even part of each tensor, in whole values, the first ones a value more; a node
    without a value of a tensor holds nothing of it."""
    held: dict[int, list[Range]] = {node: [] for node in range(nodes)}
    for one in tensors:
        values = one.size_bytes // one.item_bytes
        for node in range(nodes):
            begin, end = (values * (node + more) // nodes * one.item_bytes for more in (0, 1))
            if end > begin:
                held[node].append(Range(one.name, begin, end))
    return held


def verify(tensors: Sequence[Tensor], held: Held) -> None:
    """Raise ConfigError for two tensors of a name, and for ranges that are not of a tensor, naming all."""
    sizes = {one.name: one.size_bytes for one in tensors}
    faults = []
    if len(sizes) != len(tensors):
        names = [one.name for one in tensors]
        faults.append(f"tensors: {', '.join(sorted({n for n in names if names.count(n) > 1}))} is there more than once")
    for node, ranges in held.items():
        for one in ranges:
            if one.tensor not in sizes:
                faults.append(f"node {node}: unknown tensor {one.tensor!r}")
            elif not 0 <= one.begin < one.end <= sizes[one.tensor]:
                faults.append(
                    f"node {node}: {one.tensor} has bytes 0 to {sizes[one.tensor]}, not {one.begin} to {one.end}"
                )
    if faults:
        raise ConfigError("checkpoint", faults)
