"""Replicas of one chain in one process, and a network of coroutines between them that delays, cuts nodes off and kills
them at random. What clients do and see is kept as a history."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fabric.model.identity import NodeId, Role
from traffic.storage.chains import Chain, ChainTable, ChunkId, Target
from traffic.storage.payload import ChunkContent, Recipe, checksum_of
from traffic.storage.service.replica import Answer, Applied, Chunk, Refused, Replica, Stored
from traffic.storage.wire.calls import ConnectionLost
from traffic.storage.wire.messages import REQUEST_BITS, Io, ReplyStatus

from .linearizability import INITIAL, MAYBE, Operation

T = TypeVar("T")
NODES = [NodeId(Role.STORAGE, None, index) for index in range(3)]
CHUNK = ChunkId(0, 0)
SIZE = 100
PATIENCE_S = 0.02
"""How long a client waits in random runs; in scenes, long enough for a busy machine."""
LONG_S = 10.0


def table_of(*nodes: NodeId) -> ChainTable:
    return ChainTable(1, (Chain(0, tuple(Target(node, 0) for node in nodes)),))


def io_of(request: int, chunk: ChunkId = CHUNK, version: int = 0, chain_version: int = 1) -> Io:
    checksum = checksum_of(Recipe(chunk, request, SIZE).pieces(0, SIZE))
    return Io(0, chunk, 0, SIZE, checksum, request, version, chain_version)


def soon(wait_s: float = LONG_S) -> float:
    return time.monotonic() + wait_s


@dataclass
class History:
    """What clients asked for and saw, and which versions replicas committed of each write."""

    operations: list[Operation] = field(default_factory=list)
    acknowledged: dict[ChunkId, list[int]] = field(default_factory=dict)
    versions: dict[tuple[ChunkId, int], set[int]] = field(default_factory=dict)
    retries: int = 0

    @property
    def applied_twice(self) -> list[tuple[ChunkId, int]]:
        return [write for write, versions in self.versions.items() if len(versions) > 1]

    @property
    def reads(self) -> int:
        return sum(not one.is_write for one in self.operations)


class World:
    """Replicas of one chain, of the class ``kind``, and a network between them."""

    def __init__(self, seed: int, nodes: list[NodeId] = NODES, kind: type[Replica] = Replica) -> None:
        self.rng = random.Random(seed)
        self.nodes = list(nodes)
        self.table = table_of(*nodes)
        self.history = History()
        self.replicas = {node: self._replica(kind, node) for node in nodes}
        self.running: dict[NodeId, set[asyncio.Task[Any]]] = {node: set() for node in nodes}
        self.cut: set[NodeId] = set()
        self.background: list[asyncio.Task[None]] = []
        self.faults: list[BaseException] = []

    def _replica(self, kind: type[Replica], node: NodeId) -> Replica:
        replica = kind(node, self.table, self._forward_from(node), retry_s=0.0005)
        commit = replica._commit

        def noted(held: Chunk, stored: Stored) -> Applied:
            (chunk,) = (chunk for chunk, one in replica._chunks.items() if one is held)
            self.history.versions.setdefault((chunk, stored.request), set()).add(stored.version)
            return commit(held, stored)

        replica._commit = noted  # type: ignore[method-assign]
        return replica

    async def delay(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(0)
        if self.rng.random() < 0.05:
            await asyncio.sleep(0.001)

    def living(self) -> list[NodeId]:
        return [node for node in self.nodes if node in self.running]

    def are_apart(self, one: NodeId | None, other: NodeId | None) -> bool:
        return one in self.cut or other in self.cut

    async def at(self, node: NodeId, work: Coroutine[Any, Any, T], caller: NodeId | None, patience_s: float) -> T:
        """Run ``work`` as a handler of ``node``: it dies with the node, and the caller then sees the link lost. The
        caller may lose patience, or be cut off before the answer comes, and the handler go on."""
        if node not in self.running or self.are_apart(node, caller):
            work.close()
            await asyncio.sleep(0 if node not in self.running else patience_s)
            raise ConnectionLost(f"{node} has gone")
        task = asyncio.get_running_loop().create_task(work)
        self.running[node].add(task)
        task.add_done_callback(self._note)
        await asyncio.wait({task}, timeout=patience_s)
        if not task.done() or self.are_apart(node, caller):
            raise ConnectionLost("timeout")
        if task.cancelled():
            raise ConnectionLost(f"{node} has gone")
        return task.result()

    def _note(self, task: asyncio.Task[Any]) -> None:
        """Keep what went wrong even if nobody waits for it any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionLost | Refused):
            self.faults.append(error)

    def pull_from(self, source: NodeId | None, by: NodeId | None, io: Io, stored: Stored | None = None) -> Any:
        async def pull() -> ChunkContent:
            await self.delay()
            if self.are_apart(source, by) or (source is not None and source not in self.running):
                raise ConnectionLost(f"{source} has gone")
            return Recipe(io.chunk, io.request, io.length, io.offset) if stored is None else stored.offered(io)

        return pull

    def _forward_from(self, node: NodeId) -> Any:
        async def forward(successor: NodeId, io: Io, stored: Stored, until_s: float) -> Answer:
            await self.delay()
            patience_s = max(0.0, min(self.rng.choice((0.0005, 1.0, 1.0)), until_s - time.monotonic()))
            pull = self.pull_from(node, successor, io, stored)
            update = self.replicas[successor].update(io, pull, 0, time.monotonic() + 0.9 * patience_s)
            try:
                applied = await self.at(successor, update, node, patience_s)
            except ConnectionLost:
                return Answer(ReplyStatus.BUSY)
            except Refused as refusal:
                return Answer(refusal.status)
            await self.delay()
            return Answer(ReplyStatus.OK, applied.chain_version, applied.checksum or None)

        return forward

    async def write(self, io: Io, table: ChainTable, patience_s: float = LONG_S) -> Applied:
        head = table.chains[0].head.node
        versioned = io._replace(chain_version=table.chains[0].version)
        return await self.at(head, self._write_at(head, versioned, soon(0.9 * patience_s)), None, patience_s)

    async def _write_at(self, node: NodeId, io: Io, until_s: float) -> Applied:
        """Do as the service does: complete beside other work what a write leaves pending."""
        try:
            return await self.replicas[node].write(io, self.pull_from(None, node, io), 0, until_s)
        except Refused as refusal:
            if refusal.status is ReplyStatus.BUSY:
                self._spawn(self._settle(node, io.chunk))
            raise

    def kill(self, node: NodeId) -> None:
        for task in self.running.pop(node):
            task.cancel()
        self.table = self.table.without_node(node)
        for other in self.living():
            self._spawn(self._publish(other, self.table))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.append(asyncio.get_running_loop().create_task(work))

    async def _publish(self, node: NodeId, table: ChainTable) -> None:
        """Tables come out of band: a node that is cut off hears of them, too."""
        await asyncio.sleep(self.rng.random() * 0.002)
        for chunk in self.replicas[node].adopt(table.change_from(self.replicas[node].table)):
            self._spawn(self._settle(node, chunk))

    async def _settle(self, node: NodeId, chunk: ChunkId) -> None:
        while node in self.running and self.replicas[node].must_settle(chunk):
            try:
                await self.at(node, self.replicas[node].settle(chunk, soon(PATIENCE_S)), node, 1.0)
            except (ConnectionLost, Refused):
                await asyncio.sleep(0.001)

    def _handlers(self) -> list[asyncio.Task[Any]]:
        return [task for node in self.living() for task in self.running[node]]

    async def rest(self) -> None:
        """Return once all that goes on beside clients is done, also for one that has lost patience. Raises what went
        wrong."""
        while left := [task for task in (*self.background, *self._handlers()) if not task.done()]:
            await asyncio.wait(left, timeout=5)
        await asyncio.gather(*self.background)
        if self.faults:
            raise self.faults[0]


async def write_on(world: World, chunk: ChunkId, client: int, count: int, tries: int) -> None:
    """Write a chunk ``count`` times; after ``tries`` in vain go on to the next write, and never know of this one."""
    history = world.history
    for sequence in range(1, count + 1):
        request = (client << REQUEST_BITS) + sequence
        started = time.monotonic()
        answer: Applied | None = None
        for _ in range(tries):
            await world.delay()
            try:
                answer = await world.write(io_of(request, chunk), world.table, PATIENCE_S)
                break
            except (ConnectionLost, Refused):
                history.retries += 1
                await asyncio.sleep(0.0005)
        ended = time.monotonic() if answer else MAYBE
        history.operations.append(Operation(chunk, True, request, started, ended))
        if answer:
            assert answer.request == request
            history.acknowledged.setdefault(chunk, []).append(request)


async def read_once(world: World, chunk: ChunkId, node: NodeId) -> Operation | None:
    """Read from one replica; None if it does not let itself be read."""
    started = time.monotonic()
    await world.delay()
    if node not in world.running or world.are_apart(node, None):
        return None
    try:
        stored = world.replicas[node].read(chunk)
    except Refused as refusal:
        if refusal.status is not ReplyStatus.NOT_FOUND:
            return None
        value = INITIAL
    else:
        value = stored.request
        assert stored.content == Recipe(chunk, value, SIZE), "a chunk holds what its write made"
        assert stored.checksum == io_of(value, chunk).checksum
    await world.delay()
    if node not in world.running or world.are_apart(node, None):
        return None
    return Operation(chunk, False, value, started, time.monotonic())


async def read_on(world: World, chunk: ChunkId, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(0)
        if (seen := await read_once(world, chunk, world.rng.choice(world.living()))) is not None:
            world.history.operations.append(seen)


async def trouble(world: World, kills: int, cuts: int) -> None:
    """Kill nodes and cut nodes off for a while, at random moments; one node is left."""
    events = ["kill"] * kills + ["cut"] * cuts
    world.rng.shuffle(events)
    for event in events:
        await asyncio.sleep(world.rng.random() * 0.01)
        node = world.rng.choice(world.living())
        if event == "kill" and len(world.living()) > 1:
            world.kill(node)
        elif event == "cut":
            world.cut.add(node)
            await asyncio.sleep(world.rng.random() * 0.03)
            world.cut.discard(node)


async def random_run(seed: int, writers: int, kind: type[Replica] = Replica) -> World:
    """Let several clients write and read two chunks under random kills and cuts; end with a read of every replica."""
    world = World(seed, kind=kind)
    chunks = [ChunkId(0, 0), ChunkId(0, 1)]
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(read_on(world, chunk, stopping)) for chunk in chunks for _ in range(2)]
    numbers = itertools.count(1)
    tries = world.rng.choice((2, 1000))
    load = [write_on(world, chunk, next(numbers), 12, tries) for chunk in chunks for _ in range(writers)]
    work = asyncio.gather(trouble(world, world.rng.choice((0, 1, 1, 2)), world.rng.choice((0, 1, 2))), *load)
    await asyncio.wait_for(work, 20)
    stopping.set()
    await asyncio.gather(*readers)
    await world.rest()
    for chunk in chunks:
        for node in world.living():
            seen = await read_once(world, chunk, node)
            assert seen is not None, "nothing is pending when all has come to rest"
            world.history.operations.append(seen)
    return world
