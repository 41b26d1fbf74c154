"""The config: the step, how much of it is played, and the variants that disturb it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from controllers.planning.policies import STATIC
from controllers.routing import PolicyKey, Routing
from fabric.config import SizeBytes, Strict
from fabric.failures.config import FailureLine, failure_faults
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import RunConfig
from runs.phase_lengths import PhaseLengths
from traffic.work.generators.deepep_kernels import CHUNK_TOKENS
from traffic.work.generators.expert_step import (
    FIRST_COMPUTE_S,
    Extras,
    Phase,
    deepseek_phases,
    measured_step,
    step_with_bytes,
)
from traffic.work.generators.routing import Routed, RoutingRule, route
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import list_schedule

GPUS = 8
"""Of a node, each with a rank."""
LAYERS = 1 + max(phase.layer for phase in deepseek_phases())
MEASURED_TOKENS = 4096
"""Of each rank, in the step that was measured."""


class RoutedConfig(Strict):
    """How tokens choose their experts: DeepSeek-V3's rule unless said otherwise."""

    experts: Annotated[int, Field(ge=1, le=65_536)] = Field(default=256, description="Experts, over all ranks.")
    top: Annotated[int, Field(ge=1, le=64)] = Field(default=8, description="Experts of a token.")
    top_nodes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=4, description="Nodes that a token's experts are on at most: the best by the sum of their top two."
    )
    skew: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.0, description="How much more some experts are liked than others; 0: all alike, as was measured."
    )


class VariantConfig(Strict):
    """A step beside something."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=40)] = Field(description="Its name.")
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS_LANES, description="Queueing in which it plays."
    )
    policy: PolicyKey = Field(default=STATIC, description="Routing policy.")
    reads: bool = Field(
        default=False,
        description=(
            "Whether all nodes read meanwhile, by their first NIC from all storage nodes in its plane, without a pause."
        ),
    )
    failures: list[FailureLine] = Field(default_factory=list, description="What fails while it plays.")

    @property
    def conditions(self) -> str:
        """What plays and happens meanwhile, by which routes and in which queueing."""
        beside = " and ".join([*["beside reads"] * self.reads, *["with failures"] * bool(self.failures)])
        return f"{beside or 'alone'}, {self.policy.name} routes, {self.queueing.words}"


class ExpertParallelConfig(RunConfig):
    """DeepSeek's step, of 8 GPUs on each node, in variants."""

    nodes: Annotated[int, Field(ge=2, le=64)] = Field(default=8, description="Nodes, of 8 ranks each.")
    layers: Annotated[int, Field(ge=1, le=LAYERS)] = Field(default=LAYERS, description="Layers of the step, the first.")
    shrink: Annotated[float, Field(ge=1, le=1024, strict=False)] = Field(
        default=1.0,
        description=(
            "Divides tokens, and the measured times of computing alike: bytes per time stay as they are, delays and "
            "window sizes weigh more."
        ),
    )
    local: Literal["none", "as_measured"] = Field(
        default="as_measured",
        description="Whether what else a phase of communication does than to move tokens takes its measured time.",
    )
    nvlink_in_packets: bool = Field(
        default=False,
        description="Whether tokens inside a node are packets, too, which triples the cost; else they take a time.",
    )
    kernels: Literal["ideal", "deepep"] = Field(
        default="ideal",
        description=(
            "Whether the kernels that move tokens cost nothing but bytes, or what DeepEP's first ones do: a notify "
            "kernel, NVLink at their rate in one node, chunks that wait for it. Bandwidth is then of a whole call."
        ),
    )
    steps: Annotated[int, Field(ge=1, le=100)] = Field(default=1, description="Steps of each variant.")
    slice: Annotated[SizeBytes, Field(ge=1024, le=2**26)] = Field(
        default=256 * 1024, description="Size of the pieces in which tokens travel."
    )
    routed: RoutedConfig = Field(default_factory=RoutedConfig, description="How tokens choose experts.")
    read_size: Annotated[SizeBytes, Field(ge=1, le=2**36)] = Field(
        default=2**20, description="Bytes of each storage node in a read of variants with `reads`."
    )
    variants: Annotated[list[VariantConfig], Field(min_length=1)] = Field(description="What is played, in order.")

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """Return those of the variants."""
        return tuple(dict.fromkeys(one.queueing for one in self.variants))

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Return those of the variants."""
        return tuple(dict.fromkeys(map(self.routing_of, self.variants)))

    @property
    def tokens(self) -> int:
        """Return the tokens of each rank that are played."""
        return round(MEASURED_TOKENS / self.shrink)

    def routing_of(self, variant: VariantConfig) -> Routing:
        """Return the routing of a variant."""
        return self.routing.model_copy(update={"policy": variant.policy})

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases that are played."""
        return tuple(_shrunk(one, self.shrink) for one in deepseek_phases() if one.layer < self.layers)

    @property
    def sent(self) -> Routed:
        """Return where tokens go."""
        rule, nodes = self.routed, self.nodes
        chosen = RoutingRule(rule.experts, rule.top, nodes, min(rule.top_nodes, nodes), seed=self.seed, skew=rule.skew)
        return _routed(chosen, nodes * GPUS, self.tokens)

    def graph(self, fabric: Fabric) -> WorkGraph:
        """Return the step on nodes with the NVLink of a fabric."""
        assert fabric.inside is not None and fabric.inside.nvlink is not None, "faults() has looked"
        extras = Extras(
            has_local=self.local == "as_measured",
            launch_s=FIRST_COMPUTE_S / self.shrink,
            nvlink_Bps=None if self.nvlink_in_packets else fabric.inside.nvlink.rate_bps / 8,
            kernels_shrink=self.shrink if self.kernels == "deepep" else None,
        )
        return step_with_bytes(self.phases(), self.sent, GPUS, extras)

    @property
    def paper_s(self) -> float:
        """Return how long the step takes with all times as measured, on paper, not shrunk."""
        whole = self.model_copy(update={"shrink": 1.0})
        return list_schedule(measured_step(whole.phases()), lambda operations, ranks: 0.0).end_s

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the steps of a variant take."""
        return PhaseLengths(until="all steps are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        names = [one.name for one in self.variants]
        if len(set(names)) < len(names):
            yield f"variants: {', '.join(names)}: a name twice; give each its own"
        if self.nodes > len(fabric.computes):
            yield f"nodes: {self.nodes}: {fabric.name} has {len(fabric.computes)} compute nodes; use fewer"
        if fabric.inside is None or fabric.inside.gpus != GPUS or fabric.inside.nvlink is None:
            which = f"no nodes of {GPUS} GPUs with NVLink"
            yield f"topology: {fabric.name}: its nodes are {which}; use one with node: next_generation"
        if self.kernels == "deepep":
            yield from self._kernel_faults()
        if self.routed.experts % (self.nodes * GPUS):
            yield f"routed.experts: {self.routed.experts} over {self.nodes * GPUS} ranks; use a multiple"
        if any(one.reads for one in self.variants) and not all(servers_of(fabric, node) for node in fabric.computes):
            yield f"variants: reads: {fabric.name} has no storage nodes to read from; use next_generation_ep64"
        if self.tokens < 1:
            yield f"shrink: {self.shrink:g} leaves no token; lower it"
        for one in self.variants:
            yield from (f"variants: {one.name}: {fault}" for fault in failure_faults(one.failures, fabric, self.seed))

    def _kernel_faults(self) -> Iterator[str]:
        if self.nodes * GPUS not in CHUNK_TOKENS:
            known = ", ".join(str(ranks // GPUS) for ranks in CHUNK_TOKENS)
            yield f"kernels: deepep: its chunks are known with {known} nodes, not {self.nodes}; set nodes to one"
        if self.nvlink_in_packets:
            yield "kernels: deepep: NVLink has its kernels' rate, not the fabric's; set nvlink_in_packets: false"


@lru_cache(maxsize=1)
def _routed(rule: RoutingRule, ranks: int, tokens: int) -> Routed:
    return route(rule, ranks, GPUS, tokens)


def _shrunk(phase: Phase, by: float) -> Phase:
    return replace(phase, duration_s=phase.duration_s / by, notify_s=phase.notify_s / by, data_s=phase.data_s / by)


def servers_of(fabric: Fabric, node: NodeId) -> tuple[NodeId, ...]:
    """Return the storage nodes that a node's first NIC reaches."""
    first = fabric.nics_of[node][0]
    return tuple(one for one in fabric.storages if any(fabric.reaches(first, nic) for nic in fabric.nics_of[one]))
