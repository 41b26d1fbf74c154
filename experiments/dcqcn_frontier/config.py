"""The keys of ``dcqcn_frontier``: the grid of DCQCN's parameters, what to compare it with, and what plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import Strict, TimeS
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, RunConfig, counted_faults, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.congestion_control import DCQCN
from traffic.dcqcn import PROFILES, DcqcnConfig
from traffic.storage.config import StorageConfig

Factor = Annotated[float, Field(gt=0, le=1000, strict=False)]
Duration = Annotated[TimeS, Field(gt=0)]


class GridConfig(Strict):
    """The points with DCQCN: every combination of these."""

    profiles: Annotated[list[str], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: list(PROFILES), description="Named sets of DCQCN's parameters to try."
    )
    thresholds: Annotated[list[Factor], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [1 / 16, 1 / 4, 1.0],
        description=(
            "Factors on the sets' kmin and kmax. Below 1 for switches with less buffer than the sets were made for."
        ),
    )
    increase: Annotated[list[Factor], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [1.0, 10.0],
        description=(
            "Factors on the steps of a rate increase; its period and bytes are divided by the same. Higher "
            "recovers faster."
        ),
    )


class DcqcnFrontierConfig(RunConfig):
    """The grid, what to compare it with, and what plays: HFReduce and reads from storage, on the same nodes."""

    grid: GridConfig = Field(
        default_factory=GridConfig, description="The parameters of DCQCN to try: every combination is a point."
    )
    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LOSSLESS, Queueing.LOSSLESS_LANES],
        description="Queueings in which each point plays.",
    )
    others: Annotated[list[str], AfterValidator(each_once)] = Field(
        default_factory=lambda: ["line", "dctcp"],
        description=(
            "Congestion controls to compare DCQCN with; `line` is none, `dctcp` has the marking of `dcqcn.profile`."
        ),
    )
    nodes: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=4, description="Compute nodes that compute and read: the first ones of zone 0."
    )
    phase_time: Duration = Field(
        default=0.01, description="Length of a point's phase. Longer averages more, and costs more wall time."
    )
    warm_up: Duration = Field(
        default=0.002,
        description="Start of each phase that does not count: TCP opens its windows, DCQCN makes its first cuts.",
    )
    suits: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9,
        description="Fraction of the best that DCQCN gets for a program that a point must reach to suit that program.",
    )
    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce that plays.")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="The reads that play.")

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """Each in its turn."""
        return tuple(self.queueings)

    @property
    def controls_played(self) -> dict[str, str]:
        """DCQCN and the others; what ``congestion_control`` says plays nowhere."""
        return {name: name for name in (DCQCN, *self.others)}

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths.of(self, "phase_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "the experiment plays storage")
        in_zone = len([node for node in fabric.computes if node.zone == 0])
        if self.nodes > in_zone:
            yield f"nodes: {self.nodes} exceeds the {in_zone} compute nodes of zone 0; lower it"
        yield from counted_faults(fabric, self.phase_time, self.warm_up)
        for name in self.grid.profiles:
            yield from DcqcnConfig(profile=name).faults(fabric)
        yield from congestion_control.faults({f"others ({name})": name for name in self.others}, marks=True)
        if DCQCN in self.others:
            yield f"others: {DCQCN} is what the grid plays; remove it"
