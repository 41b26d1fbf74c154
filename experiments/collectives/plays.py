"""The parts of ``collectives``: its config, and what is played: a collective by an algorithm over so many ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.inside import gpu_of
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.units import format_apart, format_size
from runs.config import QueueingConfig, each_once
from runs.phase_lengths import PhaseLengths
from runs.placement import OrderedRanks
from runs.session import Session
from traffic import metrics
from traffic.collectives.collective import Collective, Flows
from traffic.collectives.elements import Dtype
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, TreeKind, trees_of
from traffic.collectives.job import (
    CollectiveJob,
    CollectiveRanks,
    ElementsBytes,
    PieceBytes,
    StepCounts,
    growing_sizes,
    piece_faults,
)
from traffic.collectives.listing import COLLECTIVES, collective_named
from traffic.collectives.msccl import parse_msccl
from traffic.collectives.nccl import MscclText, NcclConfig, NcclJob
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.operations.push_pull import PUSH_PULL
from traffic.collectives.trees import tree_flows

HFREDUCE = "hfreduce"
"""What HFReduce is called among the algorithms of an allreduce."""
MOST_SIZES = 64


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
        there = len(all_ranks(fabric))
        kind = "hosts" if fabric.inside is None else "GPUs"
        for play in plays(self):
            if play.all_ranks > there:
                beside = f" and {play.servers} servers" if play.servers else ""
                yield f"ranks: {play.ranks}{beside} take {play.all_ranks} {kind} of {fabric.name}, which has {there}"
                return
        for play in plays(self):
            try:
                play.flows(self, fabric, all_ranks(fabric)[: play.all_ranks])
            except TrafficError as error:
                yield f"{play.fault(error)} ({play.title})"


def all_ranks(fabric: Fabric) -> tuple[NodeId, ...]:
    """Return what can be ranks: compute nodes, or all their GPUs if they have an inside."""
    if fabric.inside is None:
        return fabric.computes
    return tuple(gpu_of(host, number) for host in fabric.computes for number in range(fabric.inside.gpus))


@dataclass(frozen=True)
class Play:
    """A collective by an algorithm over ``ranks``, beside so many that only serve. ``msccl``: the text of a file."""

    collective: str
    algorithm: str
    ranks: int
    servers: int = 0
    msccl: str | None = None

    @property
    def all_ranks(self) -> int:
        """How many ranks there are with the servers."""
        return self.ranks + self.servers

    @property
    def phase(self) -> str:
        """The phase's name."""
        return f"{self.collective}_{self.algorithm}_n{self.ranks}" + (f"_k{self.servers}" if self.servers else "")

    @property
    def phase_in_place(self) -> str:
        """The name of the phase in which results take the place of inputs."""
        return f"{self.phase}_in_place"

    @property
    def label(self) -> str:
        """The algorithm in words."""
        beside = f" + {self.servers} servers" if self.servers else ""
        return f"{self.algorithm.replace('_', ' ')}{beside}"

    @property
    def title(self) -> str:
        """The phase's title."""
        return f"{self.collective.replace('_', ' ')}, {self.label}, {self.ranks} ranks"

    @property
    def planned(self) -> Collective:
        """The collective."""
        return collective_named(self.collective)

    @property
    def is_sum(self) -> bool:
        """Whether each rank that has data gets the sum of all: what an allreduce does, by whatever means."""
        return self.collective in (ALLREDUCE.name, PUSH_PULL.name)

    def sizes(self, config: CollectivesConfig) -> list[int]:
        """Return the sizes that are played."""
        return [0] if self.collective == BARRIER.name else config.sizes

    def flows(self, config: CollectivesConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> Flows:
        """Return what a step sends between ranks. Raises TrafficError if it cannot be carried out over them."""
        if self.algorithm == HFREDUCE:
            return tree_flows(trees_of(TreeKind.ZONE_AWARE, [fabric.nics_of[rank][0].zone for rank in ranks]))
        return self._nccl(config).flows(ranks)

    def ideal_algbw_Bps(self, fabric: Fabric, ranks: Sequence[NodeId], flows: Flows) -> float | None:  # noqa: N802
        """Return the algbw in bytes per second at which the NIC of the busiest host is full of what it sends or
        receives, less headers; None if nothing crosses the network."""
        busy: dict[tuple[NodeId, bool], float] = {}
        for source, target, share in flows:
            if ranks[source].host != ranks[target].host:
                for place in ((ranks[source].host, True), (ranks[target].host, False)):
                    busy[place] = busy.get(place, 0.0) + share
        if not busy:
            return None
        whole = metrics.ideal_algbw(fabric.nic_rate_bps, max(busy.values()))
        return whole * metrics.payload_fraction(fabric.mtu_bytes)

    def fault(self, error: TrafficError) -> str:
        """Return why it cannot be carried out, with the key that says so."""
        text = str(error).removeprefix("NCCL: ")
        if text.startswith("node_ranks:"):
            return text
        return f"{'algorithms' if self.msccl is None else 'msccl'}: {self.algorithm}: {text}"

    def job(self, session: Session, config: CollectivesConfig, ranks: Sequence[NodeId]) -> CollectiveJob:
        """Return the job that plays it over ``ranks``, the servers last."""
        if self.algorithm == HFREDUCE:
            common = _common(config, config.end)
            made = HFReduceConfig(**common, chunk=config.chunk, gpus_per_node=1, tree=TreeKind.ZONE_AWARE)
            return HFReduceJob(session.stage, made, ranks)
        fabric = session.live.fabric
        address_of = None if fabric.inside is None else fabric.address_inside
        return NcclJob(session.stage, self._nccl(config), ranks, address_of)

    def _nccl(self, config: CollectivesConfig) -> NcclConfig:
        return NcclConfig(
            **_common(config, max(self.sizes(config))),
            collective=self.collective,
            algorithm=None if self.msccl is not None else self.algorithm,
            msccl=self.msccl,
            servers=self.servers,
            node_ranks=config.node_ranks if self.algorithm == "hierarchical" else None,
            slice=config.slice,
        )


def _common(config: CollectivesConfig, size: int) -> dict[str, Any]:
    return {
        "dtype": config.dtype,
        "size": size,
        "step_timeout": config.step_timeout,
        "ranks_per_process": config.ranks_per_process,
    }


def plays(config: CollectivesConfig) -> list[Play]:
    """Return all that is played, in order."""
    found = []
    for collective in COLLECTIVES.values():
        if config.collectives is not None and collective.name not in config.collectives:
            continue
        names = [*collective.algorithms, *([HFREDUCE] if collective.name == ALLREDUCE.name else [])]
        for name in names:
            if config.algorithms is None or name in config.algorithms:
                servers = config.servers if collective.name == PUSH_PULL.name else [0]
                found += [Play(collective.name, name, count, one) for count in config.ranks for one in servers]
    for text in config.msccl:
        parsed = parse_msccl(text)
        found.append(Play(parsed.played.name, parsed.name, parsed.ranks, msccl=text))
    return found
