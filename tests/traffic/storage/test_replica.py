"""CRAQ among replicas in one process, scene by scene; random runs are in test_histories.py."""

from __future__ import annotations

import asyncio
import time

import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.chains import ChunkId, Extent
from traffic.storage.payload import ChunkContent, Recipe
from traffic.storage.service.replica import Answer, Refused, Stored
from traffic.storage.wire.messages import REQUEST_BITS, Io, ReplyStatus

from .world import CHUNK, NODES, World, io_of, soon


def test_a_pending_version_holds_reads_off_until_the_tail_has_committed() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = (world.replicas[node] for node in world.nodes)
        seen = []

        async def forward(successor: NodeId, io: Io, stored: Stored, until_s: float) -> Answer:
            with pytest.raises(Refused) as refusal:
                head.read(CHUNK)
            seen.append(refusal.value.status)
            await tail.update(io, world.pull_from(None, None, io), 0, until_s)
            assert tail.read(CHUNK).request == 5
            return Answer(ReplyStatus.OK)

        head._forward = forward
        await world.write(io_of(5), world.table)
        assert seen == [ReplyStatus.PENDING]
        assert head.read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_write_tried_again_at_the_new_head_is_applied_once() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        await world.write(io_of(5), world.table)
        world.kill(head)
        world.replicas[tail].adopt(world.table.change_from(world.replicas[tail].table))
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
        world.replicas[head].adopt(world.table.without_node(tail).change_from(world.table))
        assert (await asyncio.wait_for(write, 5)).version == 1
        assert world.replicas[head].read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_version_left_pending_is_completed_under_the_next_table() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        replica = world.replicas[head]
        world.running.pop(tail)
        with pytest.raises(Refused, match=f"BUSY: {tail} did not take {CHUNK} in time; last: BUSY"):
            await replica.write(io_of(5), world.pull_from(None, None, io_of(5)), 0, soon(0.02))
        with pytest.raises(Refused, match="PENDING"):
            replica.read(CHUNK)
        assert replica.adopt(world.table.without_node(tail).change_from(world.table)) == [CHUNK]
        await replica.settle(CHUNK, soon())
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


def test_a_clients_last_write_is_known_after_anothers_and_an_older_one_is_refused() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        ours, newer, theirs = (1 << REQUEST_BITS) + 1, (1 << REQUEST_BITS) + 2, (2 << REQUEST_BITS) + 1
        for request in (ours, theirs):
            await world.write(io_of(request), world.table)
        again = await world.write(io_of(ours), world.table)
        assert (again.version, again.request) == (1, ours)
        await world.write(io_of(newer), world.table)
        with pytest.raises(Refused, match=f"WRONG_REQUEST: .* {ours:#x} comes after its client's {newer:#x}"):
            await world.write(io_of(ours), world.table)
        world.kill(NODES[0])
        world.replicas[NODES[1]].adopt(world.table.change_from(world.replicas[NODES[1]].table))
        assert (await world.write(io_of(theirs), world.table)).version == 2, "the next head knows it, too"

    asyncio.run(scene())


def test_a_writer_whose_data_does_not_come_holds_nobody_off() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        replica = world.replicas[NODES[0]]

        async def never() -> ChunkContent:
            await asyncio.sleep(60)
            raise AssertionError

        silent = asyncio.get_running_loop().create_task(replica.write(io_of(1 << REQUEST_BITS), never, 0, soon(60)))
        await asyncio.sleep(0)
        assert (await asyncio.wait_for(world.write(io_of(5), world.table), 5)).version == 1
        silent.cancel()

    asyncio.run(scene())


def test_who_waits_for_a_chunk_is_told_busy_in_time() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        replica = world.replicas[NODES[0]]
        world.cut.add(NODES[1])
        tries = [
            replica.write(io_of(n << REQUEST_BITS), world.pull_from(None, None, io_of(n)), 0, soon(0.05))
            for n in range(1, 6)
        ]
        started = time.monotonic()
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert time.monotonic() - started < 10
        assert [answer.status for answer in answers if isinstance(answer, Refused)] == [ReplyStatus.BUSY] * 5

    asyncio.run(scene())


def test_a_new_chain_is_taken_up_while_the_old_successor_is_waited_for() -> None:
    async def scene() -> None:
        world = World(1)
        first, second, third = NODES
        replica = world.replicas[first]
        forward = replica._forward

        async def silent(successor: NodeId, io: Io, stored: Stored, until_s: float) -> Answer:
            if successor == second:
                await asyncio.sleep(60)
            return await forward(successor, io, stored, until_s)

        replica._forward = silent
        write = asyncio.get_running_loop().create_task(world.write(io_of(5), world.table))
        await asyncio.sleep(0.01)
        change = world.table.without_node(second).change_from(world.table)
        for node in (first, third):
            world.replicas[node].adopt(change)
        assert (await asyncio.wait_for(write, 5)).version == 1
        assert world.replicas[third].read(CHUNK).request == 5

    asyncio.run(scene())


def test_a_node_that_is_taken_out_of_a_chain_refuses_and_has_nothing_to_settle() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        head, tail = NODES[:2]
        world.cut.add(tail)
        write = asyncio.get_running_loop().create_task(world.write(io_of(5), world.table))
        await asyncio.sleep(0.01)
        replica = world.replicas[head]
        assert replica.adopt(world.table.without_node(head).change_from(world.table)) == []
        with pytest.raises(Refused, match=f"STALE_CHAIN: {head} is no longer in chain 0"):
            await write
        with pytest.raises(Refused, match="STALE_CHAIN"):
            await world.write(io_of(6), world.table)

    asyncio.run(scene())


def test_a_caller_with_another_version_of_the_chain_is_refused() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        for version, status in ((2, ReplyStatus.UNKNOWN_CHAIN), (0, ReplyStatus.STALE_CHAIN)):
            io = io_of(5, chain_version=version)
            with pytest.raises(Refused) as refusal:
                await world.replicas[NODES[0]].write(io, world.pull_from(None, None, io), 0, soon())
            assert refusal.value.status is status
            assert refusal.value.status.may_pass

    asyncio.run(scene())


def test_a_write_to_another_than_the_head_is_refused() -> None:
    async def scene() -> None:
        world = World(1, NODES[:2])
        with pytest.raises(Refused) as refusal:
            await world.replicas[NODES[1]].write(io_of(5), world.pull_from(None, None, io_of(5)), 0, soon())
        assert refusal.value.status is ReplyStatus.NOT_HEAD

    asyncio.run(scene())


@pytest.mark.parametrize(("version", "request_", "fault"), [(3, 9, "one is missing"), (1, 9, "is write 0x5")])
def test_a_forked_chain_is_an_error(version: int, request_: int, fault: str) -> None:
    async def scene() -> None:
        world = World(1, NODES[:1])
        await world.write(io_of(5), world.table)
        io = io_of(request_, version=version)
        with pytest.raises(TrafficError, match=fault):
            await world.replicas[NODES[0]].update(io, world.pull_from(None, None, io), 0, soon())

    asyncio.run(scene())


def test_preloaded_chunks_are_version_one_of_nobodys_write() -> None:
    replica = World(1).replicas[NODES[0]]
    replica.preload([Extent(CHUNK, 0, 0, 100)])
    assert (replica.read(CHUNK).version, replica.read(CHUNK).request) == (1, 0)
    with pytest.raises(Refused, match="NOT_FOUND"):
        replica.read(ChunkId(9, 9))
