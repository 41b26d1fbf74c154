"""The keys of ``training_scaling``: cases, their published numbers, and what is played of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import QueueingConfig
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks
from traffic.collectives.hfreduce import Pipelining
from traffic.collectives.job import ElementsBytes, PieceBytes, piece_faults
from traffic.work.generators.config import TrainingConfig

Share = Annotated[float, Field(gt=0, le=10)]


class PointConfig(Strict):
    """A number of GPUs, and what was published of it."""

    gpus: int = Field(ge=1, le=65_536, description="GPUs.")
    step: TimeS | None = Field(default=None, gt=0, description="Published time of a step.")
    efficiency: Share | None = Field(
        default=None, description="Published efficiency, beside the case's smallest number of GPUs."
    )


class CaseConfig(Strict):
    """A model's training on growing numbers of GPUs."""

    name: Annotated[str, Field(pattern=r"[a-z][a-z0-9_]{0,39}")] = Field(description="Its name, in phases and tables.")
    training: TrainingConfig = Field(
        description="The job. `layout.data` and, with a batch, `micro_batches` follow from the number of GPUs."
    )
    batch: int | None = Field(
        default=None,
        gt=0,
        le=10**9,
        description="Sequences of a step over all GPUs (strong scaling). Without it, each copy has `micro_batches`.",
    )
    points: list[PointConfig] = Field(
        min_length=1, max_length=100, description="Numbers of GPUs, the smallest first: its time, if known, is fitted."
    )
    played: int | None = Field(
        default=None, gt=0, le=100_000, description="Micro-batches of a step that are played. Without it, the fewest."
    )
    played_again: int | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Micro-batches of a second play of the pipeline, more than `played`: whether more change anything.",
    )
    in_packets: bool = Field(
        default=False,
        description="Whether the pipeline itself is played over the fabric, with copies of one node per stage.",
    )

    @model_validator(mode="after")
    def _verify(self) -> CaseConfig:
        counts = [point.gpus for point in self.points]
        if counts != sorted(set(counts)):
            raise ValueError(f"points: GPUs are {counts}; give each once, the smallest first")
        layout = self.training.layout
        of_copy = layout.ranks // layout.data
        for gpus in counts:
            if gpus % of_copy:
                raise ValueError(f"points: {gpus} GPUs are not whole copies of {of_copy} GPUs; use a multiple of that")
            copies = gpus // of_copy * self.training.micro_batch
            if self.batch is not None and self.batch % copies:
                raise ValueError(f"batch: {self.batch} is not divisible by {copies} sequences at {gpus} GPUs")
        if self.in_packets and layout.pipeline == 1:
            raise ValueError("in_packets: plays a pipeline, and layout.pipeline is 1; leave it out")
        self._verify_played_again()
        return self

    def _verify_played_again(self) -> None:
        if self.played_again is None:
            return
        if not self.in_packets:
            raise ValueError("played_again: plays the pipeline in packets once more; set in_packets, or leave it out")
        first = self.micro_batches(self.points[0].gpus)
        least = self.played or 2 * self.training.layout.pipeline + 1
        if not least < self.played_again <= first:
            raise ValueError(
                f"played_again: {self.played_again} micro-batches, and {least} are played first, of {first}; give more"
            )

    def copies(self, gpus: int) -> int:
        """Return how many copies of the model there are."""
        layout = self.training.layout
        return gpus // (layout.ranks // layout.data)

    def micro_batches(self, gpus: int) -> int:
        """Return how many micro-batches a copy has."""
        if self.batch is None:
            return self.training.micro_batches
        return self.batch // (self.copies(gpus) * self.training.micro_batch)


class TrainingScalingConfig(QueueingConfig, Pipelining, OrderedRanks):
    """The cases, and what is played of their communication."""

    cases: list[CaseConfig] = Field(min_length=1, max_length=50, description="What is trained.")
    nodes: list[Annotated[int, Field(ge=2, le=65_536)]] = Field(
        default_factory=lambda: [2, 4, 8, 16],
        min_length=1,
        max_length=50,
        description="Nodes over which collectives are played; a point takes the nearest number.",
    )
    sizes: list[ElementsBytes] = Field(
        default_factory=lambda: [2 * 2**20, 8 * 2**20],
        min_length=1,
        max_length=10,
        description="Sizes of allreduces that are played: the line through the smallest and largest gives others.",
    )
    nccl_size: ElementsBytes = Field(default=2 * 2**20, description="Size of NCCL's collectives that are played.")
    slice: PieceBytes = Field(
        default=32 * 1024, description="Size of the pieces of messages and of NCCL's collectives."
    )
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing in which all is played."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as a step takes."""
        return PhaseLengths(until="all steps are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        for size in self.sizes:
            yield from piece_faults("chunk", self.chunk, size, "sizes")
        yield from piece_faults("slice", self.slice, self.nccl_size, "nccl_size")
        have = len(fabric.computes)
        if fabric.inside is None:
            yield f"topology: nodes of {fabric.name} have no inside; take one with GPUs, such as fire_flyer_2_nodes"
            return
        if max(self.nodes) > have:
            yield f"nodes: {max(self.nodes)}, and {fabric.name} has {have} compute nodes; lower it"
        if fabric.scale != 1 and any(one.step or one.efficiency for case in self.cases for one in case.points):
            yield (
                f"topology: rates of {fabric.name} are 1 : {fabric.scale:,.10g} of the true ones, and computing is "
                "fitted to published times; play at the true rate, with --engine virtual, or give cases whose points "
                "have neither step nor efficiency"
            )
        for case in self.cases:
            layout = case.training.layout
            if layout.gpus_per_node != fabric.inside.gpus:
                yield (
                    f"cases.{case.name}: layout.gpus_per_node is {layout.gpus_per_node}, and nodes of {fabric.name} "
                    f"have {fabric.inside.gpus} GPUs; set it to that"
                )
            if case.in_packets and layout.pipeline > have:
                yield f"cases.{case.name}: {layout.pipeline} stages need as many nodes, and there are {have}"
