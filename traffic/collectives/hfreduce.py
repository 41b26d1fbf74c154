"""HFReduce: allreduce on the CPU over a double binary tree (Fire-Flyer AI-HPC, arXiv 2408.14158v2, section IV).

A rank is a compute node. In the node the buffers of its GPUs are added chunk by chunk into host memory (the paper's
Algorithm 1, here numpy on buffers that stand for the GPUs'). Between nodes chunks travel up both trees, added on the
way, and back down (Algorithm 2). Each tree carries half of the data over one full-duplex connection per edge, and has
two threads: one that adds up the node's chunk and its children's and sends the sum up, and one that hands the result
down.

On nodes with an inside, data begins and ends in GPUs and crosses the node's links: see
:mod:`traffic.collectives.gpu_copies`.
Elsewhere the paper's last stage, the copy back to the GPUs, is not carried out: no byte of it crosses the fabric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, Strict
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.inside import BudgetKind, budget_name, cpu_of, gpu_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.queueing import budgets
from traffic.collectives.gpu_copies import NodeParts
from traffic.collectives.job import (
    AddressOf,
    CollectiveConfig,
    CollectiveJob,
    PieceBytes,
    PlannedCollective,
    one_address,
    piece_faults,
    zones_of,
)
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import DoubleTree, double_binary_tree, sent_fractions, zone_aware_double_tree
from traffic.job import Stage


class TreeKind(str, Enum):
    """``zone_aware``: one pair of nodes talks across zones, as the paper says. ``plain``: NCCL's double binary tree."""

    ZONE_AWARE = "zone_aware"
    PLAIN = "plain"


class HostMemoryConfig(Strict):
    """The memory of a host, which caps the node's sum at ``bandwidth / operations_per_byte``.

    Values are those of the system that the fabric stands for (section IV-D3: 320 GB/s and 24 operations per byte, so
    13.3 GB/s); the job scales them down like the fabric's NICs.
    """

    bandwidth: Annotated[SizeBytes, Field(gt=0)] = Field(
        default=320 * 10**9, description="Bytes per second that the memory reads and writes together."
    )
    operations_per_byte: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=24.0, description="Memory operations that the sum takes per byte of its result."
    )

    @property
    def cap_bytes_per_s(self) -> float:
        """How many bytes of the sum a second the host can make, at full scale."""
        return self.bandwidth / self.operations_per_byte


class Pipelining(Strict):
    """How an HFReduce is pipelined, which the paper does not give."""

    chunk: PieceBytes = Field(
        default=32 * 1024,
        description=(
            "Size of a chunk, the unit that is added up and forwarded (the paper's Chunk_Size). Smaller fills "
            "the pipeline sooner, and costs more per byte."
        ),
    )
    copies_ahead: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description=(
            "Shares of a chunk that may wait between each GPU and the CPU of a node with an inside, beside the "
            "one in flight."
        ),
    )


class HFReduceConfig(CollectiveConfig, Pipelining):
    """An HFReduce of ``size`` bytes per GPU."""

    gpus_per_node: Annotated[int, Field(ge=1, le=64)] = Field(
        default=8,
        description=(
            "GPUs per node, whose data the CPU adds up first. For nodes that are points; others have their own number."
        ),
    )
    tree: Annotated[TreeKind, Field(strict=False)] = Field(
        default=TreeKind.ZONE_AWARE,
        description=(
            "Shape of the double tree between nodes: one pair of nodes talks across zones, or NCCL's plain "
            "double binary tree."
        ),
    )
    nvlink: bool = Field(
        default=True, description="Whether GPUs that NVLink joins in pairs add up before the CPU does (section IV-C)."
    )
    host_memory: HostMemoryConfig | None = Field(
        default=None, description="Memory that limits the node's sum. Without it, the CPU of this machine is the limit."
    )

    def piece_faults(self) -> Iterator[str]:
        """Yield that a chunk is more than all, if so."""
        yield from piece_faults("chunk", self.chunk, self.size)


class HFReduceJob(CollectiveJob):
    """HFReduce over ``ranks``, one per compute node, by default in the service level of the same name."""

    def __init__(
        self,
        stage: Stage,
        config: HFReduceConfig,
        ranks: Sequence[NodeId],
        address_of: AddressOf | None = None,
        name: str | None = None,
        level: ServiceLevel = ServiceLevel.HFREDUCE,
    ) -> None:
        self.trees = trees_of(config.tree, zones_of(stage.fabric, ranks))
        inside = stage.fabric.inside
        if inside is not None and config.host_memory is not None:
            raise TrafficError(f"HFReduce: host_memory caps what nodes with an inside ({inside.name}) find; remove it")
        cap = _node_sum_bytes_per_s(stage, config)
        elements = config.elements_of(config.size)
        chunk_elements = min(config.elements_of(config.chunk), elements)
        schedule = TreeAllreduce(self.trees, elements, chunk_elements, cap, config.slots, config.dtype)
        nic_s = max(sent_fractions(self.trees)) * config.size * 8 / stage.fabric.nic_rate_bps
        memory_s = config.size / cap if cap else 0.0
        ideal_s = max(nic_s, memory_s)
        gpus = config.gpus_per_node if inside is None else inside.gpus
        node_of = None if inside is None else partial(node_parts, stage.fabric, config=config)
        planned = PlannedCollective("HFReduce", ALLREDUCE, level, schedule, gpus, ideal_s, node_of)
        super().__init__(stage, planned, config, ranks, one_address(stage, ranks, address_of), name)


def node_parts(fabric: Fabric, host: NodeId, config: HFReduceConfig) -> NodeParts:
    """Return where the parts of a node with an inside are, as its rank needs to know; no pairs without NVLink."""
    inside = fabric.inside
    assert inside is not None, "asked only where nodes have one"
    gpus = [gpu_of(host, number) for number in range(inside.gpus)]
    peers = [inside.nvlink.peers(number) if inside.nvlink else () for number in range(inside.gpus)]
    paired = config.nvlink and all(len(one) == 1 for one in peers)
    return NodeParts(
        cpu=fabric.address_inside(cpu_of(host)),
        gpus=tuple(fabric.address_inside(gpu) for gpu in gpus),
        memory_budget=budgets.number_of(budget_name(host, BudgetKind.MEMORY, 0)),
        pairs=tuple(one[0] for one in peers) if paired else (),
        nvlink=tuple(fabric.address_inside(gpu, nvlink=True) for gpu in gpus) if paired else (),
        copies_ahead=config.copies_ahead,
    )


def trees_of(kind: TreeKind, zones: Sequence[int]) -> DoubleTree:
    """Return the trees over ranks whose zones are ``zones``."""
    return double_binary_tree(len(zones)) if kind is TreeKind.PLAIN else zone_aware_double_tree(zones)


def _node_sum_bytes_per_s(stage: Stage, config: HFReduceConfig) -> float | None:
    if config.host_memory is None:
        return None
    return config.host_memory.cap_bytes_per_s / stage.fabric.scale
