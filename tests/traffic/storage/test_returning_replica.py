"""A target that has come back, in one process: what it takes, refuses and forgets while it is brought up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from traffic.storage.chains import Chain, ChainTable, ChunkId, TableChange
from traffic.storage.payload import ChunkContent, Recipe
from traffic.storage.service.replica import Applied, Chunk, Refused, Replica
from traffic.storage.service.resync import ChunkState
from traffic.storage.service.resyncing import Resync, ResyncForked, ResyncStopped
from traffic.storage.wire.messages import ReplyStatus

from .world import CHUNK, NODES, SIZE, World, io_of, soon, table_of

HEAD, BACK = NODES[:2]
OTHER = ChunkId(0, 3)


def syncing(world: World, version: int = 3) -> Chain:
    """Let the chain of a world be one of the head alone, with the other target syncing, for both."""
    targets = table_of(HEAD, BACK).chains[0].targets
    chain = Chain(0, targets[:1], version, targets[1])
    world.table = ChainTable(version, (chain,))
    for node in (HEAD, BACK):
        world.replicas[node].adopt(TableChange(version, (chain,)))
    return chain


async def pulled(request: int = 9, chunk: ChunkId = CHUNK) -> ChunkContent:
    return Recipe(chunk, request, SIZE)


class Peer:
    """The target that is back, without a network between."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.written: list[ChunkId] = []
        self.removed: list[ChunkId] = []
        self.is_done = False

    async def start(self, chain: Chain) -> Mapping[ChunkId, ChunkState]:
        return self.replica.states(chain.number)

    async def write(self, chain: Chain, chunk: ChunkId, held: Chunk) -> None:
        assert held.committed is not None
        stored = held.committed
        io = io_of(stored.request, chunk, stored.version, stored.chain_version)
        await self.replica.replace_chunk(io, held.last, lambda: pulled(stored.request, chunk), soon())
        self.written.append(chunk)

    async def remove(self, chain: Chain, chunk: ChunkId) -> None:
        await self.replica.remove_chunk(chunk, chain.number, soon())
        self.removed.append(chunk)

    async def done(self, chain: Chain) -> None:
        self.is_done = True


def test_it_serves_no_reads() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        syncing(world)
        with pytest.raises(Refused) as refusal:
            world.replicas[BACK].read(CHUNK)
        assert refusal.value.status is ReplyStatus.NOT_SERVING
        assert refusal.value.status.may_pass
        assert world.replicas[HEAD].read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_write_replaces_whatever_it_had_and_the_next_must_follow_it() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        back = world.replicas[BACK]
        chain = syncing(world)
        newer = io_of(9, version=7, chain_version=chain.version)
        applied = await back.update(newer, pulled, 0, soon())
        assert (applied.version, applied.chain_version) == (7, 3)
        held = back.held(CHUNK)
        assert held is not None and held.state[:3] == (7, 7, 3)
        with pytest.raises(Exception, match="update to 9 after 7; one is missing"):
            await back.update(io_of(11, version=9, chain_version=chain.version), pulled, 0, soon())

    asyncio.run(scene())


def test_a_pending_version_from_before_is_abandoned() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        back = world.replicas[BACK]
        held = back.held(CHUNK)
        assert held is not None and held.committed is not None
        held.pending = replace(held.committed, version=2, request=6)
        syncing(world)
        assert not back.must_settle(CHUNK), "it is not its to complete"
        await back.replace_chunk(io_of(9, version=4, chain_version=2), {1: Applied(3, 8)}, pulled, soon())
        assert held.pending is None
        assert held.state[:3] == (4, 4, 2)
        assert held.last[1] == Applied(3, 8)

    asyncio.run(scene())


def test_what_was_written_meanwhile_is_neither_replaced_by_older_nor_removed() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        back = world.replicas[BACK]
        chain = syncing(world)
        await back.update(io_of(9, version=7, chain_version=chain.version), pulled, 0, soon())
        await back.replace_chunk(io_of(5, version=6, chain_version=2), {}, lambda: pulled(5), soon())
        await back.remove_chunk(CHUNK, 0, soon())
        held = back.held(CHUNK)
        assert held is not None and held.committed is not None and held.committed.request == 9

    asyncio.run(scene())


def test_it_is_brought_up_to_date_and_a_second_resync_finds_nothing() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        await world.write(io_of(6, OTHER), world.table)
        head, back = world.replicas[HEAD], world.replicas[BACK]
        alone = ChainTable(2, (Chain(0, world.table.chains[0].targets[:1], 2),))
        head.adopt(alone.change_from(world.table))
        world.table = alone
        await world.write(io_of(7), world.table)
        del head._chunks[OTHER]  # As if it had been removed.
        chain = syncing(world)
        peer = Peer(back)
        plan = await Resync(batch=1).bring_up_to_date(head, chain, peer)
        assert (peer.written, peer.removed, peer.is_done) == ([CHUNK], [OTHER], True)
        assert plan.size_bytes == SIZE
        assert head.states(0) == back.states(0)
        again = Peer(back)
        assert (await Resync().bring_up_to_date(head, chain, again)).size_bytes == 0
        assert (again.written, again.is_done) == ([], True)

    asyncio.run(scene())


def test_a_chain_that_changes_meanwhile_stops_a_resync_and_so_does_a_fork() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        await world.write(io_of(5), world.table)
        head, back = world.replicas[HEAD], world.replicas[BACK]
        chain = syncing(world)
        held = back.held(CHUNK)
        assert held is not None and held.committed is not None
        held.committed = replace(held.committed, chain_version=9)
        with pytest.raises(ResyncForked, match="has forked: chunk 0 of file 0"):
            await Resync().bring_up_to_date(head, chain, Peer(back))
        syncing(world, version=4)
        with pytest.raises(ResyncStopped, match="of version 3 has version 4 now"):
            await Resync().bring_up_to_date(head, chain, Peer(back))
        with pytest.raises(Refused, match="STALE_CHAIN"):
            await changing(world, back)

    async def changing(world: World, back: Replica) -> None:
        async def pull() -> ChunkContent:
            syncing(world, version=5)
            return await pulled()

        await back.replace_chunk(io_of(9, version=4), {}, pull, soon())

    asyncio.run(scene())
