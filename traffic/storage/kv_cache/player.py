"""A client of the KV cache: it plays requests, which look up, read, compute and write, and it removes what is old.

Computing is a time, by the model's FLOP and a rate; it does not slow reading down. Times are ``time.monotonic()``.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Ready, Records
from traffic.storage.chains import Extent, FileLayout
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.workloads import follow_manager, make_client, play_orders
from traffic.storage.kv_cache.arrivals import Arrival, Window
from traffic.storage.kv_cache.cache import PrefixCache
from traffic.storage.kv_cache.config import KvCacheConfig, Order
from traffic.storage.kv_cache.files import BlockFile, BlockFiles, Found
from traffic.storage.kv_cache.prefill import computed_at
from traffic.storage.kv_cache.trace import BLOCK_TOKENS, Request
from traffic.storage.orders import ManagedClientArguments, Orders
from traffic.storage.updates import Action, Change
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import StorageConnection, Tasks
from traffic.transport.sampling import FlowSampler

FILES_PER_CLIENT = 1 << 32
"""A client's files are numbered from its own number times this."""


@dataclass(frozen=True)
class KvClientArguments:
    """What a client is told when it is forked: what every client of storage is, and what it plays."""

    client: ManagedClientArguments
    config: KvCacheConfig
    window: Window

    @property
    def first_file(self) -> int:
        """The number of its first file."""
        return first_file_of(self.client.number)


def first_file_of(client: int) -> int:
    """Return the number of a client's first file; those that are there at the begin come first."""
    return (client + 1) * FILES_PER_CLIENT


@dataclass
class Served:
    """What became of a request. ``due_s``: when it came, however long it then waited for others; ``started_s``: when it
    was looked up; ``ready_s``: when its first token was; ``ended_s``: when all that it wrote was written. NaN: it was
    not, since the load ended.

    ``in_theory``: blocks that it would have found if writes took no time; ``compute_s``, ``compute_all_s``: the time to
    compute what it did not find, and all of it.
    """

    arrival: Arrival
    due_s: float
    compute_all_s: float
    started_s: float = math.nan
    ready_s: float = math.nan
    ended_s: float = math.nan
    hit_blocks: int = 0
    in_theory: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    compute_s: float = 0.0


@dataclass
class _Stopping:
    """Whether a load is to end, and a pause that ends with it."""

    _event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_set(self) -> bool:
        """Whether it is."""
        return self._event.is_set()

    def set(self) -> None:
        """Let it end."""
        self._event.set()

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until the load is to end."""
        if seconds > 0 and not self.is_set:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._event.wait(), seconds)


@dataclass
class _TraceClock:
    """The trace's time: it goes on ``compression`` times as fast while a load plays, from ``trace_s`` on, and stands
    still in between. ``begun_s``: when the load began to play."""

    compression: float
    trace_s: float
    begun_s: float = 0.0

    def begin(self) -> None:
        """Go on."""
        self.begun_s = time.monotonic()

    def end(self) -> None:
        """Stand still."""
        self.trace_s = self.now_s()

    def now_s(self) -> float:
        """Return the trace's time while a load plays."""
        return self.trace_s + (time.monotonic() - self.begun_s) * self.compression


class KvLoad:
    """What one client plays, between :meth:`begin` and :meth:`end`. A second phase goes on with the cache as it is, and
    with the requests from the first on."""

    def __init__(self, client: StorageClient, arguments: KvClientArguments, tasks: Tasks) -> None:
        config = arguments.config
        self.client = client
        self.files = BlockFiles(PrefixCache(config.blocks.capacity, config.blocks.ttl), arguments.first_file)
        self.served: list[Served] = []
        self.playing = asyncio.Event()
        self._arguments = arguments
        self._tasks = tasks
        self._stopping = _Stopping()
        self._running: set[asyncio.Task[None]] = set()
        self._collecting: asyncio.Task[None] | None = None
        self._writing = asyncio.Semaphore(config.io.write_depth)
        self._slots = asyncio.Semaphore(config.requests.at_once or 1 << 30)
        self._clock = _TraceClock(config.requests.compression, arguments.window.began_s)
        for block, used_s in arguments.window.present:
            self.files.hold(block, used_s)

    def begin(self) -> None:
        """Begin the load."""
        self.playing.set()
        self.served = []
        self._stopping = _Stopping()
        self._clock.begin()
        self._run(self._play_on())
        self._collecting = self._run(self._collect_on())

    async def finish(self) -> None:
        """Return once all requests have come, been answered, and have written what they had to."""
        while left := self._running - {self._collecting}:
            await asyncio.wait(left)

    async def end(self) -> None:
        """Begin nothing more, and return when what is under way has ended."""
        self._stopping.set()
        while self._running:
            await asyncio.wait(set(self._running))
        self._clock.end()
        self.playing.clear()

    def rows(self, phase: str, level: ServiceLevel, host: str) -> Records:
        """Return what became of its requests."""
        return Records(kv_requests=[request_row(served, phase, level, host) for served in self.served])

    def counts(self) -> dict[str, int]:
        """Return how many files there are and were."""
        files = self.files
        return {"kv_files": len(files), "kv_files_removed": files.removed, "kv_files_awaiting_removal": files.garbage}

    def _run(self, work: Any) -> asyncio.Task[None]:
        task = self._tasks.spawn(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    # Requests.

    async def _play_on(self) -> None:
        requests, serving = self._arguments.config.requests, self._arguments.config.serving
        for arrival in self._arguments.window.rounds(requests.compression, requests.cycle):
            due_s = self._clock.begun_s + arrival.after_s
            await self._stopping.pause(due_s - time.monotonic())
            if self._stopping.is_set:
                return
            all_s = serving.shape.prefill_flops(arrival.request.input_tokens) / serving.flops_per_s
            served = Served(arrival, due_s, all_s)
            self.served.append(served)
            self._run(self._serve(served))
            await asyncio.sleep(0)  # Without a pause between requests, the others would never run.

    async def _serve(self, served: Served) -> None:
        """Wait for a slot, look up, read, compute; give the slot back and write. Others come meanwhile."""
        request = served.arrival.request
        async with self._slots:
            if self._stopping.is_set:
                return
            served.started_s = time.monotonic()
            found = self.files.begin(request._replace(at_s=self._clock.now_s()), served.started_s)
            try:
                await self._prefill(served, found)
            finally:
                self.files.end(found)
        if self._stopping.is_set:
            is_written = False
        else:
            is_written = await self._write_all(served, (*found.missing, *self._answer_files(request)))
        for file in found.missing:
            if file.is_written_to:
                self.files.written(file, is_whole=False)
        if is_written:
            served.ended_s = time.monotonic()

    async def _prefill(self, served: Served, found: Found) -> None:
        """Read what was found and compute the rest; if a read fails, compute all."""
        serving, request = self._arguments.config.serving, served.arrival.request
        served.hit_blocks, served.in_theory = len(found.files), found.in_theory
        tokens, cached = request.input_tokens, request.tokens_of(len(found.files))
        served.compute_s = serving.shape.prefill_flops(tokens, cached) / serving.flops_per_s
        read_s = await self._read(self._parts(found.files))
        if self._stopping.is_set:
            return
        if read_s is None:
            ready_s = time.monotonic() + served.compute_all_s
        else:
            served.read_bytes = len(found.files) * serving.block_bytes
            if self._arguments.config.io.order is Order.BLOCKS:
                read_s = [max(read_s)] if read_s else []
            ready_s = computed_at(served.started_s, read_s, served.compute_s)
        await self._stopping.pause(ready_s - time.monotonic())
        if not self._stopping.is_set:
            served.ready_s = ready_s

    def _parts(self, files: Sequence[BlockFile]) -> list[list[Extent]]:
        """Return what is read together, part after part: a layer of all blocks, or a block."""
        config = self._arguments.config
        layouts = [self._layout(file) for file in files]
        if config.io.order is Order.BLOCKS:
            return [list(layout.extents()) for layout in layouts]
        size, layers = config.serving.layer_bytes, config.serving.shape.layers
        starts = range(0, layers * size, size) if layouts else ()
        return [[extent for layout in layouts for extent in layout.locate(start, size)] for start in starts]

    def _layout(self, file: BlockFile) -> FileLayout:
        return self._arguments.client.striping.layout(file.number, self._arguments.config.serving.block_bytes)

    async def _read(self, parts: Sequence[list[Extent]]) -> list[float] | None:
        """Return when each part was read, the first asked for first; None if one could not be, or the load ends."""
        ahead = asyncio.Semaphore(self._arguments.config.io.ahead)
        is_whole = True

        async def read(part: list[Extent]) -> float:
            nonlocal is_whole
            async with ahead:
                if is_whole and not self._stopping.is_set:
                    try:
                        await self.client.read_chunks(part)
                    except GaveUp:  # It is among the operations, as failed.
                        is_whole = False
                return time.monotonic()

        read_s = await _all_of(self._tasks, [read(part) for part in parts])
        return read_s if is_whole else None

    # Writes.

    def _answer_files(self, request: Request) -> list[BlockFile]:
        """Return files of the further blocks that the answer has filled: nobody asks for them, by the trace."""
        if not self._arguments.config.serving.outputs:
            return []
        more = (request.input_tokens + request.output_tokens) // BLOCK_TOKENS - len(request.blocks)
        return [self.files.new_file(-1) for _ in range(more)]

    async def _write_all(self, served: Served, files: Sequence[BlockFile]) -> bool:
        """Write files side by side; return whether all were."""
        if not self._arguments.config.io.writes:
            return True
        written = await _all_of(self._tasks, [self._write(file) for file in files])
        served.written_bytes = sum(written) * self._arguments.config.serving.block_bytes
        return all(written)

    async def _write(self, file: BlockFile) -> bool:
        """Write a file, unless it is removed meanwhile; return whether all of it is there."""
        is_whole = True

        async def write(extent: Extent) -> None:
            nonlocal is_whole
            async with self._writing:
                if self._stopping.is_set or file.removed_s is not None:
                    is_whole = False
                if is_whole:
                    try:
                        await self.client.write_chunk(extent)
                    except GaveUp:  # It is among the operations, as failed.
                        is_whole = False

        await _all_of(self._tasks, [write(extent) for extent in self._layout(file).extents()])
        self.files.written(file, is_whole)
        return is_whole

    # Removal.

    async def _collect_on(self) -> None:
        """Remove the chunks of files that were removed long enough ago, some files at a time."""
        blocks = self._arguments.config.blocks
        while not self._stopping.is_set:
            now_s = time.monotonic()
            self.files.expire(now_s, self._clock.now_s())
            due = self.files.due(now_s - blocks.collect_after, blocks.collect_files)
            if due:
                await _all_of(self._tasks, [self._remove(file) for file in due])
            else:
                await self._stopping.pause(blocks.collect_every)

    async def _remove(self, file: BlockFile) -> None:
        at_once = asyncio.Semaphore(self._arguments.config.blocks.collect_chunks)

        async def remove(extent: Extent) -> None:
            async with at_once:
                with suppress(GaveUp):  # It is among the operations, as failed.
                    await self.client.update(extent.chunk, extent.chain, Change(Action.REMOVE))

        await _all_of(self._tasks, [remove(extent) for extent in self._layout(file).extents()])


async def _all_of(tasks: Tasks, work: Sequence[Any]) -> list[Any]:
    """Return what each coroutine returns; on the first failure cancel the others and raise it."""
    running = [tasks.loop.create_task(one) for one in work]
    try:
        return await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()


# The program ----------------------------------------------------------------------------------------------------------


def run_kv_client(agent: Agent, arguments: KvClientArguments) -> None:
    """Be a client in a compute host until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: KvClientArguments) -> None:
    tasks, told = Tasks(), arguments.client
    client = make_client(agent.host, told, tasks)
    orders = Orders(agent, tasks, client.adopt)
    sampler = FlowSampler()

    def track(node: NodeId, link: StorageConnection) -> None:
        sampler.track(link.data, node.name)

    # A client writes to all chains sooner or later.
    await orders.unless_failed(client.connect(told.services, told.source, told.services.keys(), on_link=track))
    load = KvLoad(client, arguments, tasks)
    follow_manager(client, told, load.playing, tasks)
    agent.report(Ready())
    await play_orders(agent, orders, load, sampler, told.transport.options.level)


def request_row(served: Served, phase: str, level: ServiceLevel, host: str) -> dict[str, object]:
    """Return a row of the table ``kv_requests``."""
    arrival, request = served.arrival, served.arrival.request
    return {
        "phase": phase,
        "service_level": level.label,
        "host": host,
        "instance": arrival.instance,
        "request": arrival.number,
        "due_s": served.due_s,
        "started_s": served.started_s,
        "ready_s": served.ready_s,
        "ended_s": served.ended_s,
        "input_tokens": request.input_tokens,
        "blocks": len(request.blocks),
        "hit_blocks": served.hit_blocks,
        "hit_blocks_in_theory": served.in_theory,
        "hit_tokens": request.tokens_of(served.hit_blocks),
        "read_bytes": served.read_bytes,
        "written_bytes": served.written_bytes,
        "compute_s": served.compute_s,
        "compute_all_s": served.compute_all_s,
    }
