"""The parts of ``hfreduce_vs_nccl``: its config, the variants of an allreduce, and the nodes of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator, model_validator

from experiments.run.config import RunConfig
from experiments.run.placement import Flow, RankOrder
from experiments.run.session import Session
from fabric.config import TimeS
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_size
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, HostMemoryConfig, TreeKind, trees_of
from traffic.collectives.job import CollectiveJob, ElementsBytes
from traffic.collectives.nccl import Algorithm, NcclConfig, NcclJob, nccl_flows, sent_fraction
from traffic.collectives.trees import sent_fractions, tree_flows

PAPER_SIZE_BYTES = 186 * 2**20
PAPER_BPS = {ServiceLevel.HFREDUCE: (6.3e9, 8.1e9), ServiceLevel.NCCL: (1.6e9, 4.8e9)}
"""The least and the most algbw of the paper's Figure 7a, over all its numbers of nodes, in bytes a second."""
KINDS = {ServiceLevel.HFREDUCE: "HFReduce", ServiceLevel.NCCL: "NCCL"}
_BOTH_ZONES_FROM = 4
CapName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


def _default_caps() -> dict[str, HostMemoryConfig]:
    return {
        "memory": HostMemoryConfig(),
        "measured": HostMemoryConfig(bandwidth=8_100_000_000, operations_per_byte=1.0),
    }


class HFReduceVsNcclConfig(RunConfig):
    """The allreduce, and over how many nodes. ``chunk`` is HFReduce's, ``slice`` NCCL's; ``host_caps`` are by name."""

    nodes: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)] = Field(
        default_factory=lambda: [2, 4, 8, 16]
    )
    size: ElementsBytes = PAPER_SIZE_BYTES
    steps: Annotated[int, Field(ge=1)] = 1
    chunk: ElementsBytes = 256 * 1024
    slice: ElementsBytes = 256 * 1024
    gpus_per_node: Annotated[int, Field(ge=1)] = 1
    host_caps: dict[CapName, HostMemoryConfig] = Field(default_factory=_default_caps)
    rank_order: Annotated[RankOrder, Field(strict=False)] = RankOrder.ROUTES
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = None
    queueing: Annotated[Queueing, Field(strict=False)] = Queueing.SHARED

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """The one."""
        return (self.queueing,)

    @field_validator("nodes")
    @classmethod
    def _verify_nodes(cls, value: list[int]) -> list[int]:
        twice = sorted({count for count in value if value.count(count) > 1})
        if twice:
            raise ValueError(f"{', '.join(map(str, twice))} more than once; name each number of nodes once")
        return value

    @model_validator(mode="after")
    def _verify_pieces(self) -> HFReduceVsNcclConfig:
        for key, value in (("chunk", self.chunk), ("slice", self.slice)):
            if 2 * value > self.size:
                raise ValueError(
                    f"{key}: {format_size(value)} is more than the half of {format_size(self.size)} that a tree "
                    "carries, so nothing would be pipelined; lower it or raise size"
                )
        return self

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        have = [len(fabric.with_role(Role.COMPUTE, zone=zone)) for zone in range(fabric.zones)]
        for count in self.nodes:
            for zone, wanted in enumerate(nodes_by_zone(count, fabric.zones)):
                if wanted > have[zone]:
                    yield f"nodes: {count} takes {wanted} compute nodes of zone {zone}, which has {have[zone]}"


def nodes_by_zone(count: int, zones: int) -> list[int]:
    """Return how many nodes each zone gives: equally many from 4 nodes on, the first zones more; below, zone 0 all."""
    if count < _BOTH_ZONES_FROM:
        return [count] + [0] * (zones - 1)
    return [count // zones + (zone < count % zones) for zone in range(zones)]


def chosen_nodes(fabric: Fabric, count: int) -> tuple[NodeId, ...]:
    """Return the nodes of an allreduce over ``count``, zone by zone, the first of each."""
    shares = enumerate(nodes_by_zone(count, fabric.zones))
    return tuple(node for zone, share in shares for node in fabric.with_role(Role.COMPUTE, zone=zone)[:share])


def zones_of_nodes(fabric: Fabric, nodes: Sequence[NodeId]) -> list[int]:
    """Return the zone of each node's first NIC."""
    return [fabric.nics_of[node][0].zone for node in nodes]


@dataclass(frozen=True)
class Variant:
    """An algorithm with what caps it. ``cap`` is a key of the config's ``host_caps``."""

    name: str
    title: str
    level: ServiceLevel
    algorithm: TreeKind | Algorithm
    cap: str | None = None

    def flows(self, zones: Sequence[int]) -> list[Flow]:
        """Return what a step sends between ranks of these zones."""
        if isinstance(self.algorithm, TreeKind):
            return tree_flows(trees_of(self.algorithm, zones))
        return nccl_flows(self.algorithm, len(zones))

    def network_ideal_Bps(self, fabric: Fabric, zones: Sequence[int]) -> float:  # noqa: N802 - bytes, not bits
        """Return the algbw in bytes a second at which the busiest rank's NIC is full."""
        if isinstance(self.algorithm, TreeKind):
            sent = max(sent_fractions(trees_of(self.algorithm, zones)))
        else:
            sent = sent_fraction(self.algorithm, len(zones))
        return metrics.ideal_algbw(fabric.nic_rate_bps, sent)

    def cap_Bps(self, config: HFReduceVsNcclConfig) -> float | None:  # noqa: N802
        """Return what the host adds up a second, in bytes at full scale; None if that is as fast as it likes."""
        return config.host_caps[self.cap].cap_bytes_per_s if self.cap else None

    def job(self, session: Session, config: HFReduceVsNcclConfig, ranks: Sequence[NodeId]) -> CollectiveJob:
        """Return the job that plays it over ``ranks``."""
        common: dict[str, Any] = {"size": config.size, "step_timeout": config.step_timeout}
        if isinstance(self.algorithm, Algorithm):
            made = NcclConfig(**common, algorithm=self.algorithm, slice=config.slice)
            return NcclJob(session.stage, made, ranks)
        hfreduce = HFReduceConfig(
            **common,
            chunk=config.chunk,
            gpus_per_node=config.gpus_per_node,
            tree=self.algorithm,
            host_memory=config.host_caps[self.cap] if self.cap else None,
        )
        return HFReduceJob(session.stage, hfreduce, ranks)


def variants(config: HFReduceVsNcclConfig) -> tuple[Variant, ...]:
    """Return what is played, in order."""
    found = []
    for kind, words in ((TreeKind.PLAIN, "plain tree"), (TreeKind.ZONE_AWARE, "zone-aware tree")):
        make = partial(Variant, level=ServiceLevel.HFREDUCE, algorithm=kind)
        found.append(make(f"hfreduce_{kind.value}", f"HFReduce, {words}"))
        for cap, host in config.host_caps.items():
            title = f"HFReduce, {words}, host {cap} {gigabytes(host.cap_bytes_per_s)} GB/s"
            found.append(make(f"hfreduce_{kind.value}_{cap}", title, cap=cap))
    for algorithm in Algorithm:
        name = algorithm.value
        found.append(Variant(f"nccl_{name}", f"NCCL, {name}", ServiceLevel.NCCL, algorithm))
    return tuple(found)


def phase_name(variant: Variant, count: int) -> str:
    """Return the name of the phase that plays a variant over ``count`` nodes."""
    return f"{variant.name}_n{count}"


def gigabytes(value: float) -> str:
    """Return bytes in GB, to three digits."""
    return f"{value / 1e9:.3g}"
