"""NCCL-like collectives over TCP: any of :mod:`traffic.collectives.listing`, by its rings or another of its algorithms.

A rank is a compute node with one buffer, since between nodes NCCL's rings and trees over all GPUs of a node carry the
same bytes; or, of nodes with an inside, a GPU. Rings and their channels: see :mod:`traffic.collectives.ring`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fabric.errors import TopologyError, TrafficError
from fabric.model.identity import NodeId, Role
from fabric.model.inside import Inside, gpu_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.model.rails import most_nics, rails_in_common
from traffic.collectives.collective import Collective, CollectiveAlgorithm, Flows, Layout, ScheduleOptions
from traffic.collectives.elements import Dtype
from traffic.collectives.job import (
    AddressesOf,
    AddressOf,
    CollectiveConfig,
    CollectiveJob,
    PieceBytes,
    PlannedCollective,
    one_address,
    piece_faults,
)
from traffic.collectives.listing import COLLECTIVES, DEFAULT_COLLECTIVE, collective_named
from traffic.collectives.msccl import parse_msccl, read_msccl
from traffic.collectives.operations.all_to_all_v import ALL_TO_ALL_V, all_to_all_of, size_of
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.operations.push_pull import PUSH_PULL
from traffic.collectives.schedule import Schedule
from traffic.job import Stage
from traffic.transport.rails import nics_of


class Algorithm(str, Enum):
    """Two of NCCL's algorithms, by its names (``NCCL_ALGO``): those of an allreduce."""

    RING = "ring"
    TREE = "tree"


MOST_CHANNELS = 32


def _collective_name(value: str) -> str:
    collective_named(value)
    return value


def _msccl_text(value: str) -> str:
    """Return the text of a file, or the value if it is one itself. Raises ValueError."""
    if value.lstrip().startswith("<"):
        return value
    path = Path(value).expanduser()
    try:
        read_msccl(path)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{value}: cannot be read: {error.strerror}; give the path of an XML file") from None


MscclText = Annotated[str, AfterValidator(_msccl_text)]
"""The text of an algorithm as MSCCL's XML; or the path of its file, whose text takes its place."""


class NodeRanksError(ValueError):
    """The ranks are not a multiple of ``node_ranks``."""


class NcclConfig(CollectiveConfig):
    """A collective of ``size`` bytes, forwarded in pieces of ``slice`` (NCCL: 1 MiB at full scale)."""

    collective: Annotated[str, AfterValidator(_collective_name)] = Field(
        default=DEFAULT_COLLECTIVE,
        description=f"The collective: {', '.join(COLLECTIVES)}. Concepts say what is its `size`, and its algorithms.",
    )
    algorithm: str | None = Field(
        default=None,
        description=(
            "The collective's algorithm (`NCCL_ALGO`): of an allreduce a ring for bandwidth, trees or "
            "`halving_doubling` for latency. Without it, the first that the collective has."
        ),
    )
    slice: PieceBytes = Field(
        default=32 * 1024,
        description="Size of the pieces that a rank forwards. Smaller fills the ring sooner, and costs more per byte.",
    )
    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS)] | None = Field(
        default=None,
        description=(
            "Rings that share the data, each over a NIC of its own as far as hosts have them. Without it, one for each "
            "NIC. Other algorithms divide what they send over all NICs."
        ),
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

    servers: Annotated[int, Field(ge=0, le=65_536)] = Field(
        default=0,
        description=(
            "Of the ranks, how many of the last are parameter servers without data of their own (`push_pull`). Without "
            "any, each worker serves a share."
        ),
    )
    counts: list[list[Annotated[int, Field(ge=0, le=2**36)]]] | None = Field(
        default=None,
        description=(
            "Of an `all_to_all_v`: elements from each rank (a row each) to each, in proportion if there is a `size`. "
            "Without it, blocks grow with the distance from rank to rank."
        ),
    )
    msccl: MscclText | None = Field(
        default=None,
        description=(
            "An algorithm of your own as MSCCL's XML: a path, or the text itself, which results keep. It says which "
            "`collective` it is, and for how many ranks."
        ),
    )
    node_ranks: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Ranks in a row that a hierarchical algorithm takes for a node. Without it, those that share a host; where "
            "none do, as many as come closest to the root of all."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, data: Any) -> Any:
        """Say what follows from other keys, where it is not said: the collective of a file or of counts, their size."""
        return _derived(dict(data)) if isinstance(data, Mapping) else data

    @property
    def planned_collective(self) -> Collective:
        """The collective, with its own algorithm if it has one from a file. Raises ValueError if it is wrong."""
        if self.msccl is not None:
            return parse_msccl(self.msccl).played
        if self.counts is not None:
            return all_to_all_of(self.counts)
        return collective_named(self.collective).with_servers(self.servers)

    def layout(self, ranks: Sequence[NodeId]) -> Layout:
        """Return which ranks share a node, and how many are servers. Raises ValueError if nodes' ranks do not fit."""
        count = len(ranks)
        if self.node_ranks is not None:
            if count % self.node_ranks:
                raise NodeRanksError(f"node_ranks: {self.node_ranks} do not divide {count} ranks; use a divisor")
            firsts = range(0, count, self.node_ranks)
            return Layout(count, tuple(tuple(range(one, one + self.node_ranks)) for one in firsts), self.servers)
        hosts: dict[NodeId, list[int]] = {}
        for rank, node in enumerate(ranks):
            hosts.setdefault(node.host, []).append(rank)
        groups = None if len(hosts) == count else tuple(map(tuple, hosts.values()))
        return Layout(count, groups, self.servers)

    def flows(self, ranks: Sequence[NodeId]) -> Flows:
        """Return what a step sends over ranks. Raises TrafficError if it cannot be carried out over them."""
        try:
            return self.planned_algorithm.flows_over(self.layout(ranks))
        except ValueError as error:
            raise TrafficError(f"NCCL: {error}") from error

    @property
    def planned_algorithm(self) -> CollectiveAlgorithm:
        """The algorithm of it that is played."""
        return self.planned_collective.algorithm(self.algorithm)

    @model_validator(mode="after")
    def _verify_algorithm(self) -> NcclConfig:
        _verify_parts(self)
        collective = self.planned_collective
        try:
            chosen = collective.algorithm(self.algorithm)
        except ValueError as error:
            raise ValueError(f"algorithm: {error}") from None
        if not chosen.has_channels and (self.channels or 1, self.queue_pairs) != (1, 1):
            others = [name for name, one in collective.algorithms.items() if one.has_channels]
            step = f"use algorithm: {others[0]}" if others else "leave both out"
            name = self.algorithm or next(iter(collective.algorithms))
            raise ValueError(
                f"channels: {self.channels or 1}, queue_pairs: {self.queue_pairs}: algorithm {name} has one each; "
                f"{step}"
            )
        if self.failover and self.stall_timeout is None:
            raise ValueError("failover: a job begins again only with a stall_timeout; set one")
        return self

    def piece_faults(self) -> Iterator[str]:
        """Yield that a slice is more than all, if so."""
        yield from piece_faults("slice", self.slice, self.size)


def _derived(data: dict[str, Any]) -> dict[str, Any]:
    """Return a config's keys with those that follow from others."""
    collective = None
    if isinstance(text := data.get("msccl"), str):
        try:
            data["msccl"] = text = _msccl_text(text)
            collective = parse_msccl(text).played.name
        except ValueError as error:
            raise ValueError(f"msccl: {error}") from None
    elif data.get("counts") is not None:
        collective = ALL_TO_ALL_V.name
    if collective is not None and data.setdefault("collective", collective) != collective:
        key = "msccl" if "msccl" in data else "counts"
        raise ValueError(f"collective: {data['collective']}, and {key} is of an {collective}; leave collective out")
    if data.get("collective") == BARRIER.name:
        data.setdefault("size", 0)
    elif collective == ALL_TO_ALL_V.name and "size" not in data:
        with contextlib.suppress(ValueError, TypeError):  # What is wrong with them is said of the key itself.
            data["size"] = size_of(data["counts"]) * Dtype(data.get("dtype", Dtype.FP32)).size_bytes
    return data


def _verify_parts(config: NcclConfig) -> None:
    """Raise ValueError for keys that do not go together."""
    if config.msccl is not None and config.algorithm is not None:
        raise ValueError(f"algorithm: {config.algorithm}, and msccl is one, too; leave one out")
    if config.collective == BARRIER.name and config.size:
        raise ValueError(f"size: {config.size} bytes, and a barrier carries no data; leave it out")
    if config.servers and config.collective != PUSH_PULL.name:
        raise ValueError(f"servers: {config.servers}, and {config.collective} has none; use push_pull, or leave it out")


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
        fabric, orders = stage.fabric, None
        is_switched, has_channels = are_switched(fabric, ranks), config.planned_algorithm.has_channels
        channels = channels_of(config, fabric, ranks) if is_switched or address_of is None else config.channels or 1
        if is_switched:
            if has_channels:
                orders = switched_orders(fabric, channels)
                addresses_of = _at(stage, switched_addresses(fabric, channels, config.queue_pairs))
            else:
                addresses_of = _at(stage, partial(_inner_and_outer, fabric))
        elif address_of is None and has_channels:
            addresses_of = _at(stage, ring_addresses(config, fabric, ranks))
        else:
            addresses_of = one_address(stage, ranks, address_of)
        if config.failover and address_of is not None:
            raise TrafficError("NCCL: failover chooses among NICs, and these ranks have one each; leave it out")
        nics = len({part for address in addresses_of(ranks[0]) for part in nics_of(address)}) if not is_switched else 1
        try:
            layout = config.layout(ranks)
            ideal_s = _ideal_s(config, layout, nics * fabric.nic_rate_bps)
            over = partial(_schedule, config, layout) if config.failover else None
            schedule = _schedule(config, layout, channels, orders)
        except ValueError as error:
            raise TrafficError(f"NCCL: {error}") from error
        planned = PlannedCollective("NCCL", config.planned_collective, level, schedule, 1, ideal_s, over=over)
        super().__init__(stage, planned, config, ranks, addresses_of, name)


def _ideal_s(config: NcclConfig, layout: Layout, rate_bps: float) -> float:
    """Return how long a step takes if the busiest rank's NICs are full; 0 of ranks so few that no job takes them."""
    if layout.ranks < 2:
        return 0.0
    return config.planned_algorithm.busiest_fraction(layout) * config.size * 8 / rate_bps


def _at(stage: Stage, addresses_of: AddressesOf) -> AddressesOf:
    """Return where programs find addresses of the fabric."""
    return lambda node: tuple(map(stage.address_of, addresses_of(node)))


def channels_of(config: NcclConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> int:
    """Return how many channels a job has over ranks that are points, or GPUs that a switch joins: by default one for
    each of their NICs, of an algorithm that has channels."""
    if config.channels is not None or not config.planned_algorithm.has_channels:
        return config.channels or 1
    if fabric.inside is not None and ranks[0].role is Role.GPU:
        return len(set(fabric.inside.nic_of_gpu))
    return min(MOST_CHANNELS, most_nics(rails_in_common(fabric, ranks)))


def ring_addresses(config: NcclConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> AddressesOf:
    """Return how a job over points finds the address that each channel of a node has. Raises TopologyError."""
    channels = channels_of(config, fabric, ranks)
    if config.channels is None:
        nics = rails_in_common(fabric, ranks)
        return lambda node: tuple(nics[node][channel % len(nics[node])].ip for channel in range(channels))
    if channels > 1:
        return rail_addresses(fabric, ranks, channels)
    first = fabric.nics_in_common(ranks)
    return lambda node: (first[node].ip,)


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


def switched_addresses(fabric: Fabric, channels: int, queue_pairs: int) -> AddressesOf:
    """Return how a job finds the address that each channel of a GPU has: between nodes that of the GPU by which the
    ring enters, inside its own on NVLink."""
    assert fabric.inside is not None
    entries = _entries(fabric.inside, channels) * queue_pairs

    def addresses_of(gpu: NodeId) -> tuple[str, ...]:
        outer = (fabric.address_inside(gpu_of(gpu.host, entry)) for entry in entries)
        return (*outer, *(fabric.address_inside(gpu, nvlink=True),) * channels)

    return addresses_of


def _inner_and_outer(fabric: Fabric, gpu: NodeId) -> tuple[str, ...]:
    """Return the addresses of a GPU for connections between nodes, and for those in its own, over NVLink."""
    return fabric.address_inside(gpu), fabric.address_inside(gpu, nvlink=True)


def _entries(inside: Inside, channels: int) -> tuple[int, ...]:
    """Return the GPU at which each ring enters a node: the first of each NIC, in turn."""
    firsts = [inside.nic_of_gpu.index(nic) for nic in sorted(set(inside.nic_of_gpu))]
    return tuple(firsts[channel % len(firsts)] for channel in range(channels))


def _schedule(
    config: NcclConfig, layout: Layout, rings: int, orders: tuple[tuple[int, ...], ...] | None = None
) -> Schedule:
    elements = config.elements_of(config.size)
    return config.planned_algorithm.schedule(
        ScheduleOptions(
            ranks=layout.ranks,
            elements=elements,
            piece_elements=max(1, min(config.elements_of(config.slice), elements)),
            slots=config.slots,
            dtype=config.dtype,
            channels=rings,
            queue_pairs=config.queue_pairs,
            orders=orders,
            groups=layout.groups,
            servers=layout.servers,
        )
    )
