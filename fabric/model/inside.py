"""What is inside a compute node: GPUs, CPU and memory, root ports, NVLink, and the limits that they share.

An :class:`Inside` says what a kind of node has, at the rates of its fabric; :func:`expand` makes the nodes and links of
one host of it, with the budgets that frames at each port draw on. The host itself is where all of them are plugged in:
its ports below :data:`FIRST_INNER_PORT` are its NICs, those from there on lead to its parts, the CPU first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from fabric.model.identity import NodeId, Role

FIRST_INNER_PORT = 16
"""Of a host: the number of the port that leads to its CPU."""

PortType = TypeVar("PortType")


class BudgetKind(Enum):
    """What a budget stands for."""

    MEMORY = "memory"
    ROOT_PORT = "root_port"
    PEER_OUT = "peer_out"
    PEER_IN = "peer_in"


@dataclass(frozen=True)
class RootPort:
    """GPUs that share a root port, and the bytes per second of all of them in both directions together."""

    gpus: tuple[int, ...]
    rate_Bps: int  # noqa: N815 - bytes, not bits


@dataclass(frozen=True)
class NvLink:
    """How GPUs are joined directly: ``groups`` of two by a link each, larger ones by a switch for all.

    ``rate_bps`` is a GPU's, per direction.
    """

    groups: tuple[tuple[int, ...], ...]
    rate_bps: int

    @property
    def is_switched(self) -> bool:
        """Whether a switch joins them."""
        return any(len(group) > 2 for group in self.groups)

    def peers(self, gpu: int) -> tuple[int, ...]:
        """Return the other GPUs that a GPU reaches by NVLink."""
        return next((tuple(one for one in group if one != gpu) for group in self.groups if gpu in group), ())


@dataclass(frozen=True)
class Inside:
    """A kind of compute node. Rates are the fabric's own: of links in bit/s, of budgets in bytes per second.

    ``nic_of_gpu``: the NIC by which each GPU speaks to other nodes. ``copy_reads``: how often memory is read for one
    byte that is copied to all GPUs of a node (H2D): 2 with GDRCopy, once for each GPU with MemcpyAsync.
    ``peer_to_peer_Bps``: what a NIC reads from all GPUs together, and what it writes to them; None: its own rate.
    """

    name: str
    gpu_link_bps: int
    memory_Bps: int  # noqa: N815 - bytes, not bits
    copy_reads: float
    nic_of_gpu: tuple[int, ...]
    peer_to_peer_Bps: int | None = None  # noqa: N815
    root_ports: tuple[RootPort, ...] = ()
    nvlink: NvLink | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs a node has."""
        return len(self.nic_of_gpu)

    @property
    def has_nvswitch(self) -> bool:
        """Whether a switch joins its GPUs."""
        return self.nvlink is not None and self.nvlink.is_switched

    @property
    def memory_bps(self) -> int:
        """The rate of the CPU's own link: as fast as its memory."""
        return 8 * self.memory_Bps

    @property
    def block(self) -> int:
        """Addresses of a NIC: the CPU's, and one for each GPU, two with NVLink; a power of 2."""
        most = max((self.nic_of_gpu.count(nic) for nic in set(self.nic_of_gpu)), default=0)
        return 1 << (most * (2 if self.nvlink else 1)).bit_length()

    def offset(self, gpu: int, nvlink: bool = False) -> int:
        """Return which address of its NIC's block a GPU has: on PCIe, or on NVLink."""
        nic = self.nic_of_gpu[gpu]
        before = self.nic_of_gpu[:gpu].count(nic)
        return 1 + before + (self.nic_of_gpu.count(nic) if nvlink else 0)


@dataclass(frozen=True)
class InnerLink(Generic[PortType]):
    """A link inside a node, by its ends."""

    a: PortType
    b: PortType
    rate_bps: int


@dataclass(frozen=True)
class Draw(Generic[PortType]):
    """What the frames that a port sends draw on: ``weight`` bytes of a budget for each of theirs, if they came in by
    ``of_input`` (None: all). ``number`` tells a node's budgets of one kind apart."""

    port: PortType
    kind: BudgetKind
    number: int
    rate_Bps: int  # noqa: N815
    weight: float = 1.0
    of_input: PortType | None = None

    @property
    def budget(self) -> tuple[BudgetKind, int]:
        """Which budget of the node."""
        return self.kind, self.number


Spot = tuple[NodeId, int]
"""A node and the number of its port."""


def budget_name(host: NodeId, kind: BudgetKind, number: int) -> str:
    """Return what a node's budget is called: ``z0h117 memory 0``."""
    return f"{host} {kind.value} {number}"


def cpu_of(host: NodeId) -> NodeId:
    """Return a host's CPU."""
    return NodeId(Role.CPU, host.zone, host.index, 0)


def gpu_of(host: NodeId, number: int) -> NodeId:
    """Return a GPU of a host."""
    return NodeId(Role.GPU, host.zone, host.index, number)


def nvswitch_of(host: NodeId) -> NodeId:
    """Return what joins a host's GPUs, where it is a switch."""
    return NodeId(Role.NVSWITCH, host.zone, host.index, 0)


def parts_of(inside: Inside, host: NodeId) -> tuple[NodeId, ...]:
    """Return the parts of a host: its CPU, its GPUs, and its NVSwitch if it has one."""
    gpus = (gpu_of(host, number) for number in range(inside.gpus))
    switch = [nvswitch_of(host)] if inside.has_nvswitch else []
    return (cpu_of(host), *gpus, *switch)


def to_gpu(host: NodeId, gpu: int) -> Spot:
    """Return the port of a host that leads to a GPU."""
    return host, FIRST_INNER_PORT + 1 + gpu


def to_cpu(host: NodeId) -> Spot:
    """Return the port of a host that leads to its CPU."""
    return host, FIRST_INNER_PORT


def inner_links(inside: Inside, host: NodeId) -> Iterator[InnerLink[Spot]]:
    """Yield the links of a host: the CPU's, one to each GPU, then NVLink's."""
    yield InnerLink((cpu_of(host), 0), to_cpu(host), inside.memory_bps)
    for gpu in range(inside.gpus):
        yield InnerLink((gpu_of(host, gpu), 0), to_gpu(host, gpu), inside.gpu_link_bps)
    if inside.nvlink is None:
        return
    for group in inside.nvlink.groups:
        ends = [(gpu_of(host, gpu), 1) for gpu in group]
        if inside.nvlink.is_switched:
            for gpu, end in zip(group, ends, strict=True):
                yield InnerLink(end, (nvswitch_of(host), 1 + gpu), inside.nvlink.rate_bps)
        elif len(ends) == 2:
            yield InnerLink(ends[0], ends[1], inside.nvlink.rate_bps)


def draws_of(inside: Inside, host: NodeId, nics: int) -> Iterator[Draw[Spot]]:
    """Yield what draws on which budget in a host with so many NICs."""
    yield from _memory_draws(inside, host, nics)
    for number, root_port in enumerate(inside.root_ports):
        for gpu in root_port.gpus:
            for port in (to_gpu(host, gpu), (gpu_of(host, gpu), 0)):
                yield Draw(port, BudgetKind.ROOT_PORT, number, root_port.rate_Bps)
    if inside.peer_to_peer_Bps is not None:
        yield from _peer_to_peer_draws(inside, host, inside.peer_to_peer_Bps, range(nics))


def _memory_draws(inside: Inside, host: NodeId, nics: int) -> Iterator[Draw[Spot]]:
    """What comes to the CPU is written, what it sends is read; to GPUs, once for several of them."""
    rate, cpu = inside.memory_Bps, to_cpu(host)
    yield Draw(cpu, BudgetKind.MEMORY, 0, rate)
    for nic in range(nics):
        yield Draw((host, nic), BudgetKind.MEMORY, 0, rate, of_input=cpu)
    for gpu in range(inside.gpus):
        yield Draw(to_gpu(host, gpu), BudgetKind.MEMORY, 0, rate, inside.copy_reads / inside.gpus, cpu)


def _peer_to_peer_draws(inside: Inside, host: NodeId, rate: int, nics: Sequence[int]) -> Iterator[Draw[Spot]]:
    for nic in nics:
        for gpu in range(inside.gpus):
            yield Draw((host, nic), BudgetKind.PEER_OUT, nic, rate, of_input=to_gpu(host, gpu))
            yield Draw(to_gpu(host, gpu), BudgetKind.PEER_IN, nic, rate, of_input=(host, nic))
