"""The keys of ``hfreduce_vs_nccl``: the allreduce, and over how many nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from experiments.hfreduce_vs_nccl.variants import variants
from fabric.config import Strict
from fabric.model.identity import Role
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.units import format_size
from runs.config import QueueingConfig
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks, nodes_by_zone
from traffic.collectives.elements import Dtype
from traffic.collectives.hfreduce import Pipelining
from traffic.collectives.job import CollectiveRanks, ElementsBytes, PieceBytes, piece_faults


class SizesConfig(Strict):
    """What is added up."""

    dtype: Annotated[Dtype, Field(strict=False)] = Field(
        default=Dtype.FP32, description="Type of the elements, in flight and where they are added."
    )
    size: ElementsBytes = Field(
        default=8 * 2**20, description="Bytes that each GPU contributes, over each number of nodes."
    )
    sizes: list[ElementsBytes] = Field(
        default_factory=list,
        description=(
            "Further sizes, played over `sizes_nodes` nodes: they show whether `size` is enough for a steady state."
        ),
    )
    sizes_nodes: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=2, description="Nodes over which `sizes` are played."
    )


class HFReduceVsNcclConfig(QueueingConfig, Pipelining, SizesConfig, OrderedRanks, CollectiveRanks):
    """The allreduce, and over how many nodes."""

    nodes: Annotated[list[Annotated[int, Field(ge=2, le=65_536)]], Field(min_length=1)] = Field(
        default_factory=lambda: [2, 4, 8, 16],
        description="Numbers of nodes to play over. Wall time grows with nodes times size.",
    )
    variants: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None, description="Variants to play, by name. Without it, all that the nodes have."
    )
    steps: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1,
        description="Steps of each variant over each number of nodes, after a short one that opens TCP's windows.",
    )
    slice: PieceBytes = Field(
        default=32 * 1024,
        description="Size of the pieces that NCCL forwards. Smaller fills the ring sooner, and costs more per byte.",
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="GPUs per node, for nodes that are points; others have their own number."
    )
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing in which all variants play."
    )

    @field_validator("nodes", "sizes", "variants")
    @classmethod
    def _verify_once(cls, value: list[Any] | None) -> list[Any] | None:
        twice = sorted({one for one in value or () if (value or []).count(one) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(str, twice))} more than once; name each once")
        return value

    @model_validator(mode="after")
    def _verify_pieces(self) -> HFReduceVsNcclConfig:
        for size in (self.size, *self.sizes):
            for key, value in (("chunk", self.chunk), ("slice", self.slice)):
                if 2 * value > size:
                    raise ValueError(
                        f"{key}: {format_size(value)} is more than the half of {format_size(size)} that a tree "
                        "carries, so nothing would be pipelined; lower it or raise size"
                    )
                for fault in piece_faults(key, value, size):
                    raise ValueError(fault)
        return self

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the steps of a variant take."""
        return PhaseLengths(until="all steps are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        there = {variant.name for variant in variants(fabric)}
        if unknown := [name for name in self.variants or () if name not in there]:
            yield f"variants: {', '.join(unknown)} cannot be played on {fabric.name}; it has {', '.join(sorted(there))}"
        have = [len(fabric.with_role(Role.COMPUTE, zone=zone)) for zone in range(fabric.zones)]
        counts = [("nodes", count) for count in self.nodes]
        counts += [("sizes_nodes", self.sizes_nodes)] if self.sizes else []
        for key, count in counts:
            for zone, wanted in enumerate(nodes_by_zone(count, fabric.zones)):
                if wanted > have[zone]:
                    yield f"{key}: {count} takes {wanted} compute nodes of zone {zone}, which has {have[zone]}"
