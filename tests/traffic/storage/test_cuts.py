"""Services, or clients, that the network cuts off: alive and silent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from traffic.storage.chains import Extent
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.verification import Verification
from traffic.storage.client.workloads import FIRST_CHECKPOINT_FILE
from traffic.storage.job import StorageJob
from traffic.storage.wire.calls import Wire
from traffic.storage.wire.event_loop import unwatch
from traffic.storage.wire.messages import CallKind, Io, ReplyStatus

from .conftest import JobOf, client_of, run
from .cuts import Network

T = TypeVar("T")
FILE = FIRST_CHECKPOINT_FILE + 6000
SMALL = {"dataloader": {"files": 2, "file_size": "4 MiB"}, "chunk_size": "64 KiB"}
QUICK = {"call_timeout": 0.5, "operation_timeout": 1.5}


def network_of(job: StorageJob) -> Network:
    network = Network()
    for node, handle in job._services.handles.items():
        network.add(node.name, handle.process.pid, {ip for (_, of), (ip, _) in job.addresses.items() if of == node})
    network.add("test", os.getpid(), [])
    return network


async def until(condition: Callable[[], Awaitable[T]], what: str, timeout_s: float = 30.0) -> T:
    """Return the condition's first answer that is true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what}: not within {timeout_s:g} s")


def fall_silent(wire: Wire) -> None:
    """Read no more of what comes, as a program that is stopped."""
    unwatch(asyncio.get_running_loop(), wire.connection.poll_for_arrivals)


async def gives_up(client: StorageClient, extent: Extent, words: str) -> bool:
    """Whether a write is given up with some last words; on a busy machine an answer may come too late to be these."""
    with pytest.raises(GaveUp) as told:
        await client.write_chunk(extent)
    return words in str(told.value)


async def in_reach(client: StorageClient, extent: Extent) -> bool:
    try:
        await client.write_chunk(extent)
    except GaveUp:
        return False
    return True


def test_a_tail_that_is_cut_off_loses_nothing_and_all_is_well_after_the_cut(job_of: JobOf) -> None:
    job = job_of(client=QUICK, **SMALL)
    extent = job.striping.layout(FILE, 64 << 10).extent(0)
    head, tail = job.table.chains[extent.chain].nodes
    network = network_of(job)

    async def scene() -> None:
        async with client_of(job) as client:
            await client.write_chunk(extent)
            network.cut(tail.name)
            await until(lambda: gives_up(client, extent, f"last: {head} answered BUSY"), "a head that is busy")
            asked = Io(extent.chain, extent.chunk, 0, extent.length, chain_version=1)
            reply = await client.links[head].call(CallKind.READ, asked.pack(), 20)
            assert ReplyStatus(reply.meta[0]) is ReplyStatus.PENDING, "a dirty chunk is not read at the head"

            async def is_pending() -> bool:
                found = await client.read_back()
                assert (found.checked, found.lost, len(found.out_of_reach)) == (2, (), 2)
                return any("answered PENDING" in line for line in found.out_of_reach)

            await until(is_pending, "a copy that is told to be pending")
            network.heal()
            await until(lambda: in_reach(client, extent), "a write after the cut")
            assert await client.read_back() == Verification(2)
            versions = {chunk.version for node in (head, tail) for chunk in await client.read_chunks([extent], node)}
            # Acknowledged, given up (and completed all the same), acknowledged; perhaps others given up in between.
            assert versions == {client.acknowledged[extent.chunk].version}
            assert min(versions) >= 3

    run(scene())
    network.heal()


@pytest.mark.parametrize("deaf", ["head", "tail"])
def test_a_chain_whose_members_hear_one_another_one_way_only_loses_nothing(job_of: JobOf, deaf: str) -> None:
    """A client reaches all of them: the head's update, or the tail's acknowledgement of it, is what does not come."""
    job = job_of(client=QUICK, **SMALL)
    extent = job.striping.layout(FILE, 64 << 10).extent(0)
    head, tail = job.table.chains[extent.chain].nodes
    network = network_of(job)
    hearer, speaker = (head, tail) if deaf == "head" else (tail, head)

    async def scene() -> None:
        async with client_of(job) as client:
            await client.write_chunk(extent)
            network.part(hearer.name, speaker.name, both_ways=False)
            with pytest.raises(GaveUp):
                await client.write_chunk(extent)
            network.heal()
            await until(lambda: in_reach(client, extent), "a write after the cut")
            assert await client.read_back() == Verification(2)
            versions = {chunk.version for node in (head, tail) for chunk in await client.read_chunks([extent], node)}
            assert versions == {client.acknowledged[extent.chunk].version}

    run(scene())
    network.heal()


@pytest.mark.parametrize("of", ["client", "service"])
def test_a_link_that_tcp_has_given_up_is_made_again(job_of: JobOf, of: str) -> None:
    job = job_of(client=QUICK, **SMALL)
    extent = job.striping.layout(FILE, 64 << 10).extent(0)
    head, tail = job.table.chains[extent.chain].nodes
    cut_off = head if of == "client" else tail
    network = network_of(job)

    async def scene() -> int:
        async with client_of(job) as client:
            await client.write_chunk(extent)
            before = client.links[cut_off]
            network.cut(cut_off.name)
            for _ in range(2):  # Longer than any TCP waits for an acknowledgement.
                assert not await in_reach(client, extent)
            assert before.lost == (of == "client")
            network.heal()
            await until(lambda: in_reach(client, extent), "a write after the cut")
            await client.read_chunks([extent], cut_off)
            assert await client.read_back() == Verification(2)
            return client.party.counts["links_made_again"]

    made_again = run(scene())
    job.halt()
    assert made_again + job.counts.get("links_made_again", 0) >= 1
    print(f"{made_again} links made again by the client, {job.counts.get('links_made_again', 0)} by services")


def test_readers_that_are_cut_off_hold_nobody_else_off(job_of: JobOf) -> None:
    """Twelve reads of a silent client at a NIC that sends two at once; a healthy client's reads go on."""
    service = {"max_concurrent_sends": 2, "transfer_stall": 0.2}
    job = job_of(request_to_send="off", client=QUICK, service=service, **SMALL)
    extents = list(job.dataset[0].extents())
    node = job.table.chains[extents[0].chain].nodes[0]
    here = [extent for extent in extents if node in job.table.chains[extent.chain].nodes]

    async def read_on(client: StorageClient) -> None:
        while True:
            try:
                await client.read_chunks(here, node)
            except GaveUp:
                continue

    async def scene() -> list[float]:
        times = []
        async with client_of(job, 901) as silent, client_of(job, 902) as healthy:
            await silent.read_chunks(here[:1], node)
            fall_silent(silent.links[node]._data)
            load = [asyncio.create_task(read_on(silent)) for _ in range(12)]
            await asyncio.sleep(1)
            for _ in range(10):
                started = time.monotonic()
                await healthy.read_chunks(here[:2], node)
                times.append(time.monotonic() - started)
                await asyncio.sleep(0.1)
            for task in load:
                task.cancel()
        return times

    times = run(scene())
    print(f"healthy reads took {min(times):.3f} to {max(times):.3f} s")
    assert sorted(times)[len(times) // 2] < 0.5, "one may have to wait for its turn on a busy machine"
    job.halt()
    assert job.counts["expired_replies"] > 0


def test_writers_that_fall_silent_hold_nobody_else_off(job_of: JobOf) -> None:
    service = {"max_concurrent_pulls": 2, "transfer_stall": 0.2}
    job = job_of(client={"call_timeout": 10.0, "operation_timeout": 20.0}, service=service, **SMALL)
    layout = job.striping.layout(FILE, 4 << 20)
    head = job.table.chains[layout.extent(0).chain].head.node
    here = [extent for extent in layout.extents() if job.table.chains[extent.chain].head.node == head]

    async def scene() -> float:
        async with client_of(job, 901) as silent, client_of(job, 902) as healthy:
            await silent.write_chunk(here[0])
            fall_silent(silent.links[head]._messages)
            load = [asyncio.create_task(silent.write_chunk(extent)) for extent in here]
            await asyncio.sleep(0.1)
            started = time.monotonic()
            await asyncio.gather(*(healthy.write_chunk(extent) for extent in here[:2]))
            taken_s = time.monotonic() - started
            for task in load:
                task.cancel()
            return taken_s

    taken_s = run(scene())
    print(f"writes of the same chunks by a healthy client: {taken_s:.3f} s")
    assert taken_s < 8, "the silent client's writes take ten"
