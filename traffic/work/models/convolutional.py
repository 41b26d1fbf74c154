"""A network of convolutions and linear layers, module by module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fabric.config import Strict
from traffic.work.models.shapes import Layer, Part, Role, Tensor

Size = Annotated[int, Field(gt=0, le=10**7)]


class Module(Strict):
    """A convolution or a linear layer, with the norm behind it."""

    name: str = Field(min_length=1, max_length=100, description="Its name, which messages show.")
    convolution: tuple[Size, Size, Size] | None = Field(
        None, strict=False, description="Channels in, channels out, and edge of its kernel."
    )
    linear: tuple[Size, Size] | None = Field(None, strict=False, description="Numbers in and out.")
    output: Size = Field(1, description="Edge of what it puts out, in pixels.")
    biases: bool = Field(True, description="Whether it has a bias.")
    norm: bool = Field(False, description="Whether a batch norm follows, which has a weight and a bias.")

    @model_validator(mode="after")
    def _is_one(self) -> Module:
        if (self.convolution is None) == (self.linear is None):
            raise ValueError(f"module {self.name!r}: is a convolution or linear; give one of both")
        return self

    def layer(self) -> Layer:
        """Return it as a layer."""
        return Layer(self.name, (Part(Role.MODULE, tuple(self._tensors()), 2.0 * self._weights * self.output**2),))

    @property
    def _weights(self) -> int:
        if self.convolution:
            ins, outs, edge = self.convolution
            return ins * outs * edge * edge
        assert self.linear
        return self.linear[0] * self.linear[1]

    def _tensors(self) -> Iterator[Tensor]:
        outs = (self.convolution or self.linear or (0, 0))[1]
        yield Tensor(f"{self.name}.weight", self._weights)
        if self.biases:
            yield Tensor(f"{self.name}.bias", outs)
        if self.norm:
            yield Tensor(f"{self.name}.norm.weight", outs)
            yield Tensor(f"{self.name}.norm.bias", outs)


class Convolutional(Strict):
    """A network of modules, in the order of PyTorch's ``parameters()``."""

    family: Literal["convolutional"]
    source: str = Field(description="Where its shapes are from.")
    modules: tuple[Module, ...] = Field(
        strict=False, min_length=1, max_length=10_000, description="Its modules, in the order of parameters()."
    )

    def all_layers(self) -> tuple[Layer, ...]:
        """Return the modules as layers."""
        return tuple(module.layer() for module in self.modules)
