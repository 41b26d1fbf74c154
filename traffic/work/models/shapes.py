"""What models are made of: layers in the order of the forward pass, their parts, and the tensors of each part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Share(Enum):
    """How ranks share a tensor: all have it whole, or tensor-parallel ranks parts of it, or experts are spread."""

    WHOLE = "whole"
    TENSOR = "tensor"
    EXPERT = "expert"


class Role(Enum):
    """What a part is, which decides what is communicated around it."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    HEAD = "head"
    MODULE = "module"


@dataclass(frozen=True)
class Tensor:
    """A parameter tensor. ``elements``: how many numbers it has over all ranks."""

    name: str
    elements: int
    share: Share = Share.WHOLE


@dataclass(frozen=True)
class Part:
    """What a layer computes between two communications.

    ``tensors``: in the order of PyTorch's ``parameters()``. ``flops``: of a forward pass over one sample, which is a
    sequence or an image.
    """

    role: Role
    tensors: tuple[Tensor, ...]
    flops: float

    @property
    def parameters(self) -> int:
        """Numbers in its tensors."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True)
class Layer:
    """A layer. ``tensors``: those of its parts, in PyTorch's order, which need not be that of the parts."""

    name: str
    parts: tuple[Part, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its tensors, part by part."""
        return tuple(tensor for part in self.parts for tensor in part.tensors)

    @property
    def parameters(self) -> int:
        """Numbers in its tensors."""
        return sum(part.parameters for part in self.parts)

    @property
    def flops(self) -> float:
        """Of a forward pass over one sample."""
        return sum(part.flops for part in self.parts)
