"""Files over servers, storage and a store that take time, in time that jumps: what must hold whatever fails."""

from __future__ import annotations

import asyncio
import errno
import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from fabric.errors import TrafficError, UsageError
from tests.traffic.storage.metadata.memory import CHUNK_BYTES, FileSystem
from tests.traffic.storage.true_timers import run
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata import calls, lengths
from traffic.storage.metadata.chunks import cut_file
from traffic.storage.metadata.client import OutOfReach
from traffic.storage.metadata.collection import DELAY_S
from traffic.storage.metadata.config import MetadataConfig, RemovalConfig, SessionsConfig
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.files import Files, OpenFile
from traffic.storage.metadata.owners import owner_of
from traffic.storage.metadata.records import Length
from traffic.storage.metadata.ring import Flags, Ring, RingIo, batch_size

HEARD = SessionsConfig(heard_every=60.0)
QUIET = MetadataConfig(removal=RemovalConfig(every=20.0), sessions=HEARD, alive_every=10.0)
FAST = MetadataConfig(removal=RemovalConfig(delay=5.0, every=5.0, retry=20.0), sessions=HEARD, alive_every=10.0)


async def started(servers: int = 2, seed: int = 0, config: MetadataConfig = QUIET) -> FileSystem:
    system = FileSystem(servers, seed, config)
    await system.start()
    return system


def test_a_file_has_the_bytes_that_were_written() -> None:
    async def scene() -> None:
        system = await started()
        files = await system.client(1)
        await files.mkdir("/a/b", makes_parents=True)
        await files.mkdir("/a/b", makes_parents=True)
        file = await files.create("/a/b/f")
        data = random.Random(1).randbytes(5 * CHUNK_BYTES + 7)
        assert await files.write(file, 0, data) == len(data)
        assert (await files.stat("/a/b/f")).length.size_bytes == 0, "nobody has told it"
        assert (await files.fsync(file)).length == Length(len(data), 0)
        assert await files.read(file, CHUNK_BYTES - 3, 10) == data[CHUNK_BYTES - 3 : CHUNK_BYTES + 7]
        assert await files.read(file, len(data) - 2, 100) == data[-2:]
        assert await files.read(file, len(data) + 5, 100) == b""
        await files.write(file, len(data) + 100, b"end")
        assert await files.read(file, len(data) - 1, 200) == data[-1:] + bytes(100) + b"end"
        with pytest.raises(FileError, match="hole"):
            await files.read(file, len(data) - 1, 200, forbids_holes=True)
        await files.close(file)
        reader = await files.open("/a/b/f")
        assert reader.inode.length.size_bytes == len(data) + 103
        assert [one.name for one in await files.list("/a/b")] == ["f"]
        with pytest.raises(FileError, match="EBADF"):
            await files.write(reader, 0, b"x")
        with pytest.raises(FileError, match="EBADF"):
            await files.read(file, 0, 1)
        await files.rename("/a/b/f", "/g")
        await files.remove("/a", is_recursive=True)
        assert set(await system.tree()) == {"/", "/g"}
        with pytest.raises(FileError, match="ENOENT"):
            await files.open("/a/b/f")

    run(scene())


def test_truncation_and_length() -> None:
    async def scene() -> None:
        system = await started()
        one, other = await system.client(1), await system.client(2)
        file = await one.create("/f")
        await one.write(file, 0, bytes(range(256)))
        await one.fsync(file)
        same = await other.open("/f", writes=True)
        await other.truncate(same, 70)
        assert same.inode.length == Length(70, 1)
        await one.fsync(file)  # Its hint is of an older truncate version.
        assert file.inode.length == Length(70, 1)
        await other.truncate(same, 200)
        assert await other.read(same, 60, 300) == bytes(range(60, 70)) + bytes(130)
        await one.close(file)
        await other.close(same)
        assert (await one.stat("/f")).length == Length(200, 2)
        emptied = await one.open("/f", writes=True, truncates=True)
        assert emptied.inode.id != same.inode.id
        assert emptied.inode.length == Length()
        await one.close(emptied)

    run(scene())


def test_what_many_say_of_one_file_is_merged_by_its_owner() -> None:
    async def scene() -> FileSystem:
        system = await started(3)
        clients = [await system.client(number) for number in range(12)]
        await clients[0].close(await clients[0].create("/f"))
        opened = [await one.open("/f", writes=True) for one in clients]
        await asyncio.gather(
            *(
                one.write(file, 100 * place, bytes(100))
                for place, (one, file) in enumerate(zip(clients, opened, strict=True))
            )
        )
        before = sum(one.counts["batches"] for one in system.all.values())
        await asyncio.gather(*(one.fsync(file) for one, file in zip(clients, opened, strict=True)))
        batches = sum(one.counts["batches"] for one in system.all.values()) - before
        print(f"12 clients, {batches} batches")
        assert batches <= 4
        assert (await clients[0].stat("/f")).length == Length(1200, 0)
        assert sum(one.counts["queries"] for one in system.all.values()) == 0
        (owner,) = {one.name for one in system.all.values() if one.counts["batches"] > 1}
        assert owner == owner_of(opened[0].inode.id, tuple(system.all))
        return system

    run(scene())


def test_an_owner_that_dies_has_a_successor_after_thirty_seconds() -> None:
    async def scene() -> float:
        system = await started(3)
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 0, bytes(10))
        system.kill_server(owner_of(file.inode.id, tuple(system.all)))
        began_s = time.monotonic()
        await files.fsync(file)
        assert file.inode.length.size_bytes == 10
        took_s = time.monotonic() - began_s
        await system.require_sound()
        return took_s

    took_s = run(scene())
    print(f"fsync took {took_s:.1f} s")
    assert 20 < took_s < 60


def test_a_server_that_was_given_up_and_lives_is_no_owner_until_it_is_back() -> None:
    async def scene() -> None:
        system = await started(2)
        files = await system.client(1)
        file = await files.create("/f")
        owner = owner_of(file.inode.id, tuple(system.all))
        paused = system.all[owner]
        system._stores[owner].is_cut = True  # It cannot say that it lives.
        await asyncio.sleep(60)
        system._stores[owner].is_cut = False
        with pytest.raises(TrafficError, match="owner of the inode is"):
            await paused._merge(file.inode.id, [lengths.Synced(Length(5, 0))])
        await asyncio.sleep(20)
        await paused._merge(file.inode.id, [lengths.Synced(Length(5, 0))])

    run(scene())


def test_a_removed_file_keeps_its_chunks_for_a_while_and_as_long_as_a_writer_has_it() -> None:
    async def scene() -> None:
        system = await started()
        files = await system.client(1)
        file, closed = await files.create("/f"), await files.create("/g")
        for one in (file, closed):
            await files.write(one, 0, bytes(500))
        await files.close(closed)
        await files.remove("/f")
        await files.remove("/g")
        assert len(system.chunks.held) == 16
        await asyncio.sleep(DELAY_S - 30)
        assert len(system.chunks.held) == 16
        await asyncio.sleep(90)
        assert len(system.chunks.held) == 8, "that of the closed one is gone"
        await asyncio.sleep(2000)
        await files.write(file, 500, b"more")
        assert await files.read(file, 490, 100) == bytes(10) + b"more"
        await files.close(file)
        await system.until_collected()
        assert system.chunks.held == {}
        await system.require_sound()

    run(scene())


def test_a_session_ends_when_its_client_is_gone_for_five_minutes_and_not_before() -> None:
    async def scene() -> None:
        system = await started()
        gone, lives = await system.client(1), await system.client(2)
        await gone.create("/f")
        await lives.create("/g")
        system.beats[1].cancel()
        await asyncio.sleep(250)
        assert len(await system.sessions()) == 2
        await asyncio.sleep(800)
        assert [one.client for one in await system.sessions()] == [2]
        await lives.remove("/f")
        await system.until_collected()
        await system.require_sound()

    run(scene())


def test_a_removal_whose_answer_is_lost_is_not_done_twice() -> None:
    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        await files.close(await files.create("/f"))
        system.lost_answers = 1.0
        removing = asyncio.ensure_future(files.remove("/f"))
        await asyncio.sleep(1)
        system.lost_answers = 0.0
        await other.close(await other.create("/f"))
        await removing
        assert "/f" in await system.tree(), "that of the other one"

    run(scene())


def test_an_open_that_is_tried_again_leaves_one_session_wherever_the_file_is_then() -> None:
    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        system.lost_answers = 1.0
        opening = asyncio.ensure_future(files.create("/f"))
        await asyncio.sleep(1)
        system.lost_answers = 0.0
        await other.rename("/f", "/g")
        file = await opening
        assert set(await system.tree()) == {"/", "/g"}, "it was not made a second time"
        assert [one.inode for one in await system.sessions()] == [file.inode.id]
        with pytest.raises(FileError, match="EEXIST"):
            await other.create("/g")
        await files.close(file)
        assert await system.sessions() == []

    run(scene())


def test_a_close_that_is_tried_again_may_find_the_file_collected() -> None:
    async def scene() -> None:
        system = await started(config=FAST)
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 0, bytes(10))
        await files.remove("/f")
        await asyncio.sleep(20)
        system.lost_answers = 1.0
        closing = asyncio.ensure_future(files.close(file))
        await system.until_collected()
        await closing  # Errors are never lost here.
        with pytest.raises(FileError, match="ENOENT"):
            await files.metadata.sync(file.inode.id, None, session=file.session)

    run(scene())


@pytest.mark.parametrize("tries_again", [True, False])
def test_a_close_that_nobody_answers_can_be_tried_again_and_the_length_is_told(tries_again: bool) -> None:
    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        file = await files.create("/f")
        await files.write(file, 0, bytes(1000))
        names = list(system.all)
        for name in names:
            system.kill_server(name)
        with pytest.raises(OutOfReach):
            await files.close(file)
        for name in names:
            await system.start_server(name)
        if tries_again:
            await files.close(file)
            assert await system.sessions() == []
            with pytest.raises(FileError, match="EBADF"):
                await files.close(file)
        else:
            await asyncio.sleep(100)
        assert (await other.stat("/f")).length.size_bytes == 1000

    run(scene())


def test_a_close_that_was_carried_out_though_nobody_answered_ends_when_tried_again() -> None:
    """The file has been removed and collected since."""

    async def scene() -> None:
        system = await started(config=FAST)
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 0, bytes(10))
        system.lost_answers = 1.0
        with pytest.raises(OutOfReach):
            await files.close(file)
        system.lost_answers = 0.0
        await files.remove("/f")
        await system.until_collected()
        await files.close(file)
        with pytest.raises(FileError, match="EBADF"):
            await files.close(file)

    run(scene())


def test_lengths_are_told_in_turns_so_that_a_client_that_dies_leaves_no_old_ones() -> None:
    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        file = await files.create("/f")
        await files.write(file, 0, bytes(100))
        assert (await other.stat("/f")).length.size_bytes == 0
        await asyncio.sleep(31)
        assert (await other.stat("/f")).length.size_bytes == 100
        await files.write(file, 100, bytes(100))
        assert await files.read(file, 0, 300) == bytes(200), "it sees its own writes"
        system.beats[1].cancel()
        system.syncs[1].cancel()
        await asyncio.sleep(800)
        assert await system.sessions() == []
        assert (await other.stat("/f")).length.size_bytes == 100, "nobody looks for more, as released"
        there = await other.open("/f", writes=True)
        there.is_unsure = True  # As if it could not say how long it is.
        assert (await other.fsync(there)).length == Length(200, 0)

    run(scene())


def test_who_was_given_up_and_writes_on_leaves_chunks_that_nobody_collects() -> None:
    """As released: storage does not ask whether a file is still there, and sessions end by silence."""

    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        file = await files.create("/f")
        system.beats[1].cancel()
        await other.remove("/f")
        await system.until_collected()
        await files.write(file, 0, bytes(10))
        with pytest.raises(AssertionError, match="chunks without an inode"):
            await system.require_sound()
        with pytest.raises(FileError, match="ENOENT"):
            await files.close(file)

    run(scene())


def test_a_client_that_dies_in_a_truncation_leaves_a_length_that_the_next_query_mends() -> None:
    """As released: chunks are cut by the client, then the length is told."""

    async def scene() -> None:
        system = await started()
        files, other = await system.client(1), await system.client(2)
        file = await files.create("/f")
        await files.write(file, 0, bytes(range(200)))
        await files.fsync(file)
        await cut_file(system.chunks, file.layout(50), 50)  # And here it dies.
        assert await other.read(await other.open("/f"), 0, 300) == bytes(range(50)) + bytes(150)
        there = await other.open("/f", writes=True)
        await other.truncate(there, 60)
        assert (await other.stat("/f")).length == Length(60, 1)

    run(scene())


def test_two_tries_of_a_request_at_once_are_carried_out_once() -> None:
    async def scene() -> None:
        system = await started()
        for number in range(20):
            request = calls.MakeDirectory(1, number + 1, f"/d{number}", False)
            tries = [system.all["m0"].answer(request), system.all["m1"].answer(request._replace(is_again=True))]
            _, second = await asyncio.gather(*tries, return_exceptions=True)
            assert second is None, "the client waits for this one's answer; that of the first is lost"

    run(scene())


def test_a_client_may_go_by_what_it_has_seen_of_directories() -> None:
    async def scene() -> None:
        system = await started(config=QUIET.model_copy(update={"lookup_caching": 300.0}))
        files, other = await system.client(1), await system.client(2)
        await files.mkdir("/a/b", makes_parents=True)
        await files.close(await files.create("/a/b/f"))
        asked = sum(one.counts["Stat"] for one in system.all.values())
        for number in range(5):
            await files.close(await files.create(f"/a/b/{number}"))
        assert sum(one.counts["Stat"] for one in system.all.values()) == asked, "it knows the directory"
        await other.remove("/a", is_recursive=True)
        await other.mkdir("/a/b", makes_parents=True)
        await asyncio.sleep(60)  # Until it is taken apart, what is in a removed directory is there for who knows it.
        await files.close(await files.create("/a/b/f"))  # What it knew is gone; it asks anew.
        with pytest.raises(FileError, match="/a/b/f"):
            await files.create("/a/b/f")
        with pytest.raises(FileError, match="/a/b/g: No such"):
            await files.remove("/a/b/g")
        assert {"/a/b/f"} <= set(await system.tree())

    run(scene())


def test_storage_out_of_reach_delays_a_collection_and_loses_nothing() -> None:
    async def scene() -> None:
        system = await started()
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 0, bytes(500))
        await files.close(file)
        await files.remove("/f")
        system.chunks.fails = True
        await asyncio.sleep(400)
        assert sum(one.counts["collections_failed"] for one in system.all.values()) == 1
        system.chunks.fails = False
        await asyncio.sleep(800)
        assert system.chunks.held == {}
        await system.require_sound()

    run(scene())


class Program:
    """What a client does at random with files of its own and names of everybody's."""

    def __init__(self, system: FileSystem, number: int, files: Files, rng: random.Random) -> None:
        self.system, self.number, self.files, self.rng = system, number, files, rng
        self.open: dict[int, tuple[OpenFile, bytearray]] = {}
        self.finished: dict[int, bytes] = {}
        self.done = 0

    def path(self) -> str:
        return "/" + "/".join(self.rng.choices("abc", k=self.rng.randint(1, 2)))

    async def go_on(self, over: asyncio.Event) -> None:
        work = [self.make, self.make, self.write, self.write, self.sync, self.close, self.remove, self.rename]
        work += [self.mkdir, self.truncate, self.read, self.empty, self.share]
        while not over.is_set():
            try:
                await self.rng.choice(work)()
                self.done += 1
            except FileError as error:
                assert error.name in ("ENOENT", "EEXIST", "ENOTDIR", "EISDIR", "ENOTEMPTY", "EINVAL", "EBUSY"), error
            await asyncio.sleep(self.rng.choice([0, 0, 0.01, 1]))
        for inode in list(self.open):
            await self.close_one(inode)

    def own(self) -> tuple[OpenFile, bytearray] | None:
        return self.rng.choice(list(self.open.values())) if self.open else None

    async def make(self) -> None:
        file = await self.files.create(self.path())
        self.open[file.inode.id] = (file, bytearray())

    async def empty(self) -> None:
        # What it was is another's, perhaps: the name gets a new inode, or it was empty and is shared.
        file = await self.files.open(self.path(), writes=True, truncates=True)
        await self.files.close(file)

    async def share(self) -> None:
        """All write this file, and none of them knows how far the others have."""
        file = await self.files.open("/shared", writes=True, creates=True)
        await asyncio.sleep(self.rng.uniform(0, 5))
        offset = self.rng.randrange(1000)
        await self.files.write(file, offset, bytes(50))
        await self.files.close(file)
        assert file.inode.length.size_bytes >= offset + 50

    async def write(self) -> None:
        if (found := self.own()) is None:
            return
        file, data = found
        offset, piece = self.rng.randrange(300), self.rng.randbytes(self.rng.randint(1, 200))
        await self.files.write(file, offset, piece)
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(piece)] = piece

    async def sync(self) -> None:
        if (found := self.own()) is not None:
            inode = await self.files.fsync(found[0])
            assert inode.length.size_bytes == len(found[1]) == self.system.chunks.ends(found[0].layout(1))

    async def truncate(self) -> None:
        if (found := self.own()) is None:
            return
        file, data = found
        size = self.rng.randrange(300)
        await self.files.truncate(file, size)
        del data[size:]
        data.extend(bytes(size - len(data)))
        assert file.inode.length.size_bytes == size

    async def read(self) -> None:
        """Also of files that others have removed meanwhile."""
        if (found := self.own()) is not None:
            file, data = found
            assert await self.files.read(file, 0, 1000) == data

    async def close(self) -> None:
        if self.open:
            await self.close_one(self.rng.choice(list(self.open)))

    async def close_one(self, inode: int) -> None:
        file, data = self.open.pop(inode)
        await self.files.close(file)
        is_gone = inode not in (await self.system.records())[0]
        assert is_gone or file.inode.length.size_bytes == len(data)
        self.finished[inode] = bytes(data)

    async def remove(self) -> None:
        await self.files.remove(self.path(), is_recursive=self.rng.random() < 0.3)

    async def rename(self) -> None:
        await self.files.rename(self.path(), self.path())

    async def mkdir(self) -> None:
        await self.files.mkdir(self.path())


async def watch_lengths(system: FileSystem) -> None:
    """Look at all inodes all the time: no length shrinks within a truncate version."""
    last: dict[int, Length] = {}
    while True:
        for inode in (await system.records())[0].values():
            before = last.get(inode.id, Length())
            assert inode.length.truncate_version >= before.truncate_version
            if inode.length.truncate_version == before.truncate_version:
                assert inode.length.size_bytes >= before.size_bytes, f"{inode}: it was {before}"
            last[inode.id] = inode.length
        await asyncio.sleep(1)


async def at_random(seed: int) -> FileSystem:
    """Clients make, write, rename and remove at random; one of them is killed, so are servers, and answers are lost."""
    rng = random.Random(seed)
    system = await started(3, seed, FAST)
    system.lost_answers = 0.02
    over, watching = asyncio.Event(), asyncio.ensure_future(watch_lengths(system))
    programs = [Program(system, number, await system.client(number), rng) for number in range(1, 5)]
    running = [asyncio.ensure_future(one.go_on(over)) for one in programs]
    for _ in range(2):
        await asyncio.sleep(rng.uniform(3, 15))
        victim = f"m{rng.randrange(3)}"
        system.kill_server(victim)
        await asyncio.sleep(rng.choice([3, 10, 45]))
        await system.start_server(victim)
    for one in (running[0], system.beats[1], system.syncs[1]):
        one.cancel()
    await asyncio.sleep(10)
    over.set()
    await asyncio.gather(*running[1:])
    if watching.done():
        watching.result()
    watching.cancel()
    system.lost_answers = 0.0
    await check_finished(system, programs[1:])

    async def has_no_sessions() -> bool:
        return not await system.sessions()

    await system.until(has_no_sessions)
    await system.until_collected()
    await system.require_sound()
    print(f"seed {seed}: {sum(one.done for one in programs)} operations, {counts_of(system)}")
    return system


async def check_finished(system: FileSystem, programs: list[Program]) -> None:
    """All files that are there have the bytes that their writers wrote, and no more."""
    found = {inode.id: inode for inode in (await system.tree()).values()}
    written = {number: data for one in programs for number, data in one.finished.items()}
    reader = programs[0].files
    for number in found.keys() & written.keys():
        inode = found[number]
        assert inode.length.size_bytes == len(written[number])
        file = OpenFile("/", inode, 0)
        assert await reader.read(file, 0, 1000) == written[number]


def counts_of(system: FileSystem) -> dict[str, int]:
    names = ("conflicts", "batches", "merged", "queries", "collected", "collected_chunks", "sessions_ended")
    return {name: sum(one.counts[name] for one in system.all.values()) for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_invariants_hold(seed: int) -> None:
    run(at_random(seed))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_whatever_fails_invariants_hold_in_many_runs() -> None:
    for seed in range(100, 250):
        run(at_random(seed))


def shrinks(now: Length, said: list[lengths.Synced], queried_bytes: int | None) -> Length:
    """As if the last one who speaks were right."""
    size = queried_bytes if queried_bytes is not None else said[-1].hint.size_bytes  # type: ignore[union-attr]
    return Length(size or 0, now.truncate_version)


async def removes_at_once(transaction: Transaction, inode: int) -> bool:
    """As if nobody had a file open."""
    return False


@pytest.mark.parametrize(
    ("where", "name", "planted"),
    [
        ("traffic.storage.metadata.lengths", "merged", shrinks),
        ("traffic.storage.metadata.collection", "is_open", removes_at_once),
    ],
)
def test_a_planted_bug_is_found(where: str, name: str, planted: Callable[..., Any]) -> None:
    with mock.patch(f"{where}.{name}", planted):
        found = []
        for seed in range(6):
            try:
                run(at_random(seed))
            except (AssertionError, TrafficError, KeyError, RecursionError) as error:
                found.append(str(error))
                break
    print(found)
    assert found


# Rings of IOs.


@pytest.mark.parametrize(
    ("queued", "io_depth", "waited_s", "size"),
    [
        (3, 0, 0, 3),
        (3, 4, 9, 0),
        (4, 4, 0, 4),
        (5, 4, 0, 4),
        (3, -4, 0.5, 0),
        (3, -4, 1, 3),
        (9, -4, 0, 4),
        (0, -4, 9, 0),
    ],
)
def test_how_many_ios_are_a_batch(queued: int, io_depth: int, waited_s: float, size: int) -> None:
    assert batch_size(queued, io_depth, waited_s, timeout_s=1) == size


def in_ring(io_depth: int, timeout_s: float, count: int) -> tuple[list[int], int]:
    """Return the results of reads through a ring, and in how many batches they were carried out."""

    async def scene() -> tuple[list[int], int]:
        system = await started()
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 0, bytes(range(200)))
        await files.fsync(file)
        batches = 0
        read = system.chunks.read

        async def counted(extents: Any) -> list[bytes]:
            nonlocal batches
            batches += 1
            return await read(extents)

        system.chunks.read = counted  # type: ignore[method-assign]
        ring = Ring(files, 16, True, io_depth, timeout_s)
        memory = memoryview(bytearray(160))
        for place in range(count):
            ring.prep(RingIo(file, 10 * place, memory[10 * place : 10 * place + 10], place))
        ring.submit()
        done = await ring.wait(16, count, time.monotonic() + 5)
        assert {one.userdata for one in done} == set(range(len(done)))
        assert bytes(memory[: 10 * len(done)]) == bytes(range(10 * len(done)))
        return [one.result for one in done], batches

    return run(scene())


def test_a_ring_carries_out_batches_as_its_depth_has_it() -> None:
    assert in_ring(0, 0, 10) == ([10] * 10, 1)
    assert in_ring(4, 0, 10) == ([10] * 8, 2), "two wait for two more"
    assert in_ring(-4, 1.0, 10) == ([10] * 10, 3)


def test_a_ring_says_what_failed_and_takes_no_more_than_it_has() -> None:
    async def scene() -> None:
        system = await started()
        files = await system.client(1)
        file = await files.create("/f")
        await files.write(file, 300, b"x")
        memory = memoryview(bytearray(10))
        ring = Ring(files, 2, True, 0, 0.0, Flags.FORBID_READ_HOLES)
        ring.prep(RingIo(file, 0, memory))
        ring.prep(RingIo(file, 300, memory[:1]))
        with pytest.raises(FileError, match="full"):
            ring.prep(RingIo(file, 0, memory))
        ring.submit()
        done = {one.index: one.result for one in await ring.wait(2, 2)}
        assert done == {0: -errno.EIO, 1: 1}
        ring.prep(RingIo(file, 0, memory))

    run(scene())
    for wrong in ({"entries": 0}, {"entries": 4, "io_depth": 5}, {"entries": 4, "flags": 1}):
        with pytest.raises(UsageError, match=r"lower it|give it|leave"):
            Ring(None, for_read=True, **wrong)  # type: ignore[arg-type]
