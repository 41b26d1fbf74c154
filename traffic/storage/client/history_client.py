"""A client that writes or reads a few chunks all the time and keeps what it saw, for checks of histories."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records
from traffic.storage.chains import Extent, FileLayout
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.workloads import follow_manager, make_client, operation_row
from traffic.storage.history import MAYBE, Event, Kind
from traffic.storage.orders import ManagedClientArguments, Orders, Report, Verify
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Tasks


@dataclass(frozen=True)
class HistoryLoad:
    """What a client does: it writes the first chunks of the data set whole, in turn, or reads them from the tail as it
    knows that (3FS's clients can be told to), with a pause after each."""

    writes: bool
    chunks: int
    pause_s: float


@dataclass(frozen=True)
class HistoryArguments(ManagedClientArguments):
    """What such a client is told when it is forked."""

    load: HistoryLoad = HistoryLoad(False, 1, 1.0)


@dataclass(frozen=True)
class HistoryReport(Report):
    """A client's rows and counts, its host, and what it saw; times are ``time.monotonic()``."""

    host: str = ""
    events: tuple[Event, ...] = ()


class Watcher:
    """Carries a load out, on a file, between :meth:`begin` and :meth:`end`."""

    def __init__(self, client: StorageClient, load: HistoryLoad, file: FileLayout) -> None:
        self.client = client
        self.events: list[Event] = []
        self.playing = asyncio.Event()
        self._load = load
        self._file = file
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def begin(self, tasks: Tasks) -> None:
        """Begin."""
        self._stopping = asyncio.Event()
        self.playing.set()
        self._running = tasks.spawn(self._go_on())

    async def end(self) -> None:
        """Begin nothing more, and return when what is under way has ended."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait([self._running])
        self.playing.clear()

    async def _go_on(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            extent = self._file.extent(turn % self._load.chunks)
            await (self._write(extent) if self._load.writes else self._read(extent))
            turn += 1
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._load.pause_s)

    async def _write(self, extent: Extent) -> None:
        began_s = time.monotonic()
        try:
            done = await self.client.write_chunk(extent)
        except GaveUp as error:
            event = Event(Kind.WRITE, extent.chunk, error.request, None, began_s, MAYBE)
        else:
            event = Event(Kind.WRITE, extent.chunk, done.request, done.version, began_s, time.monotonic())
        self.events.append(event)

    async def _read(self, extent: Extent) -> None:
        began_s = time.monotonic()
        nodes = self.client.table.chains[extent.chain].nodes
        if not nodes:
            return
        with suppress(GaveUp):  # It is among the operations, as failed.
            (found,) = await self.client.read_chunks([extent], nodes[-1])
            seen = found.extent.chunk, found.request, found.version
            self.events.append(Event(Kind.READ, *seen, began_s, time.monotonic()))


def run_history_client(agent: Agent, arguments: HistoryArguments) -> None:
    """Be such a client in a compute host until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: HistoryArguments) -> None:
    tasks = Tasks()
    client = make_client(agent.host, arguments, tasks)
    orders = Orders(agent, tasks, client.adopt)
    await orders.unless_failed(client.connect(arguments.services, arguments.source))
    watcher = Watcher(client, arguments.load, min(arguments.dataset, key=lambda layout: layout.file))
    follow_manager(client, arguments, watcher.playing, tasks)
    agent.report(Ready())
    phase = ""
    while True:
        order = await orders.next()
        if isinstance(order, Play):
            phase = order.phase
            client.operations.clear()
            watcher.events.clear()
            watcher.begin(tasks)
            agent.report(Ready())
        elif isinstance(order, Halt):
            await orders.unless_failed(watcher.end())
            level = arguments.transport.options.level
            rows = [operation_row(operation, phase, level, agent.host) for operation in client.operations]
            records = Records(operations=rows)
            counts = {**client.party.counts, "retries": client.retries}
            agent.report(HistoryReport(records, counts, (), agent.host, tuple(watcher.events)))
        elif isinstance(order, Verify):
            agent.report(await orders.unless_failed(client.read_back()))
