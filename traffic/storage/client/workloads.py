"""The clients' load: a dataloader's reads, a checkpoint's writes, a restore. A client's program."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.storage.chains import Extent, FileLayout, Striping
from traffic.storage.client.data_loader import DataLoader, Pace, WantedBatch
from traffic.storage.client.fio_load import fio_files, play
from traffic.storage.client.library import GaveUp, Operation, StorageClient
from traffic.storage.client.restoring import Restored, restore
from traffic.storage.client.samples import draw_size
from traffic.storage.config import CheckpointConfig, DataloaderConfig
from traffic.storage.member import follow_routing, manager_link
from traffic.storage.orders import ClientArguments, Finish, ManagedClientArguments, Orders, Report, Verify
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import StorageConnection, Tasks
from traffic.transport.sampling import FlowSampler

CHECKPOINTS_KEPT = 2
"""A checkpoint is written over the last but one, or over the last if that one has a hole: so a whole one always exists,
once there is one, and memory has a bound."""
FIRST_CHECKPOINT_FILE = 1 << 20
"""Checkpoints are numbered from here; the data set's files from 0."""


def dataset(config: DataloaderConfig, striping: Striping) -> tuple[FileLayout, ...]:
    """Return the layouts of the data set's files."""
    return tuple(striping.layout(number, config.file_size) for number in range(config.files))


def files_of(config: DataloaderConfig, files: Sequence[FileLayout], client: int) -> tuple[FileLayout, ...]:
    """Return the files of the data set that a client reads: the next ones in turn, so all are read equally often."""
    count = config.files_per_client or len(files)
    return tuple(files[(client * count + place) % len(files)] for place in range(count))


def checkpoint_file(config: CheckpointConfig, striping: Striping, client: int, number: int) -> FileLayout:
    """Return where a client's checkpoint goes that follows ``number`` whole ones."""
    file = FIRST_CHECKPOINT_FILE + client * CHECKPOINTS_KEPT + number % CHECKPOINTS_KEPT
    return striping.layout(file, config.size)


def draw_sample(config: DataloaderConfig, files: Sequence[FileLayout], rng: random.Random) -> list[Extent]:
    """Return where a random sample lies: any file, log-uniform size, any offset (not aligned: 3FS design notes)."""
    size = draw_size(config.sample_min, config.sample_max, rng)
    layout = rng.choice(files)
    return layout.locate(rng.randrange(layout.size_bytes - size + 1), size)


def holding(arguments: ClientArguments) -> frozenset[NodeId]:
    """Return the nodes of the chains of all that a client reads and writes."""
    part = arguments.part
    files = [*(arguments.dataset if part.reader else ()), *([part.restored.file] if part.restored else [])]
    if part.writes:
        config, striping = arguments.config.checkpoint, arguments.striping
        files += [checkpoint_file(config, striping, arguments.number, kept) for kept in range(CHECKPOINTS_KEPT)]
    if (fio := arguments.config.chunk_io) is not None:
        files += fio_files(fio, arguments.striping, arguments.number)
    chains = {extent.chain for layout in files for extent in layout.extents()}
    return frozenset(node for chain in chains for node in arguments.table.chains[chain].nodes)


class ClientLoad:
    """What one client reads and writes, between :meth:`begin` and :meth:`end`."""

    def __init__(self, client: StorageClient, arguments: ClientArguments, tasks: Tasks) -> None:
        self.client = client
        self._arguments = arguments
        self._tasks = tasks
        self._rng = random.Random(f"{arguments.seed}/samples/{arguments.number}")
        self._loader = _loader(client, arguments)
        self._whole_checkpoints = 0
        self._plays = -1
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self.playing = asyncio.Event()
        """Whether a phase plays."""

    def begin(self) -> None:
        """Begin the load."""
        tasks = self._tasks
        self._plays += 1
        self.playing.set()
        self._stopping = asyncio.Event()
        part = self._arguments.part
        if self._loader is not None:
            pace = Pace(self._stopping.is_set, self._pause, tasks.spawn)
            self._running.append(tasks.spawn(self._loader.play(pace)))
        elif part.reader is not None:
            depth = self._arguments.config.dataloader.depth
            self._running += [tasks.spawn(self._read_on()) for _ in range(depth)]
        if part.writes:
            self._running.append(tasks.spawn(self._write_on()))
        if (fio := self._arguments.config.chunk_io) is not None:
            files = fio_files(fio, self._arguments.striping, self._arguments.number, self._plays)
            self._running.append(tasks.spawn(play(fio, self.client, files, self._rng, self._stopping)))
        if part.restored is not None:
            self._running.append(tasks.spawn(self._restore(part.restored)))

    async def finish(self) -> None:
        """Return once all that was begun has ended by itself, which has an end."""
        if self._running:
            await asyncio.wait(self._running)

    def rows(self, phase: str, level: ServiceLevel, host: str) -> Records:
        """Return the batches that computing wanted since this was last asked."""
        records = Records()
        if self._loader is not None:
            found, self._loader.wanted = self._loader.wanted, []
            records.add("loader_batches", [batch_row(one, phase, level, host) for one in found])
        return records

    def counts(self) -> dict[str, int]:
        """Return nothing beside what every client counts."""
        return {}

    async def end(self) -> None:
        """Begin nothing more, and return when what is under way has ended."""
        self._stopping.set()
        running, self._running = self._running, []
        if running:
            await asyncio.wait(running)
        self.playing.clear()

    async def _restore(self, what: Restored) -> None:
        config = self._arguments.config.restore
        self.client.operations.append(await restore(self.client, config, what, self._stopping.is_set))

    async def _read_on(self) -> None:
        config, files = self._arguments.config.dataloader, self._arguments.dataset
        while not self._stopping.is_set():
            samples = [draw_sample(config, files, self._rng) for _ in range(config.batch)]
            with suppress(GaveUp):  # It is among the operations, as failed; the next batch may fare better.
                await self.client.read_chunks([extent for sample in samples for extent in sample])
            await self._pause(config.pause)

    async def _write_on(self) -> None:
        config = self._arguments.config.checkpoint
        while not self._stopping.is_set():
            started = time.monotonic()
            layout = checkpoint_file(config, self._arguments.striping, self._arguments.number, self._whole_checkpoints)
            if await self._write(list(layout.extents()), config.depth):
                self._whole_checkpoints += 1
            await self._pause(started + config.period - time.monotonic())

    async def _write(self, extents: list[Extent], depth: int) -> bool:
        """Write a checkpoint; return whether all of it was acknowledged."""
        left = iter(extents)
        written = 0

        async def writer() -> None:
            nonlocal written
            for extent in left:
                if self._stopping.is_set():
                    return
                with suppress(GaveUp):  # It is among the operations, as failed: this checkpoint has a hole.
                    await self.client.write_chunk(extent)
                    written += 1

        await asyncio.gather(*(writer() for _ in range(depth)))
        return written == len(extents)

    async def _pause(self, pause_s: float) -> None:
        if pause_s > 0:
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            except asyncio.TimeoutError:
                return


def _loader(client: StorageClient, arguments: ClientArguments) -> DataLoader | None:
    """Return what reads epochs; None if the client reads none."""
    config, place = arguments.config.dataloader, arguments.part.reader
    if config.epochs is None or place is None:
        return None
    return DataLoader(client, config, arguments.dataset, place, arguments.seed)


def run_client(agent: Agent, arguments: ClientArguments) -> None:
    """Be a client in a compute host until the run stops it."""
    event_loop.run(_run(agent, arguments))


def make_client(host: str, told: ClientArguments, tasks: Tasks) -> StorageClient:
    """Return a client on a host; it is not connected yet."""
    client = StorageClient(host, told.number, told.table, told.config, tasks, told.transport, told.seed)
    if told.expects_rot:
        client.expect_wrong_copies()
    return client


def follow_manager(client: StorageClient, told: ClientArguments, playing: asyncio.Event, tasks: Tasks) -> None:
    """Let a client ask the cluster manager for newer chains while its job plays, in turns of its own, if there is a
    manager."""
    config = told.config.cluster_manager
    if config is None or not isinstance(told, ManagedClientArguments) or told.manager is None:
        return
    every_s = config.polled_every
    first_s = every_s * random.Random(f"{told.seed}/turns/{told.number}").random()
    link = manager_link(client.name, told.manager, told.source, every_s, tasks, client.party.counts)
    tasks.spawn(follow_routing(link, first_s, every_s, client, playing))


async def _run(agent: Agent, arguments: ClientArguments) -> None:
    tasks = Tasks()
    client = make_client(agent.host, arguments, tasks)
    orders = Orders(agent, tasks, client.adopt)
    sampler = FlowSampler()
    fio = arguments.config.chunk_io
    writes = arguments.part.writes or (fio is not None and fio.writes)

    def track(node: NodeId, link: StorageConnection) -> None:
        if writes:
            sampler.track(link.data, node.name)

    await orders.unless_failed(client.connect(arguments.services, arguments.source, holding(arguments), on_link=track))
    load = ClientLoad(client, arguments, tasks)
    follow_manager(client, arguments, load.playing, tasks)
    agent.report(Ready())
    await play_orders(agent, orders, load, sampler, arguments.transport.options.level)


class Load(Protocol):
    """What a client plays: begun with a phase, it ends by an order or, as far as it has an end, by itself."""

    client: StorageClient

    def begin(self) -> None:
        """Begin the load."""

    async def finish(self) -> None:
        """Return once all of it is over that has an end."""

    async def end(self) -> None:
        """Begin nothing more, and return when what is under way has ended."""

    def rows(self, phase: str, level: ServiceLevel, host: str) -> Records:
        """Return the rows of a phase that only this kind of load has."""

    def counts(self) -> dict[str, int]:
        """Return the counts that only this kind of load has."""


async def play_orders(agent: Agent, orders: Orders, load: Load, sampler: FlowSampler, level: ServiceLevel) -> None:
    """Carry out what a run orders a client to do."""
    client, phase = load.client, ""
    while True:
        order = await orders.next()
        if isinstance(order, Play):
            phase = order.phase
            client.operations.clear()
            sampler.start()
            load.begin()
            agent.report(Ready())
        elif isinstance(order, Halt):
            await orders.unless_failed(load.end())
            records = Records(flows=flow_rows(sampler.stop(), phase, level, agent.host))
            records.add("operations", [operation_row(one, phase, level, agent.host) for one in client.operations])
            records.extend(load.rows(phase, level, agent.host))
            agent.report(Report(records, {**_counts(client), **load.counts()}))
        elif isinstance(order, Finish):
            await orders.unless_failed(load.finish())
            agent.report(Ready())
        elif isinstance(order, Verify):
            agent.report(await orders.unless_failed(client.read_back()))


def operation_row(operation: Operation, phase: str, level: ServiceLevel, host: str) -> dict[str, object]:
    """Return a row of the table ``operations``."""
    return {
        "phase": phase,
        "service_level": level.label,
        "operation": operation.kind,
        "host": host,
        "peer": operation.server,
        "size_bytes": operation.size_bytes,
        "started_s": operation.started_s,
        "ended_s": operation.ended_s,
        "retries": operation.retries,
    }


def batch_row(batch: WantedBatch, phase: str, level: ServiceLevel, host: str) -> dict[str, object]:
    """Return a row of the table ``loader_batches``."""
    return {"phase": phase, "service_level": level.label, "host": host, **batch._asdict()}


def _counts(client: StorageClient) -> dict[str, int]:
    return {
        **client.party.counts,
        "acknowledged_chunks": len(client.acknowledged),
        "retries": client.retries,
        "peak_senders": client.party.arrivals.peak,
    }
