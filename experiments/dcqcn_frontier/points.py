"""What ``dcqcn_frontier`` plays: its config, and the points that its grid comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from pydantic import AfterValidator, Field

from fabric.config import Strict, TimeS
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from fabric.units import exact
from runs.config import Choices, RunConfig, counted_faults, each_once, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.congestion_control import DCQCN, STEERED_BY_ECN
from traffic.dcqcn import PROFILES, DcqcnConfig, Parameters
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
        description="Begin of each phase that does not count: TCP opens its windows, DCQCN makes its first cuts.",
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


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a phase plays with: a control for all traffic, in a queueing; with DCQCN, its parameters, and how they come
    from a named set."""

    control: str
    queueing: Queueing
    dcqcn: DcqcnConfig
    marking: Marking | None
    profile: str = ""
    thresholds: float = 1.0
    increase: float = 1.0

    @property
    def name(self) -> str:
        """The name of its phase."""
        parts = [self.profile, f"t{exact(self.thresholds)}", f"i{exact(self.increase)}"] if self.profile else []
        return "_".join([self.control, *parts, self.queueing.value]).replace(".", "p")

    @property
    def title(self) -> str:
        """Return the title of its figures and rows."""
        named = f" {self.profile}, thresholds x {self.thresholds:g}, increase x {self.increase:g}"
        return f"{self.control}{named if self.profile else ''}, {self.queueing.words}"

    @property
    def has_dcqcn(self) -> bool:
        """Whether it plays DCQCN."""
        return self.control == DCQCN

    @property
    def controls(self) -> Mapping[ServiceLevel, str]:
        """The control of every service level."""
        return dict.fromkeys(DATA_LEVELS, self.control)


def points(config: DcqcnFrontierConfig, fabric: Fabric) -> tuple[Setting, ...]:
    """Return all points, a queueing after the other, those without DCQCN first.

    What steers by marks without being DCQCN has the marking of ``dcqcn`` in the config.
    """
    found: list[Setting] = []
    for queueing in config.queueings:
        found += [_other(config, fabric, name, queueing) for name in config.others]
        grid = product(config.grid.profiles, config.grid.thresholds, config.grid.increase)
        found += [_with_dcqcn(config, fabric, queueing, *place) for place in grid]
    return tuple(found)


def _other(config: DcqcnFrontierConfig, fabric: Fabric, name: str, queueing: Queueing) -> Setting:
    marking = config.queues.marking or config.dcqcn.parameters(fabric).marking
    return Setting(
        control=name, queueing=queueing, dcqcn=config.dcqcn, marking=marking if name in STEERED_BY_ECN else None
    )


def _with_dcqcn(
    config: DcqcnFrontierConfig, fabric: Fabric, queueing: Queueing, profile: str, thresholds: float, increase: float
) -> Setting:
    named = DcqcnConfig(profile=profile, scaling=config.dcqcn.scaling)
    known = named.parameters(fabric)
    return Setting(
        control=DCQCN,
        queueing=queueing,
        dcqcn=_hastened(named, known, increase, fabric) if increase != 1 else named,
        marking=scaled_marking(known.marking, thresholds, fabric.frame_bytes),
        profile=profile,
        thresholds=thresholds,
        increase=increase,
    )


def scaled_marking(marking: Marking, factor: float, frame_bytes: int) -> Marking:
    """Return a marking with thresholds so many times as high; ``kmin`` is two frames at least, below which a queue is
    none, and ``kmax`` a frame more."""
    kmin = max(round(marking.kmin * factor), 2 * frame_bytes)
    return Marking(kmin=kmin, kmax=max(round(marking.kmax * factor), kmin + frame_bytes), pmax=marking.pmax)


def _hastened(named: DcqcnConfig, known: Parameters, increase: float, fabric: Fabric) -> DcqcnConfig:
    """Return a named set with a faster rate increase; a step is the rate of the NICs at most."""
    return named.model_copy(
        update={
            "increase_period": known.increase_period_s / increase,
            "increase_bytes": round(known.increase_bytes / increase),
            "additive_step": min(known.additive_step_bps * increase, fabric.nic_rate_bps),
            "hyper_step": min(known.hyper_step_bps * increase, fabric.nic_rate_bps),
        }
    )
