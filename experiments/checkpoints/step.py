"""A data-parallel step of training: layers whose gradients are added up over all ranks while others are computed."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, TimeS
from traffic.work.checks import require_playable
from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig
from traffic.work.operations import CollectiveCall, Compute

_COMPUTE, _SEND = "compute", "gradients"
Time = Annotated[TimeS, Field(gt=0, le=3600)]


class StepConfig(PlayConfig):
    """A step as DDP has it, of a rank on each node, which stands for all of its GPUs."""

    ranks: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=4, description="Nodes that train; they are the first ones, and write the checkpoints."
    )
    layers: Annotated[int, Field(ge=1, le=1000)] = Field(default=8, description="Layers, each with an allreduce.")
    gradients: Annotated[SizeBytes, Field(ge=1024, le=1 << 34)] = Field(
        default=2 << 20, description="Bytes of gradients of a step, of all layers."
    )
    forward: Time = Field(default=200e-6, description="Computing forward.")
    backward: Time = Field(default=400e-6, description="Computing backward, all layers.")
    update: Time = Field(default=50e-6, description="Computing new parameters, once all gradients are there.")

    def loaded(self) -> WorkGraph:
        """Return the graph of a step."""
        return _step(self.ranks, self.layers, self.gradients, (self.forward, self.backward, self.update))


@lru_cache(maxsize=8)
def _step(ranks: int, layers: int, size_bytes: int, times_s: tuple[float, float, float]) -> WorkGraph:
    forward_s, backward_s, update_s = times_s
    each = max(4, size_bytes // layers // 4 * 4)
    work = RankWork()
    work.add(Compute(duration_s=forward_s, stream=_COMPUTE, name="forward"))
    sums = []
    for layer in reversed(range(layers)):
        computed = work.add(Compute(duration_s=backward_s / layers, stream=_COMPUTE, name=f"backward {layer}"))
        call = CollectiveCall(
            collective="allreduce", size_bytes=each, group=ALL_RANKS, after=(computed,), stream=_SEND, name=f"{layer}"
        )
        sums.append(work.add(call))
    work.add(Compute(duration_s=update_s, after=tuple(sums), stream=_COMPUTE, name="update"))
    graph = graph_of(f"a data-parallel step on {ranks} ranks", [work] * ranks)
    require_playable(graph)
    return graph
