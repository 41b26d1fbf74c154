"""Computing of parts of layers: in seconds if they are known, else in FLOPs."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.work.generators.options import Compute as ComputeOptions
from traffic.work.generators.orders import ALL, INPUTS, WEIGHTS
from traffic.work.models.shapes import Part
from traffic.work.operations import Compute


@dataclass(frozen=True)
class Costs:
    """``share``: which part of a sample's FLOPs one rank computes, in micro-batches; ``flops_per_s``: None if that is
    not known; ``backward``, ``weights``: a backward pass, and what of it makes gradients of weights, as multiples of a
    forward pass; ``recompute``: whether a backward pass has a forward pass in it."""

    share: float
    flops_per_s: float | None
    backward: float
    weights: float
    update_s: float
    recompute: bool = False

    def times(self, backward: bool, of: str) -> float:
        """Return a pass as a multiple of a forward pass; ``of``: which gradients it makes."""
        if not backward:
            return 1.0
        return {ALL: self.backward, INPUTS: self.backward - self.weights, WEIGHTS: self.weights}[of]

    def forward(self, part: Part) -> float:
        """Return the FLOPs of a part's forward pass over a micro-batch on one rank."""
        return part.flops * self.share

    def operation(self, flops: float, name: str, after: tuple[int, ...]) -> Compute:
        """Return a piece of computing on the stream that all computing is on."""
        seconds = flops / self.flops_per_s if self.flops_per_s else None if flops else 0.0
        return Compute(duration_s=seconds, flops=flops, name=name, after=after, stream="compute")


def costs_of(options: ComputeOptions, model_flops: float, samples: int, ranks_of_sample: int) -> Costs:
    """Return what computing costs. ``model_flops``: of a forward pass over a sample; ``samples``: of a micro-batch;
    ``ranks_of_sample``: ranks that share a stage's work on it."""
    share = samples / ranks_of_sample
    speed = options.flops_per_s
    if options.forward:
        speed = model_flops * share / options.forward
    return Costs(share, speed, options.backward, options.weights, options.update, options.recompute)
