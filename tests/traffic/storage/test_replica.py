"""CRAQ among replicas in one process: a network of coroutines that delays, cuts calls off and kills nodes at random."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from fabric.errors import TrafficError
from fabric.identity import NodeId, Role
from traffic.storage.chains import Chain, ChainTable, ChunkId, Extent, Target
from traffic.storage.messages import Io, Status
from traffic.storage.payload import Content, Recipe
from traffic.storage.replica import Patience, Refused, Replica, Stored
from traffic.storage.wire import LinkLost

T = TypeVar("T")
NODES = [NodeId(Role.STORAGE, None, index) for index in range(3)]
CHUNK = ChunkId(0, 0)
PATIENCE = Patience(retry_s=0.0005, give_up_s=5)


def table_of(*nodes: NodeId) -> ChainTable:
    return ChainTable(1, (Chain(0, tuple(Target(node, 0) for node in nodes)),))


def io_of(request: int, chunk: ChunkId = CHUNK, version: int = 0) -> Io:
    return Io(0, chunk, 0, 100, 0, request, version)


@dataclass
class World:
    """Replicas of one chain, and a network between them."""

    seed: int
    nodes: list[NodeId] = field(default_factory=lambda: list(NODES))

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.table = table_of(*self.nodes)
        self.replicas = {node: Replica(node, self.table, self._forward_from(node), PATIENCE) for node in self.nodes}
        self.running: dict[NodeId, set[asyncio.Task[Any]]] = {node: set() for node in self.nodes}
        self.background: list[asyncio.Task[None]] = []
        self.faults: list[BaseException] = []

    async def delay(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(0)
        if self.rng.random() < 0.05:
            await asyncio.sleep(0.001)

    def living(self) -> list[NodeId]:
        return [node for node in self.nodes if node in self.running]

    async def at(self, node: NodeId, work: Coroutine[Any, Any, T], patience: int = 10_000) -> T:
        """Run ``work`` as a handler of ``node``: it dies with the node, and the caller then sees the link lost; the
        caller may also lose patience, and the handler go on."""
        if node not in self.running:
            work.close()
            raise LinkLost(f"{node} has gone")
        task = asyncio.get_running_loop().create_task(work)
        self.running[node].add(task)
        task.add_done_callback(self._note)
        for _ in range(patience):
            if task.done():
                break
            await asyncio.sleep(0)
        if not task.done():
            raise LinkLost("timeout")
        if task.cancelled():
            raise LinkLost(f"{node} has gone")
        return task.result()

    def _note(self, task: asyncio.Task[Any]) -> None:
        """Keep what went wrong even if nobody waits for it any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LinkLost | Refused):
            self.faults.append(error)

    def pull_from(self, source: NodeId | None, io: Io) -> Any:
        async def pull() -> Content:
            await self.delay()
            if source is not None and source not in self.running:
                raise LinkLost(f"{source} has gone")
            return Recipe(io.chunk, io.request, io.length)

        return pull

    def _forward_from(self, node: NodeId) -> Any:
        async def forward(successor: NodeId, table_version: int, io: Io, stored: Stored) -> Status:
            await self.delay()
            handler = self.replicas[successor]
            patience = self.rng.choice((5, 10_000, 10_000))
            try:
                await self.at(successor, handler.update(io, table_version, self.pull_from(node, io), 0), patience)
            except LinkLost:
                return Status.BUSY
            except Refused as refusal:
                return refusal.status
            await self.delay()
            return Status.OK

        return forward

    async def write(self, io: Io, table: ChainTable) -> Stored:
        head = table.chains[0].head.node
        return await self.at(head, self.replicas[head].write(io, table.version, self.pull_from(None, io), 0))

    def kill(self, node: NodeId) -> None:
        for task in self.running.pop(node):
            task.cancel()
        self.table = self.table.without_node(node)
        for other in self.living():
            self.background.append(asyncio.get_running_loop().create_task(self._publish(other, self.table)))

    async def _publish(self, node: NodeId, table: ChainTable) -> None:
        await asyncio.sleep(self.rng.random() * 0.002)
        for chunk in self.replicas[node].adopt(table):
            if node in self.running:
                self.background.append(asyncio.get_running_loop().create_task(self._settle(node, chunk)))

    async def _settle(self, node: NodeId, chunk: ChunkId) -> None:
        try:
            await self.at(node, self.replicas[node].settle(chunk))
        except LinkLost:
            return


@dataclass
class History:
    """What clients were promised and shown."""

    acknowledged: dict[ChunkId, tuple[int, int]] = field(default_factory=dict)
    written: dict[tuple[ChunkId, int], int] = field(default_factory=dict)
    reads: int = 0

    def note(self, chunk: ChunkId, stored: Stored) -> None:
        """Every version of a chunk comes from one write."""
        assert self.written.setdefault((chunk, stored.version), stored.request) == stored.request


async def writer(world: World, history: History, chunk: ChunkId, number: int, count: int) -> None:
    for sequence in range(count):
        request = number * 1000 + sequence + 1
        while True:
            await world.delay()
            try:
                stored = await world.write(io_of(request, chunk), world.table)
            except (LinkLost, Refused):
                await asyncio.sleep(0.0005)
                continue
            break
        assert stored.request == request
        history.note(chunk, stored)
        before = history.acknowledged.get(chunk, (0, 0))
        history.acknowledged[chunk] = max(before, (stored.version, request))


async def reader(world: World, history: History, chunk: ChunkId, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(0)
        await world.delay()
        node = world.rng.choice(world.living())
        promised = history.acknowledged.get(chunk, (0, 0))[0]
        try:
            stored = world.replicas[node].read(chunk)
        except Refused as refusal:
            assert refusal.status is Status.PENDING or promised == 0
            continue
        history.note(chunk, stored)
        history.reads += 1
        assert stored.version >= promised


async def _random_run(seed: int) -> History:
    world, history = World(seed), History()
    chunks = [ChunkId(0, 0), ChunkId(0, 1)]
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(reader(world, history, chunk, stopping)) for chunk in chunks]
    # Two clients write the same chunks: nothing but the head orders them.
    writers = [loop.create_task(writer(world, history, chunk, number, 12)) for number in (1, 2) for chunk in chunks]
    for _ in range(world.rng.choice((0, 1, 1, 2))):
        await asyncio.sleep(world.rng.random() * 0.01)
        world.kill(world.rng.choice(world.living()))
    await asyncio.wait_for(asyncio.gather(*writers), 20)
    while any(not task.done() for task in world.background):
        await asyncio.wait(world.background, timeout=5)
    stopping.set()
    await asyncio.gather(*readers, *world.background)
    assert not world.faults
    for chunk in chunks:
        final = {(s.version, s.request) for s in (world.replicas[node].read(chunk) for node in world.living())}
        assert final == {history.acknowledged[chunk]}
    return history


@pytest.mark.parametrize("batch", range(8))
def test_acknowledged_writes_survive_any_failures_and_versions_never_fork(batch: int) -> None:
    reads = 0
    for seed in range(batch * 12, batch * 12 + 12):
        reads += asyncio.run(_random_run(seed)).reads
    assert reads > 100


def test_a_pending_version_holds_reads_off_until_the_tail_has_committed() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = (world.replicas[node] for node in world.nodes)
        seen = []

        async def forward(successor: NodeId, table_version: int, io: Io, stored: Stored) -> Status:
            with pytest.raises(Refused) as refusal:
                head.read(CHUNK)
            seen.append(refusal.value.status)
            await tail.update(io, table_version, world.pull_from(None, io), 0)
            assert tail.read(CHUNK).request == 5
            return Status.OK

        head._forward = forward
        await world.write(io_of(5), world.table)
        assert seen == [Status.PENDING]
        assert head.read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_write_tried_again_at_the_new_head_is_applied_once() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        await world.write(io_of(5), world.table)
        world.kill(head)
        world.replicas[tail].adopt(world.table)
        again = await world.write(io_of(5), world.table)
        assert (again.version, again.request) == (1, 5)
        assert (await world.write(io_of(6), world.table)).version == 2

    asyncio.run(scene())


def test_a_predecessor_that_becomes_tail_commits_what_it_has_pending() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        world.running.pop(tail)  # Dead, and nobody has said so yet.
        write = asyncio.get_running_loop().create_task(world.write(io_of(5), world.table))
        await asyncio.sleep(0.01)
        assert not write.done()
        world.replicas[head].adopt(world.table.without_node(tail))
        assert (await asyncio.wait_for(write, 1)).version == 1
        assert world.replicas[head].read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_version_left_pending_is_completed_under_the_next_table() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        replica = world.replicas[head]
        replica._patience = Patience(retry_s=0.001, give_up_s=0.01)
        world.running.pop(tail)
        with pytest.raises(Refused, match=f"BUSY: {tail} did not take {CHUNK} for 0.01 s"):
            await world.write(io_of(5), world.table)
        with pytest.raises(Refused, match="PENDING"):
            replica.read(CHUNK)
        assert replica.adopt(world.table.without_node(tail)) == [CHUNK]
        await replica.settle(CHUNK)
        assert replica.read(CHUNK).request == 5

    asyncio.run(scene())


def test_another_clients_write_completes_the_pending_one_first() -> None:
    async def scene() -> None:
        world = World(1, NODES[:1])
        replica = world.replicas[NODES[0]]
        await world.write(io_of(5), world.table)
        held = replica.held(CHUNK)
        assert held is not None
        held.pending = Stored(2, 6, 0, Recipe(CHUNK, 6, 100), 0)
        assert (await world.write(io_of(7), world.table)).version == 3
        assert (await world.write(io_of(7), world.table)).version == 3

    asyncio.run(scene())


def test_a_caller_with_another_table_is_refused() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        newer = world.table.without_node(NODES[1])
        for version, status in ((newer.version, Status.UNKNOWN_TABLE), (0, Status.STALE_TABLE)):
            with pytest.raises(Refused) as refusal:
                await world.write(io_of(5), ChainTable(version, world.table.chains))
            assert refusal.value.status is status
            assert refusal.value.status.may_pass

    asyncio.run(scene())


def test_a_write_to_another_than_the_head_is_refused() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        with pytest.raises(Refused) as refusal:
            await world.replicas[NODES[1]].write(io_of(5), 1, world.pull_from(None, io_of(5)), 0)
        assert refusal.value.status is Status.NOT_HEAD

    asyncio.run(scene())


@pytest.mark.parametrize(("version", "request_", "fault"), [(3, 9, "one is missing"), (1, 9, "is write 0x5")])
def test_a_forked_chain_is_an_error(version: int, request_: int, fault: str) -> None:
    async def scene() -> None:
        world = World(1, NODES[:1])
        await world.write(io_of(5), world.table)
        io = io_of(request_, version=version)
        with pytest.raises(TrafficError, match=fault):
            await world.replicas[NODES[0]].update(io, 1, world.pull_from(None, io), 0)

    asyncio.run(scene())


def test_preloaded_chunks_are_version_one_of_nobodys_write() -> None:
    replica = World(1).replicas[NODES[0]]
    replica.preload([Extent(CHUNK, 0, 0, 100)])
    assert (replica.read(CHUNK).version, replica.read(CHUNK).request) == (1, 0)
    with pytest.raises(Refused, match="NOT_FOUND"):
        replica.read(ChunkId(9, 9))
