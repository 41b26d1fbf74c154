"""NCCL-like collectives over TCP: any of :mod:`traffic.collectives.listing`, by its rings or another of its algorithms.

A rank is a compute node with one buffer, since between nodes NCCL's rings and trees over all GPUs of a node carry the
same bytes; or, of nodes with an inside, a GPU. Rings and their channels: see :mod:`traffic.collectives.ring`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from fabric.errors import TopologyError, TrafficError
from fabric.model.identity import NodeId, Role
from fabric.model.inside import Inside, gpu_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.collectives.collective import Collective, CollectiveAlgorithm, ScheduleOptions
from traffic.collectives.job import (
    AddressesOf,
    AddressOf,
    CollectiveConfig,
    CollectiveJob,
    ElementsBytes,
    PlannedCollective,
    one_address,
    piece_faults,
)
from traffic.collectives.listing import COLLECTIVES, DEFAULT_COLLECTIVE, collective_named
from traffic.collectives.schedule import Schedule
from traffic.job import Stage


class Algorithm(str, Enum):
    """Two of NCCL's algorithms, by its names (``NCCL_ALGO``): those of an allreduce."""

    RING = "ring"
    TREE = "tree"


MOST_CHANNELS = 32


def _collective_name(value: str) -> str:
    collective_named(value)
    return value


def _described_collectives() -> str:
    """Return all collectives with their algorithms, in words."""
    return ", ".join(f"`{one.name}` ({', '.join(one.algorithms)})" for one in COLLECTIVES.values())


class NcclConfig(CollectiveConfig):
    """A collective of ``size`` bytes, forwarded in pieces of ``slice`` (NCCL: 1 MiB at full scale)."""

    collective: Annotated[str, AfterValidator(_collective_name)] = Field(
        default=DEFAULT_COLLECTIVE,
        description=f"The collective, and its algorithms: {_described_collectives()}. Concepts say what is its `size`.",
    )
    algorithm: str | None = Field(
        default=None,
        description=(
            "The collective's algorithm (`NCCL_ALGO`): a ring for bandwidth, a double binary tree for latency. Without "
            "it, the first that it has."
        ),
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

    @property
    def planned_collective(self) -> Collective:
        """The collective."""
        return collective_named(self.collective)

    @property
    def planned_algorithm(self) -> CollectiveAlgorithm:
        """The algorithm of it that is played."""
        return self.planned_collective.algorithm(self.algorithm)

    @model_validator(mode="after")
    def _verify_algorithm(self) -> NcclConfig:
        try:
            chosen = self.planned_algorithm
        except ValueError as error:
            raise ValueError(f"algorithm: {error}") from None
        if not chosen.has_channels and (self.channels, self.queue_pairs) != (1, 1):
            others = [name for name, one in self.planned_collective.algorithms.items() if one.has_channels]
            step = f"use algorithm: {others[0]}" if others else "leave both out"
            name = self.algorithm or next(iter(self.planned_collective.algorithms))
            raise ValueError(
                f"channels: {self.channels}, queue_pairs: {self.queue_pairs}: algorithm {name} has one each; {step}"
            )
        if self.failover and self.stall_timeout is None:
            raise ValueError("failover: a job begins again only with a stall_timeout; set one")
        return self

    def piece_faults(self) -> Iterator[str]:
        """Yield that a slice is more than all, if so."""
        yield from piece_faults("slice", self.slice, self.size)


def sent_fraction(algorithm: str | None, ranks: int, collective: str = DEFAULT_COLLECTIVE) -> float:
    """Return what the busiest of two or more ranks sends in a step, as a multiple of the size."""
    return collective_named(collective).algorithm(algorithm).sent_fraction(ranks)


def nccl_flows(algorithm: str | None, ranks: int, collective: str = DEFAULT_COLLECTIVE) -> list[tuple[int, int, float]]:
    """Return (from rank, to rank, multiple of the size) of all that a step sends."""
    return collective_named(collective).algorithm(algorithm).flows(ranks)


class NcclJob(CollectiveJob):
    """A collective over ``ranks`` in their order, one per compute node, by default in the NCCL service level."""

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
        if config.planned_algorithm.has_channels and are_switched(stage.fabric, ranks):
            orders = switched_orders(stage.fabric, config.channels)
            addresses_of = switched_addresses(stage.fabric, config)
        elif address_of is None and config.channels > 1:
            addresses_of = rail_addresses(stage.fabric, ranks, config.channels)
        else:
            addresses_of = one_address(stage, ranks, address_of)
        ideal_s = 0.0
        if len(ranks) > 1:  # Fewer are refused by CollectiveJob, in its words.
            sent_bits = config.planned_algorithm.sent_fraction(len(ranks)) * config.size * 8
            nics = len(set(addresses_of(ranks[0]))) if orders is None else 1
            ideal_s = sent_bits / (nics * stage.fabric.nic_rate_bps)
        if config.failover and address_of is not None:
            raise TrafficError("NCCL: failover chooses among NICs, and these ranks have one each; leave it out")
        over = partial(_schedule, config, len(ranks)) if config.failover else None
        schedule = _schedule(config, len(ranks), config.channels, orders)
        planned = PlannedCollective("NCCL", config.planned_collective, level, schedule, 1, ideal_s, over=over)
        super().__init__(stage, planned, config, ranks, addresses_of, name)


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
    elements = config.elements_of(config.size)
    return config.planned_algorithm.schedule(
        ScheduleOptions(
            ranks=ranks,
            elements=elements,
            piece_elements=min(config.elements_of(config.slice), elements),
            slots=config.slots,
            dtype=config.dtype,
            channels=rings,
            queue_pairs=config.queue_pairs,
            orders=orders,
        )
    )
