"""``fabric bench inside``: each limit of a node alone, measured by packets, against its closed form."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app.commands.packet_hops import bring_up_by_config
from fabric.errors import EmulationError, UsageError
from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.inside import BudgetKind, Inside, budget_name, cpu_of, gpu_of, to_cpu, to_gpu
from fabric.model.lanes import QueueConfig, Queueing
from fabric.model.network import Fabric, Port
from fabric.queueing import budgets
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from fabric.world.isolation import netns
from runs.live import LiveFabric
from topologies.load import load_fabric

_TOPOLOGY, _SMALL = "fire_flyer_2_nodes", ("compute=2", "storage=0", "leaves_per_zone=1", "spines_per_zone=1")
_START_S, _MEASURED_S = 0.0002, 0.0005
_ENDING_S = 5.0
_PORT = 5000
_UDP_HEADERS = 28
_RESERVED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class LimitRow:
    """A limit: what loads it, which is its closed form and what packets reached, both in GB/s with headers."""

    name: str
    closed_form: float
    measured: float
    form: str


@dataclass(frozen=True)
class _Load:
    """Flows between parts, the ports whose sending is added up, and what that should be in bytes per second."""

    name: str
    flows: tuple[tuple[NodeId, NodeId], ...]
    counted: tuple[Port, ...]
    expected_Bps: float  # noqa: N815 - bytes, not bits
    form: str
    nvlink: bool = False


def bench_inside(topology: str | None = None) -> SummaryTable:
    """Return each limit of a node with an inside, alone, against its closed form."""
    rows = limit_rows(load_fabric(_TOPOLOGY, _SMALL) if topology is None else load_fabric(topology))
    cells: list[Row] = [
        [
            row.name,
            *(quantity(1e9 * rate, ".2f in GB/s") for rate in (row.closed_form, row.measured)),
            quantity(row.measured / row.closed_form, ".2%"),
            row.form,
        ]
        for row in rows
    ]
    return SummaryTable("Inside a node", ["limit", "closed form, GB/s", "measured", "of it", "form"], cells)


def limit_rows(fabric: Fabric) -> list[LimitRow]:
    """Return the rows of all limits. Raises UsageError if the fabric's nodes are points."""
    if fabric.inside is None:
        raise UsageError(f"{fabric.name}: its nodes have no inside; set node, e.g. node=fire_flyer_2")
    with bring_up_by_config(fabric, QueueConfig(), Queueing.LOSSLESS) as live:
        return limits_of(live, fabric.inside)


def limits_of(live: LiveFabric, inside: Inside) -> list[LimitRow]:
    """Return the rows of the first node of a fabric that is up."""
    host, other = live.fabric.computes[:2]
    rows = [_measured(live, load) for load in _loads(live.fabric, inside, host, other)]
    return [*rows, _reserved(inside, host)]


# What loads each limit -----------------------------------------------------------------------------------------------


def _loads(fabric: Fabric, inside: Inside, host: NodeId, other: NodeId) -> Iterator[_Load]:
    cpu, gpus = cpu_of(host), [gpu_of(host, number) for number in range(inside.gpus)]
    link = inside.gpu_link_bps / 8
    nic = fabric.nic_rate_bps / 8
    yield _Load("a GPU to its CPU (D2H)", ((gpus[0], cpu),), (Port(gpus[0], 0),), link, "PCIe")
    yield _Load("a CPU to a GPU (H2D)", ((cpu, gpus[0]),), (Port(*to_gpu(host, 0)),), link, "PCIe")
    yield from _root_port_loads(inside, host)
    yield from _memory_loads(inside, host)
    remote = cpu_of(other)
    yield _Load("the CPU to the network", ((cpu, remote),), (Port(host, 0),), nic, "NIC")
    peer = min(nic, inside.peer_to_peer_Bps or nic)
    near = [gpu for gpu in range(inside.gpus) if inside.nic_of_gpu[gpu] == 0]
    flows = tuple((gpus[gpu], gpu_of(other, gpu)) for gpu in near)
    yield _Load("all GPUs of a NIC to the network", flows, (Port(host, 0),), peer, "peer-to-peer limit of a NIC")
    flows = tuple((gpu_of(other, gpu), gpus[gpu]) for gpu in near)
    arriving = tuple(Port(*to_gpu(host, gpu)) for gpu in near)
    yield _Load("the network to all GPUs of a NIC", flows, arriving, peer, "peer-to-peer limit of a NIC")
    if inside.nvlink is not None:
        pair = (gpus[0], gpus[inside.nvlink.peers(0)[0]])
        rate = inside.nvlink.rate_bps / 8
        yield _Load("a GPU to its peer over NVLink", (pair,), (Port(gpus[0], 1),), rate, "NVLink", nvlink=True)


def _root_port_loads(inside: Inside, host: NodeId) -> Iterator[_Load]:
    cpu = cpu_of(host)
    for root_port in inside.root_ports:
        gpus = [gpu_of(host, number) for number in root_port.gpus]
        out, into = [Port(gpu, 0) for gpu in gpus], [Port(*to_gpu(host, number)) for number in root_port.gpus]
        names = ", ".join(f"g{number}" for number in root_port.gpus)
        up = tuple((gpu, cpu) for gpu in gpus)
        down = tuple((cpu, gpu) for gpu in gpus)
        form = "root port, both directions together"
        links_Bps = len(gpus) * inside.gpu_link_bps / 8  # noqa: N806 - bytes, not bits
        yield _Load(f"{names} to the CPU", up, tuple(out), min(links_Bps, root_port.rate_Bps), "root port, PCIe")
        yield _Load(f"{names} to the CPU and back", up + down, (*out, *into), root_port.rate_Bps, form)


def _memory_loads(inside: Inside, host: NodeId) -> Iterator[_Load]:
    """All GPUs to the CPU and back: what memory has left of the writes goes to the copies' reads, by their weight."""
    cpu, gpus = cpu_of(host), [gpu_of(host, number) for number in range(inside.gpus)]
    up = tuple((gpu, cpu) for gpu in gpus)
    links = _fair_of_links(inside)
    yield _Load("all GPUs to the CPU", up, (Port(*to_cpu(host)),), min(links, inside.memory_Bps), "PCIe, root ports")


def _fair_of_links(inside: Inside) -> float:
    """Return what all GPUs can send to the CPU in bytes per second, as far as links and root ports go."""
    shared = {gpu for root_port in inside.root_ports for gpu in root_port.gpus}
    alone = (inside.gpus - len(shared)) * inside.gpu_link_bps / 8
    together = sum(min(one.rate_Bps, len(one.gpus) * inside.gpu_link_bps / 8) for one in inside.root_ports)
    return alone + together


def _reserved(inside: Inside, host: NodeId) -> LimitRow:
    """Return how fast the CPU's own memory operations are, alone."""
    taking = budgets.Reserving(budgets.number_of(budget_name(host, BudgetKind.MEMORY, 0)))
    began = time.monotonic()
    taking.take(_RESERVED_BYTES)
    rate = _RESERVED_BYTES / (time.monotonic() - began)
    taking.close()
    return LimitRow("the CPU's memory operations", inside.memory_Bps / 1e9, rate / 1e9, "memory")


# Packets -------------------------------------------------------------------------------------------------------------


def _measured(live: LiveFabric, load: _Load) -> LimitRow:
    fabric = live.fabric
    with ExitStack() as stack:
        for sink in dict.fromkeys(sink for _, sink in load.flows):
            stack.enter_context(_sink(live, sink, load.nvlink))
        for source, sink in load.flows:
            stack.enter_context(_sender(live, source, fabric.address_inside(sink, load.nvlink), load.nvlink))
        time.sleep(_START_S)
        before, began = _sent_bytes(live, load.counted), time.monotonic()
        time.sleep(_MEASURED_S)
        after, ended = _sent_bytes(live, load.counted), time.monotonic()
    time.sleep(_START_S)
    return LimitRow(load.name, load.expected_Bps / 1e9, (after - before) / (ended - began) / 1e9, load.form)


def _sent_bytes(live: LiveFabric, ports: Sequence[Port]) -> int:
    counters = lane_counters(live.emulation, "sent_bytes")
    return sum(value for (port, _), value in counters.items() if port in ports)


def _socket_of(live: LiveFabric, part: NodeId, port: int, nvlink: bool) -> socket.socket:
    namespace = live.emulation.namespace_of(part)
    assert namespace is not None, "parts are in the namespace of their node"
    with netns.inside(namespace):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((live.fabric.address_inside(part, nvlink), port))
    return made


@contextmanager
def _sink(live: LiveFabric, part: NodeId, nvlink: bool) -> Iterator[None]:
    """Let datagrams to a part come in: its socket drops what it has no room for, and nobody answers."""
    with _socket_of(live, part, _PORT, nvlink):
        yield


@contextmanager
def _sender(live: LiveFabric, part: NodeId, address: str, nvlink: bool) -> Iterator[None]:
    """Let a part send full datagrams as fast as its socket takes them, for the time of a block.

    In a thread: to fork this process takes longer than all that is measured.
    """
    ending = threading.Event()
    with _socket_of(live, part, 0, nvlink) as sender:
        data = bytes(live.fabric.mtu_bytes - _UDP_HEADERS)
        thread = threading.Thread(target=_send, args=(sender, data, (address, _PORT), ending), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(_ENDING_S)
            if thread.is_alive():
                raise EmulationError(f"{part}: its queues took no datagram within {_ENDING_S:g} s")


def _send(sender: socket.socket, data: bytes, to: tuple[str, int], ending: threading.Event) -> None:
    while not ending.is_set():
        sender.sendto(data, to)
