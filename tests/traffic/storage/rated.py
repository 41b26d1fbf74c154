"""Services and clients in one process, in time that jumps, whose hosts have NICs with a rate: no fabric between them.

A message leaves its sender's NIC behind what waits there, and comes through its receiver's behind what comes to that:
what is larger than a packet is not stored on the way. So transfers share NICs as over a fabric that is never full.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fabric.model.identity import NodeId, Role
from fabric.model.lanes import ServiceLevel
from tests.traffic.transport import memory_transport as memory
from traffic.storage.chains import ChainTable, Striping, extents_on, place_chains
from traffic.storage.client.fio_load import fio_files, play
from traffic.storage.client.library import StorageClient
from traffic.storage.config import StorageConfig
from traffic.storage.placement import in_order
from traffic.storage.service.program import StorageService
from traffic.storage.wire.calls import LinkListener, Tasks
from traffic.storage.wire.links import Links
from traffic.transport.connection import Endpoint, SocketOptions


@dataclass
class Nics:
    """The NICs of hosts, by name. ``rate_bps`` each way, ``latency_s`` from one to another."""

    rate_bps: float
    latency_s: float = 0.0
    _out_free_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _in_free_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def arrives_s(self, source: str, target: str, size_bytes: int) -> float:
        """When all of a message has arrived that is sent now."""
        now, took = time.monotonic(), size_bytes * 8 / self.rate_bps
        began_s = max(now, self._out_free_s[source])
        self._out_free_s[source] = began_s + took
        self._in_free_s[target] = max(began_s, self._in_free_s[target]) + took
        return self._in_free_s[target] + self.latency_s


@dataclass
class _Way(memory._Way):
    nics: Nics = field(default_factory=lambda: Nics(1))
    ends: tuple[str, str] = ("", "")

    def put(self, message: bytes, wait_s: float | None) -> int:
        at_s = self.nics.arrives_s(*self.ends, len(message))
        asyncio.get_running_loop().call_at(at_s, self._arrive, message)
        return len(message)

    def _arrive(self, message: bytes) -> None:
        self.room_bytes = 1 << 60
        if not self.has_ended:
            super().put(message, 0)


@dataclass(frozen=True)
class RatedTransport:
    """The network as one host sees it; addresses are the names of hosts."""

    nics: Nics
    host: str
    options: SocketOptions = SocketOptions(ServiceLevel.STORAGE)  # noqa: RUF009 - frozen

    def listen(self, address: str, port: int = 0) -> memory.MemoryListener:
        return memory.MemoryListener((address, port or next(memory._ports)))

    def connect(self, endpoint: Endpoint, timeout_s: float, source: str = "") -> memory.MemoryConnection:
        raise AssertionError("storage dials")

    def dial(self, endpoint: Endpoint, source: str = "") -> Any:
        ends = (self.host, endpoint[0])
        there, back = (_Way(nics=self.nics, ends=one) for one in (ends, ends[::-1]))
        here = (self.host, next(memory._ports))
        with memory._changed:
            memory._listeners[endpoint].come(memory.MemoryConnection(endpoint, here, back, there))
        return memory.MemoryDial(memory.MemoryConnection(here, endpoint, there, back))


class RatedCluster:
    """Services on some nodes, and clients that play ``chunk_io``."""

    def __init__(self, config: StorageConfig, nodes: int, nics: Nics, clients: int = 1) -> None:
        self.config, self.nics = config, nics
        self.tasks = Tasks()
        self.nodes = [NodeId(Role.STORAGE, None, index) for index in range(nodes)]
        table = place_chains(self.nodes, config.disks_per_node, config.chains_per_target, config.replicas)
        self.table: ChainTable = in_order(table, config.target_order, 1)
        self.striping = Striping(config.chunk_size, config.stripe, len(self.table.chains), 1)
        self.services: dict[NodeId, StorageService] = {}
        self.clients = [self._client(number) for number in range(clients)]

    def _client(self, number: int) -> StorageClient:
        name = f"c{number}"
        return StorageClient(name, number, self.table, self.config, self.tasks, RatedTransport(self.nics, name), number)

    async def start(self) -> None:
        """Begin; files are there if they are to be."""
        assert self.config.chunk_io is not None
        files = [
            one for number in range(len(self.clients)) for one in fio_files(self.config.chunk_io, self.striping, number)
        ]
        addresses: dict[NodeId, Endpoint] = {}
        for node in self.nodes:
            transport = RatedTransport(self.nics, node.name)
            service = StorageService(node, self.table, self.config, transport, self.tasks)
            if self.config.chunk_io.are_there:
                service.replica.preload(extents_on(node, self.table, files))
            listener = transport.listen(node.name)
            LinkListener(service.party(0), listener, lambda link: None)
            self.services[node], addresses[node] = service, listener.endpoint
        for node, service in self.services.items():
            links = Links(service.party(0), node.name)
            for other, endpoint in addresses.items():
                if other != node:
                    links.expect(other, endpoint)
            service.use_links(0, links)
        for client in self.clients:
            await client.connect(addresses, client.name)

    async def play(self, warm_s: float, length_s: float) -> float:
        """Let the clients read and write; return the bytes per second after the first ``warm_s``, of operations by the
        part of each that lies in that time."""
        assert self.config.chunk_io is not None
        stopping = asyncio.Event()
        began_s = time.monotonic() + warm_s
        ended_s = began_s + length_s
        running = [
            self.tasks.spawn(
                play(
                    self.config.chunk_io,
                    client,
                    fio_files(self.config.chunk_io, self.striping, number),
                    random.Random(number),
                    stopping,
                )
            )
            for number, client in enumerate(self.clients)
        ]
        await asyncio.sleep(warm_s + length_s)
        stopping.set()
        await asyncio.wait([*running, self.tasks.failed], return_when=asyncio.FIRST_EXCEPTION, timeout=100)
        if self.tasks.failed.done():
            self.tasks.failed.result()
        moved = 0.0
        for client in self.clients:
            for one in client.operations:
                inside = min(one.ended_s, ended_s) - max(one.started_s, began_s)
                if inside > 0:
                    moved += one.size_bytes * inside / (one.ended_s - one.started_s)
        return moved / length_s
