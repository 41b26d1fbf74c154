"""Orders and answers between the run and the programs of the storage service, over pipes, never over the fabric."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fabric.failures.kinds.disk import DiskState
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent, StopRequested
from traffic.job import Records
from traffic.storage.chains import ChainTable, ChunkId, FileLayout, Striping, TableChange
from traffic.storage.client.restoring import Restored
from traffic.storage.client.samples import ReaderPlace
from traffic.storage.config import StorageConfig
from traffic.storage.wire.calls import Tasks, unless
from traffic.transport.connection import Endpoint, Transport

T = TypeVar("T")


@dataclass(frozen=True)
class ManagerEnd:
    """Where the cluster manager is heard, and how one talks to it; ``nodes``: the storage nodes, by number.

    ``others``: further managers, if there are several; ``has_clocks``: heartbeats say the time; ``skew_s``: how far the
    clock of the program that is told this is ahead.
    """

    node: NodeId
    endpoint: Endpoint
    nodes: tuple[NodeId, ...]
    transport: Transport
    others: tuple[tuple[NodeId, Endpoint], ...] = ()
    has_clocks: bool = False
    skew_s: float = 0.0

    @property
    def ends(self) -> dict[NodeId, Endpoint]:
        """All managers, in the order of their places."""
        return {self.node: self.endpoint, **dict(self.others)}


@dataclass(frozen=True)
class ServiceArguments:
    """What a service is told when it is forked: ``addresses`` are the IPs of its own NICs by zone; ``ports``: where it
    is to listen again, of one that was killed; ``disks``: how those are that are not whole, by number."""

    node: NodeId
    addresses: Mapping[int, str]
    config: StorageConfig
    table: ChainTable
    preloaded: tuple[FileLayout, ...]
    transport: Transport
    manager: ManagerEnd | None = None
    resync: Transport | None = None
    """What carries resyncs, if they have a Service Level of their own."""
    ports: Mapping[int, int] = field(default_factory=dict)
    disks: Mapping[int, DiskState] = field(default_factory=dict)

    @property
    def is_again(self) -> bool:
        """Whether it is started in the place of one that was killed."""
        return bool(self.ports)


@dataclass(frozen=True)
class ServiceListening:
    """A service's word of where it listens, by zone."""

    addresses: Mapping[int, Endpoint]


@dataclass(frozen=True)
class Peers:
    """Where all services listen, by zone and node."""

    addresses: Mapping[tuple[int, NodeId], Endpoint]


@dataclass(frozen=True)
class LoadPart:
    """What of the load is a client's: its place among readers, whether it writes checkpoints, what it restores."""

    reader: ReaderPlace | None = None
    writes: bool = False
    restored: Restored | None = None


@dataclass(frozen=True)
class ClientArguments:
    """What a client is told when it is forked. ``number`` (from 0) is its own among all clients; the services are those
    of its zone. ``expects_rot``: disks get wrong data on purpose, so a wrong copy is not a fault."""

    number: int
    source: str
    services: Mapping[NodeId, Endpoint]
    config: StorageConfig
    table: ChainTable
    striping: Striping
    dataset: tuple[FileLayout, ...]
    part: LoadPart
    seed: int
    transport: Transport
    expects_rot: bool = False


@dataclass(frozen=True)
class ManagedClientArguments(ClientArguments):
    """So, where a cluster manager tells it of newer chains. Without one, the run does."""

    manager: ManagerEnd | None = None


@dataclass(frozen=True)
class NewChains:
    """The cluster manager's word of the chains that have changed; a :class:`TableChange`, pickled once for all."""

    pickled: bytes

    @classmethod
    def of(cls, change: TableChange) -> NewChains:
        """Return the word of a change."""
        return cls(pickle.dumps(change, pickle.HIGHEST_PROTOCOL))

    @property
    def change(self) -> TableChange:
        """What has changed."""
        change = pickle.loads(self.pickled)
        assert isinstance(change, TableChange)
        return change


@dataclass(frozen=True)
class Rot:
    """The order to flip a bit of a chunk that a service holds, as a disk does, without its checksum's knowledge."""

    chunk: ChunkId


@dataclass(frozen=True)
class RotSome:
    """The order to flip a bit in each of ``count`` sound chunks of a disk, drawn by a seed."""

    disk: int
    count: int
    seed: str


@dataclass(frozen=True)
class Rotten:
    """A service's word of which chunks have wrong data now."""

    chunks: tuple[ChunkId, ...]


@dataclass(frozen=True)
class Finish:
    """The order to report once all of the load is over that has an end."""


@dataclass(frozen=True)
class SetDisk:
    """The order to let a disk be so from now on."""

    disk: int
    state: DiskState


@dataclass(frozen=True)
class BeginAnew:
    """The order to begin anew, as a service does that an operator restarts: with its chunks, or with empty disks."""

    with_empty_disks: bool = False


@dataclass(frozen=True)
class Verify:
    """The order to read back every write that was acknowledged to a client, from every replica."""


@dataclass(frozen=True)
class ResyncAttempt:
    """What a predecessor did to bring a target up to date: from when to when (``time.monotonic()``), what it sent, and
    how that ended: ``done``, ``stopped`` or ``forked``."""

    chain: int
    sender: NodeId
    target: NodeId
    began_s: float
    ended_s: float
    chunks: int
    size_bytes: int
    outcome: str


@dataclass(frozen=True)
class Report:
    """A program's rows of a phase, its counts since it began, and its resyncs since then."""

    records: Records
    counts: Mapping[str, int] = field(default_factory=dict)
    resyncs: tuple[ResyncAttempt, ...] = ()


class Orders:
    """The run's orders to a program, as its event loop hears them.

    Changes of the chain table go to ``adopt`` as soon as they come, whatever order the program is busy with: it may be
    waiting for nothing else.
    """

    def __init__(self, agent: Agent, tasks: Tasks, adopt: Callable[[TableChange], None]) -> None:
        self._agent = agent
        self._tasks = tasks
        self._adopt = adopt
        self._queue: asyncio.Queue[object] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(agent.pipe.fileno(), self._hear)

    def _hear(self) -> None:
        try:
            order = self._agent.receive(0)
        except StopRequested as stop:
            asyncio.get_running_loop().remove_reader(self._agent.pipe.fileno())
            self._tasks.fail(stop)
            return
        if isinstance(order, NewChains):
            self._adopt(order.change)
        else:
            self._queue.put_nowait(order)

    async def next(self) -> object:
        """Return the next order. Raises StopRequested when the run is over, and what made a background task fail."""
        return await self.unless_failed(self._queue.get())

    async def unless_failed(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` returns; raise at once what makes a background task fail meanwhile."""
        return await unless(self._tasks.failed, work)
