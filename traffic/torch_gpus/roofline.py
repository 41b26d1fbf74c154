"""How long an operator takes on a GPU: the longer of computing at peak and of moving its bytes, and a launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from traffic.torch_gpus.catalogue import Gpu

_OF_SIXTEEN_BITS = frozenset(("bf16", "fp16"))


@dataclass(frozen=True)
class Work:
    """What an operator does. ``flop``: floating-point operations, None where no formula counts them; ``type``: of the
    elements that it computes with; ``memory_bytes``: read and written; ``host_bytes``: to or from the host."""

    flop: int | None = None
    type: str = "fp32"
    memory_bytes: int = 0
    host_bytes: int = 0


def duration_ns(gpu: Gpu, work: Work) -> int:
    """Return how long an operator takes, launch included."""
    computing = 0.0 if work.flop is None else work.flop / peak_flops(gpu, work.type)
    longest = max(computing, work.memory_bytes / gpu.memory_Bps, work.host_bytes / gpu.host_Bps)
    return gpu.launch_ns + math.ceil(longest * 1e9)


def peak_flops(gpu: Gpu, type_: str) -> float:
    """Return the peak of a type; where the GPU has none for it, that of the next larger one that it has."""
    name = "bf16" if type_ in _OF_SIXTEEN_BITS else type_
    if name in gpu.peak_flops:
        return gpu.peak_flops[name]
    return gpu.peak_flops["bf16" if name == "fp8" else "fp32"]
