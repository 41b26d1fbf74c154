"""The config of ``libraries``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from experiments.libraries.catalogue import ALLREDUCE, LIBRARIES, TRANSFER, Library, library_named
from fabric.errors import UsageError
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.units import format_apart, format_size
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths
from traffic.collectives.job import ElementsBytes, growing_sizes

INSTALL = "python -m experiments.libraries.installing"


def _libraries(value: list[str]) -> list[str]:
    for name in value:
        try:
            library_named(name)
        except UsageError as error:
            raise ValueError(str(error)) from error
    return each_once(value)


def _operations(value: list[str]) -> list[str]:
    for name in value:
        if name not in (ALLREDUCE, TRANSFER):
            raise ValueError(f"{name!r} is not an operation; use {ALLREDUCE}, {TRANSFER}")
    return each_once(value)


class LibrariesConfig(QueueingConfig):
    """Which libraries play what, over which sizes."""

    libraries: Annotated[list[str], AfterValidator(_libraries)] | None = Field(
        default=None, description="Libraries to play, by name. Without it, all that are installed."
    )
    operations: Annotated[list[str], Field(min_length=1), AfterValidator(_operations)] = Field(
        default_factory=lambda: [ALLREDUCE, TRANSFER],
        description="What is played: an `allreduce` over all ranks, a `transfer` from the first to the last.",
    )
    ranks: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=2, description="Hosts that take part, the first of the fabric. Libraries that only transfer have two."
    )
    begin: ElementsBytes = Field(default=2 * 1024, description="The smallest size, of all data of a rank.")
    end: ElementsBytes = Field(
        default=8 * 2**20, description="No size is larger. Wall time is spent on packets, so on sizes."
    )
    factor: Annotated[int, Field(ge=2, le=2**20)] = Field(
        default=16, description="By how much each size is larger than the one before."
    )
    warm_up: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=5,
        description="Steps of each size that are not counted, in which TCP opens its windows; nccl-tests' default.",
    )
    steps: Annotated[int, Field(ge=1, le=10_000)] = Field(default=3, description="Steps of each size behind these.")
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS_LANES, description="Queueing in which all play."
    )

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes."""
        return growing_sizes(self.begin, self.end, self.factor)

    @property
    def chosen(self) -> list[Library]:
        """The libraries to play: those that are named, or all that are installed and have one of the operations."""
        if self.libraries is not None:
            return [library_named(name) for name in self.libraries]
        return [one for one in LIBRARIES if set(one.operations) & set(self.operations) and one.home() is not None]

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as a library's program runs."""
        return PhaseLengths(until="a library's program has ended")

    @model_validator(mode="after")
    def _verify_sizes(self) -> LibrariesConfig:
        if self.begin > self.end:
            begin, end = format_apart(self.begin, self.end, format_size)
            raise ValueError(f"begin: {begin} is more than end, {end}; lower it")
        return self

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric, or is not installed."""
        yield from super().faults(fabric)
        if self.ranks > len(fabric.computes):
            yield f"ranks: {self.ranks} are more than the {len(fabric.computes)} compute nodes of {fabric.name}"
        for library in self.chosen:
            if library.home() is None:
                yield f"libraries: {library.name} is not installed; install it: {INSTALL} {library.name}"
            elif not set(library.operations) & set(self.operations):
                yield f"libraries: {library.name} has none of the operations {', '.join(self.operations)}"
