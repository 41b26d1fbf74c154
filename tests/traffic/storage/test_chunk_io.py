"""Chunks as files use them, over services in one process, in time that jumps."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from fabric.errors import TrafficError
from traffic.storage.chains import Chain, ChunkId, ChunkPlace, Striping, TableChange
from traffic.storage.client.chunk_io import ChunkIo, ChunkUpdate
from traffic.storage.client.library import GaveUp
from traffic.storage.content_history import content_faults
from traffic.storage.history import MAYBE, Event, Kind, Seen, violations
from traffic.storage.payload import Raw, checksum_of
from traffic.storage.updates import Action, Change
from traffic.storage.wire.messages import CallKind, FoundChunk, Query, ReplyStatus, parse_query

from .test_true_timers import config_of
from .true_timers import NODES, Cluster, no_listeners_left, run

PLACE = ChunkPlace(ChunkId(7, 0), 0)


async def started(clients: int = 1, **changed: Any) -> tuple[Cluster, ChunkIo]:
    cluster = Cluster(config_of(**changed))
    await cluster.start(clients)
    return cluster, ChunkIo(cluster.clients["c0"])


def test_bytes_that_are_written_are_read_from_every_replica() -> None:
    async def scene() -> None:
        _, chunks = await started()
        assert (await chunks.read(PLACE, 0, 100)).data == b""
        assert await chunks.length(PLACE) is None
        assert await chunks.write(PLACE, 0, b"abcdef") == ChunkUpdate(1, 6)
        assert await chunks.append(PLACE, b"ghi") == ChunkUpdate(2, 9)
        assert await chunks.write(PLACE, 2, b"XY") == ChunkUpdate(3, 9)
        assert await chunks.write(PLACE, 12, b"z") == ChunkUpdate(4, 13)
        assert await chunks.truncate(PLACE, 11) == ChunkUpdate(5, 11)
        assert await chunks.extend(PLACE, 5) == ChunkUpdate(6, 11)
        right = b"abXYefghi\0\0"
        for server in NODES:
            (found,) = await chunks.read_all([(PLACE, 0, 1000)], server=server)
            assert found == (right, 6, 11)
            (found,) = await chunks.read_all([(PLACE, 3, 4)], server=server)
            assert found.data == right[3:7]
        assert (await chunks.read(PLACE, 11, 5)).data == b""
        assert (await chunks.read(PLACE, 0, 3, relaxed=True)).data == b"abX"
        assert await chunks.remove(PLACE) == ChunkUpdate(7, 0)
        assert await chunks.read(PLACE, 0, 100) == (b"", 7, 0)
        assert await chunks.remove(PLACE) == ChunkUpdate(7, 0)
        assert await chunks.write(PLACE, 0, b"anew") == ChunkUpdate(8, 4)
        found_all = await chunks.client.read_back()
        assert (found_all.checked, found_all.lost) == (3, ())

    run(scene())


def test_what_makes_no_sense_is_refused() -> None:
    async def scene() -> None:
        _, chunks = await started()
        for call, fault in [
            (chunks.write(PLACE, 0, b""), "0 B at 0; write 1 B or more"),
            (chunks.write(PLACE, -1, b"x"), "1 B at -1"),
            (chunks.write(PLACE, 64 << 20, b"x"), "below 67108864 B"),
            (chunks.truncate(PLACE, -1), "a length of -1 B; it can have 0 to"),
        ]:
            with pytest.raises(ValueError, match=fault):
                await call
        wrong = Change(Action.WRITE, 0, 3, 12345, Raw(b"abc"))
        with pytest.raises(TrafficError, match="refused it: WRONG_CHECKSUM"):
            await chunks.client.update(*PLACE, wrong)
        assert await chunks.length(PLACE) is None

    run(scene())


def test_files_are_written_read_and_removed_across_their_chunks() -> None:
    async def scene() -> None:
        cluster, chunks = await started()
        layout = Striping(4096, 3, len(cluster.table.chains), 1).layout(5, 40_000)
        data = random.Random(1).randbytes(20_000)
        await chunks.write_file(layout, 3000, data)
        assert await chunks.read_file(layout, 0, 24_000) == bytes(3000) + data + bytes(1000)
        lasts = [await chunks.last_of(5, chain) for chain in layout.chains]
        assert max(one.place for one in lasts if one) == 5
        assert lasts[5 % 3] == FoundChunk(5, 23_000 - 5 * 4096, 1)
        assert await chunks.last_of(6, layout.chains[0]) is None
        assert [one.place for one in await chunks.chunks_of(5, layout.chains[0])] == [3, 0]
        assert await chunks.remove_file(5, layout.chains, at_once=1) == 6
        assert [await chunks.last_of(5, chain) for chain in layout.chains] == [None] * 3
        assert await chunks.read_file(layout, 0, 24_000) == bytes(24_000)
        await chunks.write_file(layout, 3000, data)
        for service in cluster.services.values():
            service.replica._chunks.clear()  # As a new disk has none.
        assert await chunks.last_of(5, layout.chains[0]) is None

    run(scene())


def test_a_target_that_syncs_tells_of_no_chunks() -> None:
    async def scene() -> None:
        cluster, chunks = await started()
        await chunks.write(PLACE, 0, b"abc")
        first = cluster.table.chains[PLACE.chain]
        asked = first.targets[-1]
        chain = Chain(first.number, first.targets[:-1], first.version + 1, syncing=asked)
        cluster.services[asked.node].adopt(TableChange(2, (chain,)))
        link = await chunks.client.links.to(asked.node)
        query = Query(chain.number, chain.version, 99, 0, 9, 1)  # Of a file of which it has nothing yet.
        assert (await link.call(CallKind.QUERY, query.pack(), 1)).status is ReplyStatus.NOT_SERVING
        assert (await link.call(CallKind.QUERY, query._replace(chain_version=1).pack(), 1)).status.may_pass
        with pytest.raises(TrafficError, match="a query of 3 B instead of"):
            parse_query(b"abc")

    run(scene())


def test_a_version_that_is_pending_without_the_one_before_ends_the_run() -> None:
    async def scene() -> None:
        cluster, chunks = await started()
        await chunks.write(PLACE, 0, b"abc")
        service = cluster.services[NODES[0]]
        held = service.replica.held(PLACE.chunk)
        assert held is not None and held.committed is not None
        held.pending = replace(held.committed, version=2)
        service.require_sound()
        held.pending = replace(held.committed, version=3)
        with pytest.raises(
            TrafficError, match=f"{PLACE.chunk} on st000: version 3 is pending, 1 committed; it is a bug"
        ):
            service.require_sound()

    run(scene())


def test_costs_are_counted_on_every_replica() -> None:
    async def scene() -> None:
        cluster, chunks = await started()
        for offset, size in ((0, 4096), (4096, 1000), (100, 50)):
            await chunks.write(PLACE, offset, bytes(size))
        counts = {name: cluster.count(name) for name in ("copies_on_write", "writes_in_place")}
        assert counts == {"copies_on_write": 3, "writes_in_place": 6}
        assert cluster.count("disk_read_bytes") == 3 * 5096
        assert cluster.count("disk_written_bytes") == 3 * (4096 + 1000 + 5096)

    run(scene())


async def random_parts_with_cuts(seed: int) -> tuple[Cluster, list[Event]]:
    """Write, append, truncate, remove and read while nodes fall silent and return."""
    rng = random.Random(seed)
    cluster, _ = await started(clients=3, manager={"fence": "half"})
    events: list[Event] = []
    over = asyncio.Event()
    places = [ChunkPlace(ChunkId(7, index), index) for index in range(2)]

    async def update(chunks: ChunkIo, place: ChunkPlace) -> None:
        action = rng.choice([Action.WRITE] * 4 + list(Action))
        data = rng.randbytes(rng.randrange(50, 400)) if action is Action.WRITE else b""
        length = len(data) if data else 0 if action is Action.REMOVE else rng.randrange(600)
        payload = Raw(data), checksum_of([data])
        change = Change(action, rng.choice((0, 100, 350)) if data else 0, length, payload[1], payload[0])
        began_s = time.monotonic()
        try:
            done = await chunks.client.update(place.chunk, place.chain, change)
        except GaveUp as error:
            events.append(Event(Kind.WRITE, place.chunk, error.request, None, began_s, MAYBE, change=change))
            return
        if chunks.client.acknowledged.get(place.chunk) is done:  # Else it was a removal of what is not there.
            told = done.request, done.version, began_s, time.monotonic()
            events.append(Event(Kind.WRITE, place.chunk, *told, change=change))

    async def read(chunks: ChunkIo, place: ChunkPlace) -> None:
        is_relaxed, began_s = rng.random() < 0.3, time.monotonic()
        try:
            (found,) = await chunks.client.read_bytes([place.extent(0, 4096)], is_relaxed=is_relaxed)
        except GaveUp:
            return
        seen = Seen(0, 4096, checksum_of([found.data]), found.chunk_bytes)
        kind = Kind.RELAXED_READ if is_relaxed else Kind.READ
        when = began_s, time.monotonic()
        events.append(Event(kind, place.chunk, found.request, found.version, *when, seen=seen))

    async def client(name: str) -> None:
        chunks = ChunkIo(cluster.clients[name])
        while not over.is_set():
            await (update if rng.random() < 0.4 else read)(chunks, rng.choice(places))
            await asyncio.sleep(rng.uniform(0, 20))

    await asyncio.gather(*(client(name) for name in cluster.clients), cluster.cut_at_random(rng, over))
    await cluster.until_whole(2000)
    await asyncio.sleep(100)
    for place in places:
        states = [cluster.services[node].replica.states(place.chain).get(place.chunk) for node in NODES]
        whole = [state and (state.committed, state.updated, state.checksum, state.size_bytes) for state in states]
        assert len(set(whole)) == 1, f"{place.chunk}: {whole}"
    for service in cluster.services.values():
        service.require_sound()
    return cluster, events


def check(seed: int) -> int:
    with no_listeners_left():
        _, events = run(random_parts_with_cuts(seed))
    assert violations(events) == [], seed
    assert content_faults(events) == [], seed
    return len(events)


def test_partitions_and_returns_lose_no_part_and_mix_none_up() -> None:
    operations = sum(check(seed) for seed in range(4))
    print(f"{operations} operations")
    assert operations > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_hundred_runs_with_partitions_and_parts() -> None:
    print(f"{sum(check(seed) for seed in range(500))} operations")
