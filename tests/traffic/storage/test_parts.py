"""Updates of parts of chunks among replicas in one process: scenes, random runs, planted bugs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fabric.errors import TrafficError
from traffic.storage.chains import Chain, ChainTable, ChunkId, TableChange
from traffic.storage.payload import ChunkContent, Recipe
from traffic.storage.service.replica import Answer, Applied, Chunk, Refused, Replica, Stored
from traffic.storage.updates import Action, Change, Cost
from traffic.storage.wire.messages import REQUEST_BITS, Io, ReplyStatus

from .parts import CHUNKS, faults_of, io_of_change, part, random_parts, seen_of
from .world import NODES, World, soon, table_of

CHUNK = CHUNKS[0]


async def update(world: World, change: Change, request: int) -> Applied:
    return await world.write(io_of_change(change, request), world.table)


def bytes_at(world: World, node: object) -> bytes:
    stored = world.replicas[node].read(CHUNK)  # type: ignore[index]
    return b"".join(stored.content.pieces(0, stored.content.size_bytes))


def made(request: int, offset: int, length: int) -> bytes:
    return b"".join(Recipe(CHUNK, request, length, offset).pieces(0, length))


def test_every_update_is_a_version_and_all_replicas_have_the_same_bytes() -> None:
    async def scene() -> None:
        world = World(1)
        model = bytearray()
        for version, (change, end) in enumerate(
            [
                (part(CHUNK, 1, 0, 300), 300),
                (part(CHUNK, 2, 300, 100), 400),  # An append.
                (part(CHUNK, 3, 50, 80), 400),
                (part(CHUNK, 4, 500, 50), 550),  # Behind a hole.
                (Change(Action.TRUNCATE, 0, 120), 120),
                (Change(Action.EXTEND, 0, 90), 120),
                (Change(Action.EXTEND, 0, 150), 150),
            ],
            start=1,
        ):
            answer = await update(world, change, version)
            assert (answer.version, answer.request, answer.chunk_bytes) == (version, version, end)
            if change.action is Action.WRITE:
                model.extend(bytes(max(0, change.offset - len(model))))
                model[change.offset : change.offset + change.length] = made(version, change.offset, change.length)
            else:
                del model[end:]
                model.extend(bytes(end - len(model)))
            for node in NODES:
                assert bytes_at(world, node) == bytes(model), (version, node)
        states = {tuple(world.replicas[node].states(0).items()) for node in NODES}
        assert len(states) == 1

    asyncio.run(scene())


def test_a_removed_chunk_leaves_its_version_and_an_older_update_brings_nothing_back() -> None:
    async def scene() -> None:
        world = World(1)
        await update(world, part(CHUNK, 1, 0, 100), 1)
        assert (await update(world, Change(Action.REMOVE), 2)).version == 2
        for node in NODES:
            with pytest.raises(Refused, match="was removed") as refusal:
                world.replicas[node].read(CHUNK)
            assert (refusal.value.status, refusal.value.version, refusal.value.request) == (ReplyStatus.NOT_FOUND, 2, 2)
        late = io_of_change(part(CHUNK, 1, 0, 100), 1, version=1)
        again = await world.replicas[NODES[2]].update(late, world.pull_from(None, None, late), 0, soon())
        assert again.version == 1, "it counts as committed"
        assert world.replicas[NODES[2]].states(0)[CHUNK][:2] == (2, 2)
        # To remove what is not there is no error, and no version.
        other = io_of_change(Change(Action.REMOVE), 3 << REQUEST_BITS)
        assert (await world.write(other, world.table)).request == 2
        never = io_of_change(Change(Action.REMOVE), (3 << REQUEST_BITS) + 1, ChunkId(9, 9))
        assert (await world.write(never, world.table)) == Applied(0, 0)
        assert world.replicas[NODES[0]].held(ChunkId(9, 9)) is None
        assert (await update(world, part(CHUNK, 4, 10, 50), 4)).version == 3
        assert bytes_at(world, NODES[1]) == bytes(10) + made(4, 10, 50)

    asyncio.run(scene())


def test_what_comes_twice_is_applied_once() -> None:
    async def scene() -> None:
        world = World(1)
        await update(world, part(CHUNK, 1, 0, 100), 1)
        for _ in range(2):
            appended = await update(world, part(CHUNK, 2, 100, 50), 2)
            assert (appended.version, appended.chunk_bytes) == (2, 150)
        with pytest.raises(Refused, match="comes after its client's 0x2"):
            await update(world, part(CHUNK, 1, 0, 100), 1)

    asyncio.run(scene())


def test_committed_stale_and_missing_updates_from_upstream() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = (world.replicas[node] for node in NODES[:2])
        for request in (1, 2):
            await update(world, part(CHUNK, request, 0, 100), request)
        pulls = 0

        async def pull() -> ChunkContent:
            nonlocal pulls
            pulls += 1
            return Recipe(CHUNK, 3, 40, 10)

        for version, request in ((1, 1), (2, 2)):  # Committed.
            io = io_of_change(part(CHUNK, request, 0, 100), request, version=version)
            assert (await tail.update(io, pull, 0, soon())).version == version
        assert pulls == 0, "nothing of it is asked for"
        third = io_of_change(part(CHUNK, 3, 10, 40), 3, version=3)
        asked: list[Io] = []

        async def forward(successor: object, io: Io, stored: Stored, until_s: float) -> Answer:
            asked.append(io)
            return Answer(ReplyStatus.BUSY if len(asked) == 1 else ReplyStatus.OK, 1)

        head._forward = forward
        held = head.held(CHUNK)
        assert held is not None and held.committed is not None
        with pytest.raises(Refused, match="BUSY"):
            await head.update(third, pull, 0, soon(0))
        assert (held.version, held.pending and held.pending.version) == (2, 3)
        await head.update(third, pull, 0, soon())  # Stale: it goes on to the successor.
        assert (len(asked), pulls, held.version) == (2, 1, 3)
        assert asked[1][2:5] == (10, 40, third.checksum), "the part, not the chunk"
        with pytest.raises(TrafficError, match="update to 5 after 3; one is missing"):
            await head.update(third._replace(version=5, request=9), pull, 0, soon())

    asyncio.run(scene())


def test_a_head_completes_what_is_pending_before_the_next_update() -> None:
    """3FS refuses with AdvanceUpdate."""

    async def scene() -> None:
        world = World(1, NODES[:2])
        await update(world, part(CHUNK, 1, 0, 100), 1)
        head = world.replicas[NODES[0]]
        world.cut.add(NODES[1])
        first = io_of_change(part(CHUNK, 2, 100, 50), 2)
        with pytest.raises(Refused, match="BUSY"):
            await head.write(first, world.pull_from(None, None, first), 0, soon(0.02))
        world.cut.clear()
        third = io_of_change(part(CHUNK, 3, 150, 50), 3 << REQUEST_BITS)
        answer = await head.write(third, world.pull_from(None, None, third), 0, soon())
        assert (answer.version, answer.chunk_bytes) == (3, 200)
        assert bytes_at(world, NODES[1]) == bytes_at(world, NODES[0])

    asyncio.run(scene())


def test_relaxed_reads_get_what_is_pending() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await update(world, part(CHUNK, 1, 0, 100), 1)
        head = world.replicas[NODES[0]]
        world.cut.add(NODES[1])
        io = io_of_change(part(CHUNK, 2, 100, 50), 2)
        with pytest.raises(Refused, match="BUSY"):
            await head.write(io, world.pull_from(None, None, io), 0, soon(0.02))
        with pytest.raises(Refused, match="PENDING"):
            head.read(CHUNK)
        assert [seen_of(world.replicas[node], CHUNK, True)[:2] for node in NODES[:2]] == [(2, 2), (1, 1)]
        assert head.read(CHUNK, is_relaxed=True).content.size_bytes == 150

    asyncio.run(scene())


def test_a_target_that_syncs_is_sent_the_whole_chunk() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await update(world, part(CHUNK, 1, 0, 200), 1)
        head, back = (world.replicas[node] for node in NODES[:2])
        del back._chunks[CHUNK]
        targets = table_of(*NODES[:2]).chains[0].targets
        world.table = ChainTable(3, (Chain(0, targets[:1], 3, targets[1]),))
        for replica in (head, back):
            replica.adopt(TableChange(3, world.table.chains))
        sent: list[Io] = []
        forward = head._forward

        async def noted(successor: object, io: Io, stored: Stored, until_s: float) -> Answer:
            if io not in sent:  # Else it is tried again.
                sent.append(io)
            return await forward(successor, io, stored, until_s)  # type: ignore[arg-type]

        head._forward, head._medium = noted, (medium := Noted())
        for version, change in enumerate(
            [part(CHUNK, 2, 50, 60), Change(Action.TRUNCATE, 0, 80), Change(Action.TRUNCATE), Change(Action.REMOVE)], 2
        ):
            await update(world, change, version)
            assert back.states(0) == head.states(0), change
        assert [(Action(io.action), io.offset, io.length) for io in sent] == [
            (Action.WRITE, 0, 200),
            (Action.WRITE, 0, 80),
            (Action.WRITE, 0, 0),
            (Action.REMOVE, 0, 0),
        ]
        assert [what for what in medium.asked if what[0] == "read"] == [("read", 200), ("read", 80)]
        async with head.at_rest(CHUNK, soon()) as held:
            assert held is not None and held.committed is not None and held.committed.is_removed
        assert medium.asked[-1] == ("commit", 5), "of what was removed, nothing is read"

    asyncio.run(scene())


def test_replicas_that_make_different_chunks_of_an_update_are_an_error() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await update(world, part(CHUNK, 1, 0, 200), 1)
        held = world.replicas[NODES[1]].held(CHUNK)
        assert held is not None and held.committed is not None
        other = Recipe(CHUNK, 7, 200)
        held.committed = replace(held.committed, content=other)
        with pytest.raises(TrafficError, match=f"version 2 of {CHUNK} has checksum .* here, .* on {NODES[1]}"):
            await update(world, part(CHUNK, 2, 50, 60), 2)

    asyncio.run(scene())


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 400), marks=pytest.mark.soak)])
def test_random_updates_of_parts_keep_every_promise(seeds: range) -> None:
    updates = reads = retries = 0
    for seed in seeds:
        world, events = asyncio.run(random_parts(seed))
        assert faults_of(world, events) == [], f"seed {seed}"
        updates += sum(event.change is not None for event in events)
        reads += sum(event.seen is not None for event in events)
        retries += world.history.retries
    print(f"{updates} updates, {reads} reads, {retries} tries in vain")
    assert updates > 200 and reads > 200 and retries > 20


class SkipsACommit(Replica):
    """Answers for some versions that they are committed, and drops them."""

    def _commit(self, held: Chunk, stored: Stored) -> Applied:
        if stored.version % 5 or self.node == NODES[0]:
            return super()._commit(held, stored)
        held.pending = None
        return Applied(stored.version, stored.request, stored.chain_version)


class AppendsTwice(Replica):
    """Applies an update that comes again, as if it were new."""

    def _applied(self, io: Io) -> Applied | None:
        return None


class WritesElsewhere(Replica):
    """Puts a part where the chunk begins."""

    async def _take_in(self, held: Chunk, io: Io, version: int, payload: ChunkContent | None, zone: int) -> None:
        await super()._take_in(held, io._replace(offset=0), version, payload, zone)


@pytest.mark.parametrize("kind", [SkipsACommit, AppendsTwice, WritesElsewhere])
def test_a_planted_bug_is_found(kind: type[Replica]) -> None:
    for seed in range(60):
        try:
            found = faults_of(*asyncio.run(random_parts(seed, kind)))
        except (AssertionError, TrafficError, asyncio.TimeoutError) as error:  # The protocol's own checks see it first.
            found = [f"{type(error).__name__}: {error}"]
        if found:
            print(f"seed {seed}: {found[0]}")
            return
    pytest.fail("not found in 60 runs")


class Noted:
    """A medium that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    async def take_in(self, chunk: ChunkId, held: Chunk, cost: Cost) -> None:
        assert held.pending is not None, "it is pending while it is written"
        self.asked.append(("take_in", cost))

    async def replace(self, chunk: ChunkId, held: Chunk) -> None:
        self.asked.append(("replace", held.version))

    async def read(self, held: Chunk) -> None:
        stored = held.pending or held.committed
        assert stored is not None
        self.asked.append(("read", stored.content.size_bytes))

    def commit(self, chunk: ChunkId, held: Chunk) -> None:
        assert held.pending is None
        self.asked.append(("commit", held.version))

    def forget(self, chunk: ChunkId) -> None:
        self.asked.append(("forget", chunk))


def test_a_disk_is_asked_before_the_successor_and_told_of_the_commit() -> None:
    async def scene() -> None:
        medium = Noted()

        async def forward(successor: object, io: Io, stored: Stored, until_s: float) -> Answer:
            medium.asked.append(("forward", io.version))
            return Answer(ReplyStatus.OK, 1)

        head = Replica(NODES[0], table_of(*NODES[:2]), forward, medium=medium)
        for request, change in ((1, part(CHUNK, 1, 0, 100)), (2, part(CHUNK, 2, 20, 50))):
            io = io_of_change(change, request)

            async def pull(io: Io = io) -> ChunkContent:
                return Recipe(io.chunk, io.request, io.length, io.offset)

            await head.write(io, pull, 0, soon())
        assert medium.asked == [
            ("take_in", Cost(0, 100)),
            ("forward", 1),
            ("commit", 1),
            ("take_in", Cost(100, 100, True)),
            ("forward", 2),
            ("commit", 2),
        ]

    asyncio.run(scene())
