"""The config of ``collectives``: which are played, over how many ranks, and which sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from experiments.collectives.cases import HFREDUCE, plays
from fabric.errors import TrafficError
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.units import format_apart, format_size
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks, ranks_of
from traffic.collectives.elements import Dtype
from traffic.collectives.job import (
    CollectiveRanks,
    ElementsBytes,
    PieceBytes,
    StepCounts,
    growing_sizes,
    piece_faults,
)
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.nccl import MscclText


def _collectives(value: list[str]) -> list[str]:
    for name in value:
        collective_named(name)
    return each_once(value)


def _algorithms(value: list[str]) -> list[str]:
    known = sorted({HFREDUCE, *(name for one in COLLECTIVES.values() for name in one.algorithms)})
    for name in value:
        if name not in known:
            raise ValueError(f"{name!r} is not an algorithm; use some of {', '.join(known)}")
    return each_once(value)


class SizesConfig(QueueingConfig):
    """The sizes, and how often each is played."""

    dtype: Annotated[Dtype, Field(strict=False)] = Field(
        default=Dtype.FP32, description="Type of the elements, in flight and where they are added."
    )
    begin: ElementsBytes = Field(default=2 * 1024, description="The smallest size S of a step (nccl-tests' -b).")
    end: ElementsBytes = Field(
        default=8 * 2**20, description="No size is larger (-e). Wall time is spent on packets, so on sizes."
    )
    factor: Annotated[int, Field(ge=2, le=2**20)] = Field(
        default=8, description="By how much each size is larger than the one before (-f)."
    )
    warm_up_steps: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=1, description="Steps of each size before those that count (-w): TCP opens its windows in them."
    )
    steps: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="Steps of each size that count (-n). In virtual time all are alike."
    )
    in_place: bool = Field(
        default=True,
        description="Whether all is played once more with results in the place of inputs, where there are such.",
    )

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes."""
        return growing_sizes(self.begin, self.end, self.factor)


class CollectivesConfig(SizesConfig, OrderedRanks, CollectiveRanks):
    """Which collectives, by which algorithms, over how many ranks."""

    collectives: Annotated[list[str], Field(min_length=1), AfterValidator(_collectives)] | None = Field(
        default=None, description="Collectives to play, by name. Without it, all."
    )
    algorithms: Annotated[list[str], Field(min_length=1), AfterValidator(_algorithms)] | None = Field(
        default=None,
        description="Algorithms to play, by name, as far as a collective has them; `hfreduce` is one of an allreduce. "
        "Without it, all.",
    )
    msccl: list[MscclText] = Field(
        default_factory=list,
        description="Algorithms of your own as MSCCL's XML, played beside the others: paths, or the texts themselves.",
    )
    ranks: Annotated[list[Annotated[int, Field(ge=2, le=65_536)]], Field(min_length=1), AfterValidator(each_once)] = (
        Field(default_factory=lambda: [8], description="Numbers of ranks: hosts, or GPUs if hosts have such.")
    )
    servers: Annotated[list[Annotated[int, Field(ge=0, le=65_536)]], Field(min_length=1), AfterValidator(each_once)] = (
        Field(
            default_factory=lambda: [0],
            description="Of `push_pull`: hosts that only serve, beside the ranks. 0: each rank serves a share.",
        )
    )
    node_ranks: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description="Ranks in a row that hierarchical algorithms take for a node. Without it, those that share a host; "
        "where none do, as many as come closest to the root of all.",
    )
    slice: PieceBytes = Field(
        default=32 * 1024,
        description="Size of the pieces that ranks forward. Smaller fills pipelines sooner, and costs more per byte.",
    )
    chunk: PieceBytes = Field(default=32 * 1024, description="Size of the pieces that HFReduce adds up.")
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.SHARED, description="Queueing in which all play."
    )

    @property
    def counts(self) -> StepCounts:
        """How often each size is played."""
        return StepCounts(self.warm_up_steps, self.steps)

    @model_validator(mode="after")
    def _verify_sizes(self) -> CollectivesConfig:
        if self.begin > self.end:
            begin, end = format_apart(self.begin, self.end, format_size)
            raise ValueError(f"begin: {begin} is more than end, {end}; lower it")
        for key, value in (("slice", self.slice), ("chunk", self.chunk)):
            if value > self.end:
                told, end = format_apart(value, self.end, format_size)
                raise ValueError(f"{key}: {told} is more than end, {end}; lower it")
            for fault in piece_faults(key, value, self.end, "end"):
                raise ValueError(fault)
        if not plays(self):
            chosen = f"collectives {self.collectives or 'all'}, algorithms {self.algorithms or 'all'}"
            raise ValueError(f"algorithms: none of the collectives has one of them ({chosen}); name others")
        return self

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the steps of a size take."""
        return PhaseLengths(until="all steps are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        there = len(ranks_of(fabric, fabric.computes))
        kind = "hosts" if fabric.inside is None else "GPUs"
        for play in plays(self):
            if play.all_ranks > there:
                beside = f" and {play.servers} servers" if play.servers else ""
                yield f"ranks: {play.ranks}{beside} take {play.all_ranks} {kind} of {fabric.name}, which has {there}"
                return
        for play in plays(self):
            try:
                play.flows(self, fabric, ranks_of(fabric, fabric.computes)[: play.all_ranks])
            except TrafficError as error:
                yield f"{play.fault(error)} ({play.title})"
