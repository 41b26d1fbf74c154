"""NCCL-like allreduces over TCP: the ring and the tree.

The ring is a reduce-scatter, then an allgather, over one connection from each rank to the next. The data is added up in
loops, in each of which it is cut into as many segments as there are ranks. In each of the first n-1 rounds a rank sends
one segment to the next rank and adds the one it receives to its own; then every rank owns one whole sum, and n-1 more
rounds hand these round. A segment travels in slices, forwarded one by one, so that rounds overlap. A rank sends
2(n-1)/n of the size.

A rank holds a few slices at most between receiving and sending on, as NCCL's connections do (a FIFO of 8 slots, by
default of 512 KiB each: ``NCCL_STEPS``, ``NCCL_BUFFSIZE``). When all are in use it takes no more, TCP's window closes,
and the rank before it waits: a slow link holds up the whole ring, as it does in NCCL.

The tree is NCCL's double binary tree over the ranks in their order, whatever their zones: the schedule that HFReduce
uses, here with one buffer per rank, so that nothing is added in the node. A rank sends up to twice the size.

A rank is a compute node with one buffer, since between nodes NCCL's rings and trees over all GPUs of a node carry the
same bytes; or, of nodes with an inside, a GPU.

Of several channels, each is a ring over its own part of the data; where hosts have several NICs, ring r uses NIC r (of
as many as there are), as NCCL's channels do. Of several queue pairs, the slices of a ring take turns, so that hashes
choose a path for each (``NCCL_IB_QPS_PER_CONNECTION``).

Where a switch joins all GPUs of a node (NVSwitch), rings run from GPU to GPU over it, and each has a NIC of its own.
Ring c enters each node by NIC c at the first GPU that uses it, goes round, and leaves by NIC c again, as NCCL's rings
do (``NCCL_CROSS_NIC``): rails are not crossed, and planes, which no link joins, need not be. What the last GPU sends to
the next node goes by the PCIe link of the first, as if handed to it (``NCCL_PXN``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Annotated

from pydantic import Field, model_validator

from fabric.errors import TopologyError, TrafficError
from fabric.model.identity import NodeId, Role
from fabric.model.inside import Inside, gpu_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.collectives.job import (
    AddressesOf,
    AddressOf,
    Collective,
    CollectiveConfig,
    CollectiveJob,
    ElementsBytes,
    one_address,
    piece_faults,
)
from traffic.collectives.ring import Rings
from traffic.collectives.schedule import Schedule
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import double_binary_tree, sent_fractions, tree_flows
from traffic.job import Stage
from traffic.metrics import busbw_factor


class Algorithm(str, Enum):
    """Two of NCCL's algorithms, by its names (``NCCL_ALGO``)."""

    RING = "ring"
    TREE = "tree"


MOST_CHANNELS = 32


class NcclConfig(CollectiveConfig):
    """An allreduce of ``size`` bytes per rank, forwarded in pieces of ``slice`` (NCCL: 1 MiB at full scale)."""

    algorithm: Annotated[Algorithm, Field(strict=False)] = Field(
        default=Algorithm.RING,
        description="NCCL's algorithm (`NCCL_ALGO`): a ring for bandwidth, a double binary tree for latency.",
    )
    slice: ElementsBytes = Field(
        default=32 * 1024,
        description="Size of the pieces that a rank forwards. Smaller fills the ring sooner, and costs more per byte.",
    )
    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS)] = Field(
        default=1, description="Rings that share the data, each over a NIC of its own as far as hosts have them."
    )
    queue_pairs: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Connections from a rank of a ring to the next. More spread its data over more ECMP paths.",
    )
    failover: bool = Field(
        default=False,
        description=(
            "Whether a job that begins again after a stall uses only rings whose NICs' links are up at every rank."
        ),
    )

    @model_validator(mode="after")
    def _verify_ring(self) -> NcclConfig:
        if self.algorithm is Algorithm.TREE and (self.channels, self.queue_pairs) != (1, 1):
            raise ValueError(
                f"channels: {self.channels}, queue_pairs: {self.queue_pairs}: a tree has one each; use algorithm: ring"
            )
        if self.failover and self.stall_timeout is None:
            raise ValueError("failover: a job begins again only with a stall_timeout; set one")
        return self

    def piece_faults(self) -> Iterator[str]:
        """Yield that a slice is more than all, if so."""
        yield from piece_faults("slice", self.slice, self.size)


def sent_fraction(algorithm: Algorithm, ranks: int) -> float:
    """Return what the busiest of two or more ranks sends in an allreduce, as a multiple of the size."""
    if algorithm is Algorithm.TREE:
        return max(sent_fractions(double_binary_tree(ranks)))
    return busbw_factor("allreduce", ranks)


def nccl_flows(algorithm: Algorithm, ranks: int) -> list[tuple[int, int, float]]:
    """Return (from rank, to rank, multiple of the size) of all that a step sends."""
    if algorithm is Algorithm.TREE:
        return tree_flows(double_binary_tree(ranks))
    return [(rank, (rank + 1) % ranks, sent_fraction(algorithm, ranks)) for rank in range(ranks)]


class NcclJob(CollectiveJob):
    """An allreduce over ``ranks`` in their order, one per compute node, by default in the NCCL service level."""

    def __init__(
        self,
        stage: Stage,
        config: NcclConfig,
        ranks: Sequence[NodeId],
        address_of: AddressOf | None = None,
        name: str | None = None,
        level: ServiceLevel = ServiceLevel.NCCL,
    ) -> None:
        orders = None
        if config.algorithm is Algorithm.RING and are_switched(stage.fabric, ranks):
            orders = switched_orders(stage.fabric, config.channels)
            addresses_of = switched_addresses(stage.fabric, config)
        elif address_of is None and config.channels > 1:
            addresses_of = rail_addresses(stage.fabric, ranks, config.channels)
        else:
            addresses_of = one_address(stage, ranks, address_of)
        ideal_s = 0.0
        if len(ranks) > 1:  # Fewer are refused by CollectiveJob, in its words.
            sent_bits = sent_fraction(config.algorithm, len(ranks)) * config.size * 8
            nics = len(set(addresses_of(ranks[0]))) if orders is None else 1
            ideal_s = sent_bits / (nics * stage.fabric.nic_rate_bps)
        if config.failover and address_of is not None:
            raise TrafficError("NCCL: failover chooses among NICs, and these ranks have one each; leave it out")
        over = partial(_schedule, config, len(ranks)) if config.failover else None
        schedule = _schedule(config, len(ranks), config.channels, orders)
        collective = Collective("NCCL", level, schedule, 1, ideal_s, over=over)
        super().__init__(stage, collective, config, ranks, addresses_of, name)


def rail_addresses(fabric: Fabric, ranks: Sequence[NodeId], channels: int) -> AddressesOf:
    """Return how a job finds the address that each channel of a node has: on NIC r, of as many as there are.

    Raises TopologyError if nodes have unequally many NICs, or those of one number do not reach each other.
    """
    nics_of = {node: fabric.nics_of[node] for node in ranks}
    if len({len(nics) for nics in nics_of.values()}) > 1:
        some = ", ".join(f"{node}: {len(nics)}" for node, nics in list(nics_of.items())[:3])
        raise TopologyError(
            fabric.name, [f"ring r uses NIC r, and hosts have unequally many ({some} ...); choose others"]
        )
    for number, nic in enumerate(nics_of[ranks[0]]):
        lost = [node for node in ranks[1:] if not fabric.reaches(nic, nics_of[node][number])]
        if lost:
            raise TopologyError(
                fabric.name,
                [f"NICs number {number} of {ranks[0]} and {lost[0]} do not reach each other; choose others"],
            )
    rails = rails_of(fabric, ranks[0], channels)
    return lambda node: tuple(nics_of[node][rail].ip for rail in rails)


def rails_of(fabric: Fabric, host: NodeId, channels: int) -> tuple[int, ...]:
    """Return the number of the NIC that each of several channels uses, where hosts have as many as ``host``."""
    return tuple(channel % len(fabric.nics_of[host]) for channel in range(channels))


def are_switched(fabric: Fabric, ranks: Sequence[NodeId]) -> bool:
    """Return whether the ranks are GPUs that a switch joins, node by node and all of a node, in order."""
    inside = fabric.inside
    if inside is None or not inside.has_nvswitch or ranks[0].role is not Role.GPU:
        return False
    hosts = [rank.host for rank in ranks[:: inside.gpus]]
    return list(ranks) == [gpu_of(host, number) for host in hosts for number in range(inside.gpus)]


def switched_orders(fabric: Fabric, channels: int) -> tuple[tuple[int, ...], ...]:
    """Return the order in which each ring goes through the GPUs of a node, from that by which it enters."""
    assert fabric.inside is not None
    gpus = fabric.inside.gpus
    return tuple((*range(entry, gpus), *range(entry)) for entry in _entries(fabric.inside, channels))


def switched_addresses(fabric: Fabric, config: NcclConfig) -> AddressesOf:
    """Return how a job finds the address that each channel of a GPU has: between nodes that of the GPU by which the
    ring enters, inside its own on NVLink."""
    assert fabric.inside is not None
    entries = _entries(fabric.inside, config.channels) * config.queue_pairs

    def addresses_of(gpu: NodeId) -> tuple[str, ...]:
        outer = (fabric.address_inside(gpu_of(gpu.host, entry)) for entry in entries)
        return (*outer, *(fabric.address_inside(gpu, nvlink=True),) * config.channels)

    return addresses_of


def _entries(inside: Inside, channels: int) -> tuple[int, ...]:
    """Return the GPU at which each ring enters a node: the first of each NIC, in turn."""
    firsts = [inside.nic_of_gpu.index(nic) for nic in sorted(set(inside.nic_of_gpu))]
    return tuple(firsts[channel % len(firsts)] for channel in range(channels))


def _schedule(
    config: NcclConfig, ranks: int, rings: int, orders: tuple[tuple[int, ...], ...] | None = None
) -> Schedule:
    elements, dtype = config.elements_of(config.size), config.dtype
    slice_elements = min(config.elements_of(config.slice), elements)
    if config.algorithm is Algorithm.TREE:
        return TreeAllreduce(double_binary_tree(ranks), elements, slice_elements, slots=config.slots, dtype=dtype)
    return Rings(ranks, elements, slice_elements, config.slots, rings, config.queue_pairs, dtype, orders)
