"""Chunks in files: what a service that is started again finds, whatever moment it was killed at."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fabric.errors import ConfigError, TrafficError
from fabric.failures.injection import NotThereError
from fabric.failures.kinds.disk import DiskState
from fabric.model.identity import NodeId
from traffic.storage.chain_states import LocalState
from traffic.storage.chains import Chain, ChainTable, ChunkId, Extent, TableChange
from traffic.storage.client.chunk_io import ChunkIo
from traffic.storage.config import ServiceConfig
from traffic.storage.managers.manager import ClusterManager
from traffic.storage.payload import ChunkContent, Recipe
from traffic.storage.service.chunk_files import ChunkFiles, InFile
from traffic.storage.service.disks import Disk, Disks
from traffic.storage.service.membership import Membership
from traffic.storage.service.replica import Answer, Pull, Refused, Replica
from traffic.storage.service.resyncing import Resync
from traffic.storage.updates import Action, Change
from traffic.storage.wire.messages import ReplyStatus

from .conftest import JobOf, client_of
from .conftest import run as run_in_time
from .parts import CHUNKS, io_of_change, part, random_change, seen_of
from .test_returning_replica import Peer
from .world import NODES, soon, table_of

CHUNK = CHUNKS[0]


async def alone(*_: object) -> Answer:
    raise AssertionError("there is no successor")


def opened(folder: Path, table: ChainTable | None = None) -> Replica:
    """A replica of a chain of one that has its chunks in a folder."""
    files = ChunkFiles(folder)
    medium = Disks([Disk(ServiceConfig())], lambda chain: 0, Counter(), files)
    replica = Replica(NODES[0], table or table_of(NODES[0]), alone, medium=medium)
    replica.preload([Extent(ChunkId(5, 0), 0, 0, 1000)])
    replica.load(files.load())
    return replica


async def update(replica: Replica, change: Change, request: int, chunk: ChunkId = CHUNK) -> None:
    async def pull() -> Recipe:
        assert isinstance(change.payload, Recipe)
        return change.payload

    await replica.write(io_of_change(change, request, chunk), pull, 0, soon())


def told(replica: Replica) -> object:
    """All that can be seen of a replica."""
    states = replica.states(0)
    return states, {chunk: seen_of(replica, chunk) for chunk in states}, {c: h.last for c, h in replica._chunks.items()}


def test_a_replica_that_is_opened_again_has_what_it_had(tmp_path: Path) -> None:
    async def scene() -> None:
        rng = random.Random(3)
        replica = opened(tmp_path)
        chunks = [*CHUNKS, ChunkId(5, 0)]
        for request in range(1, 120):
            chunk = rng.choice(chunks)
            await update(replica, random_change(rng, chunk, request), request, chunk)
            if request % 7 == 0:
                before = told(replica)
                replica = opened(tmp_path)
                assert told(replica) == before, f"after update {request}"
        named = len(list(tmp_path.glob("*.chunk")))
        assert named <= len(chunks), "files of older versions are gone"

    asyncio.run(scene())


class Killed(Exception):  # noqa: N818 - what happened
    """The program ends here."""


@pytest.mark.parametrize("moment", ["before the table has what is pending", "before it has what is committed"])
def test_a_program_that_is_killed_in_an_update_has_done_all_of_it_or_nothing(tmp_path: Path, moment: str) -> None:
    changes = {
        "append": part(CHUNK, 2, 100, 60),
        "copy": part(CHUNK, 2, 40, 60),
        "truncate": Change(Action.TRUNCATE, 0, 30),
        "remove": Change(Action.REMOVE),
    }

    async def scene(folder: Path, change: Change) -> None:
        replica = opened(folder)
        await update(replica, part(CHUNK, 1, 0, 100), 1)
        before = told(replica)
        calls = 0

        def keep(files: ChunkFiles, *words: object) -> None:
            nonlocal calls
            calls += 1
            if calls == (1 if moment.endswith("pending") else 2):
                raise Killed
            kept(files, *words)  # type: ignore[arg-type]

        kept = ChunkFiles._keep
        with mock.patch.object(ChunkFiles, "_keep", keep), pytest.raises(Killed):
            await update(replica, change, 2)
        again = opened(folder)
        if moment.endswith("pending"):
            assert told(again) == before
        else:
            held = again.held(CHUNK)
            assert held is not None and held.pending is not None and held.version == 1
            await again.settle(CHUNK, soon())
        await update(again, change, 2)
        whole = opened(folder / "whole")
        for number, one in ((1, part(CHUNK, 1, 0, 100)), (2, change)):
            await update(whole, one, number)
        assert again.states(0) == whole.states(0)

    for name, change in changes.items():
        asyncio.run(scene(tmp_path / name, change))


def test_new_disks_have_nothing_when_they_are_opened_again(tmp_path: Path) -> None:
    replica = opened(tmp_path)
    asyncio.run(update(replica, part(CHUNK, 1, 0, 500), 1))
    assert list(tmp_path.glob("*.chunk"))
    assert replica.held(CHUNK) is not None
    replica.forget_all()
    assert replica.held(CHUNK) is None
    assert not replica.states(0)
    assert opened(tmp_path).held(CHUNK) is None
    assert not list(tmp_path.glob("*.chunk"))


def test_what_was_pending_is_pending_and_is_completed(tmp_path: Path) -> None:
    async def scene() -> None:
        two = table_of(*NODES[:2])
        answers = [Answer(ReplyStatus.OK, 1), Answer(ReplyStatus.OK, 1)]
        replica = opened(tmp_path, two)

        async def forward(*_: object) -> Answer:
            return answers.pop() if answers else Answer(ReplyStatus.BUSY)

        replica._forward = forward
        await update(replica, part(CHUNK, 1, 0, 100), 1)
        await update(replica, part(CHUNK, 2, 100, 60), 2)
        before = seen_of(replica, CHUNK)
        for request, change in ((3, part(CHUNK, 3, 40, 60)), (4, part(CHUNKS[1], 4, 0, 80))):
            chunk = CHUNK if request == 3 else CHUNKS[1]
            with pytest.raises(Refused, match="BUSY"):
                await replica.write(io_of_change(change, request, chunk), _pull(change), 0, soon(0))
        again = opened(tmp_path, two)
        with pytest.raises(Refused, match="PENDING"):
            again.read(CHUNK)
        held = again.held(CHUNK)
        assert held is not None and held.committed is not None and held.pending is not None
        committed = Replica(NODES[0], two, alone)
        committed.load({CHUNK: replace(held, pending=None)})
        assert seen_of(committed, CHUNK) == before, "the bytes of before are there, too"
        sent = []

        async def takes(successor: NodeId, io: object, stored: object, until_s: float) -> Answer:
            sent.append((io[2:4], b"".join(stored.offered(io).pieces(0, 60))))  # type: ignore[index, attr-defined]
            return Answer(ReplyStatus.OK, 1)

        again._forward = takes
        await again.settle(CHUNK, soon())
        right = b"".join(Recipe(CHUNK, 3, 60, 40).pieces(0, 60))
        assert sent == [((40, 60), right)], "the part, as it came"
        assert seen_of(again, CHUNK)[0] == 3

    asyncio.run(scene())


def _pull(change: Change) -> Pull:
    async def pull() -> ChunkContent:
        return change.payload

    return pull


def test_a_replica_that_was_away_is_sent_what_changed_and_then_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        head, back = opened(tmp_path / "head"), opened(tmp_path / "back")
        back.node = NODES[1]
        for request, chunk in enumerate(CHUNKS, 1):
            for replica in (head, back):
                replica.table = table_of(replica.node)
                await update(replica, part(chunk, request, 0, 500), request, chunk)
        head.table = ChainTable(2, (Chain(0, head.table.chains[0].targets, 2),))
        io = io_of_change(part(CHUNK, 9, 10, 50), 9, CHUNK, of=2)
        await head.write(io, _pull(part(CHUNK, 9, 10, 50)), 0, soon())
        targets = table_of(*NODES[:2]).chains[0].targets

        def syncing(version: int) -> Chain:
            chain = Chain(0, targets[:1], version, targets[1])
            for replica in (head, back):
                replica.adopt(TableChange(version, (chain,)))
            return chain

        assert (await Resync().bring_up_to_date(head, syncing(3), _BytesPeer(back, head))).size_bytes == 500
        back = opened(tmp_path / "back", ChainTable(3, (syncing(3),)))
        back.node = NODES[1]
        plan = await Resync().bring_up_to_date(head, syncing(4), _BytesPeer(back, head))
        assert (plan.size_bytes, plan.removes) == (0, ())

    asyncio.run(scene())


class _BytesPeer(Peer):
    """The same, that is sent the bytes that its predecessor has."""

    def __init__(self, replica: Replica, source: Replica) -> None:
        super().__init__(replica)
        self._source = source

    async def write(self, chain: Chain, chunk: ChunkId, held: object) -> None:
        stored = self._source.read(chunk)
        io = io_of_change(Change(Action.WRITE, 0, stored.content.size_bytes, stored.checksum), stored.request, chunk)
        io = io._replace(version=stored.version, chain_version=stored.chain_version)

        async def pull() -> object:
            return stored.content

        await self.replica.replace_chunk(io, {}, pull, soon())  # type: ignore[arg-type]


def test_files_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        TrafficError, match=r"service\.chunk_files: .*/file/st000: .*; name a folder that can be written"
    ):
        ChunkFiles(tmp_path / "file" / "st000")
    short = tmp_path / "short.chunk"
    short.write_bytes(b"abc")
    with pytest.raises(TrafficError, match=r"3 B at 0, of 5: it was changed by another"):
        InFile(short, 5).pieces(0, 5)


MANAGER = {
    "heartbeat": 0.1, "failed_after": 2.0, "checked_every": 0.1, "chains_every": 0.05, "polled_every": 0.1,
    "restart": 0.1, "resync": {"every": 0.05, "pause": 0.2},
}  # fmt: skip


KEYS = {
    "dataloader": {"files": 1, "file_size": "1 MiB", "sample_max": "64 KiB"},
    "chunk_size": 1 << 16,
    "replicas": 2,
    "connections": "when_needed",
    "client": {"operation_timeout": 20, "call_timeout": 1},
}


def resent(job_of: JobOf, service: dict[str, str]) -> list[int]:
    """Kill a service twice, as programs in real time, and write a chunk of 600 B the first time; return the bytes that
    it was sent by each return."""
    job = job_of(cluster_manager=MANAGER, service=service, **KEYS)
    job.play("all")
    layout = job.striping.layout(1 << 20, 3 << 16)
    victim = job.table.chains[layout.chains[0]].nodes[1]
    numbers = itertools.count(900)  # A client of the same number would be taken for the first, trying again.

    async def write(data: bytes) -> None:
        async with client_of(job, next(numbers)) as client:
            await ChunkIo(client).write(layout.place(0), 0, data)

    found = [0]
    services, *_ = job.failing_programs
    run_in_time(write(b"first" * 100))
    for does_write in (True, False):
        job.kill_service(victim, 60)
        if does_write:
            run_in_time(write(b"second" * 100))
        services.restart_on(victim.name)
        assert job.cluster is not None and job.cluster.wait_whole(2, 60), "all serve again"
        job.halt()
        found.append(job.counts.get("resync_bytes", 0))
        job.play("again")
    job.halt()
    job.close()
    return [after - before for before, after in itertools.pairwise(found)]


def test_a_service_that_was_killed_finds_its_chunks(job_of: JobOf, tmp_path: Path) -> None:
    files = {"chunk_files": str(tmp_path)}
    assert resent(job_of, files) == [600, 0], "the second return is sent nothing"
    with pytest.raises(TrafficError, match=r"has .* chunks of another job; remove them, or name another folder"):
        job_of(service=files, **KEYS)


def test_a_service_that_is_started_again_finds_its_disks_as_they_are(job_of: JobOf) -> None:
    job = job_of(cluster_manager=MANAGER, **KEYS)
    job.play("all")
    extent = job.dataset[0].extent(0)
    chain = next(chain for chain in job.table.chains if chain.number == extent.chain)
    victim = chain.nodes[0]
    services, *_ = job.failing_programs
    target = chain.target_on(victim)
    assert target is not None
    number, numbers = target.disk, itertools.count(900)

    async def took_s() -> float:
        async with client_of(job, next(numbers)) as client:
            await client.read_chunks([extent], victim)  # It may have to wait until it serves again.
            began = time.monotonic()
            await client.read_chunks([extent], victim)
            return time.monotonic() - began

    job.set_disk(victim.name, number, DiskState(added_s=0.3))
    before = run_in_time(took_s())
    job.kill_service(victim, 60)
    with pytest.raises(NotThereError, match=f"its service on {victim} was killed"):
        job.set_disk(victim.name, number, DiskState(added_s=0.4))
    services.restart_on(victim.name)
    assert job.cluster is not None and job.cluster.wait_whole(2, 60), "all serve again"
    after = run_in_time(took_s())
    job.close()
    print(f"a read took {before:.3f} s, and {after:.3f} s after the restart")
    assert before >= 0.3
    assert after >= 0.4


def test_a_service_is_started_again_while_another_is_gone(job_of: JobOf, tmp_path: Path) -> None:
    """Its peer is linked to once it is back."""
    files = {"chunk_files": str(tmp_path)}
    job = job_of(cluster_manager=MANAGER, service=files, **{**KEYS, "connections": "at_start"})
    job.play("all")
    one, other = job._servers[:2]
    services, *_ = job.failing_programs
    for node in (one, other):
        job.kill_service(node)
    services.restart_on(one.name)
    services.restart_on(other.name)
    assert job.cluster is not None and job.cluster.wait_whole(2, 60), "all serve again"
    job.halt()
    assert job.verify_acknowledged(30).lost == ()
    job.close()


@pytest.mark.soak
def test_one_without_files_is_filled_whole_each_time(job_of: JobOf) -> None:
    first, second = resent(job_of, {})
    print(f"{first} B, then {second} B")
    assert first == second > 1 << 18


def test_heartbeats_of_a_program_that_was_started_again_are_later_than_those_before() -> None:
    table = table_of(*NODES)
    manager = ClusterManager(table, 60, 10, 0.0)
    before, after = (Membership(NODES[0], table, now_s, 0.0, None) for now_s in (5.0, 7.0))
    for _ in range(1000):
        assert manager.heartbeat(NODES[0], *before.next_heartbeat(table), 6.0)
    after.start_again(7.0)
    number, reports = after.next_heartbeat(table)
    assert manager.heartbeat(NODES[0], number, reports, 7.1)
    assert {one.local for one in reports} == {LocalState.OFFLINE}
    assert not after.may_answer(7.0)


def test_without_a_cluster_manager_nobody_lets_a_service_back(job_of: JobOf) -> None:
    job = job_of(dataloader={"files": 1, "file_size": "1 MiB"})
    with pytest.raises(ConfigError, match="nobody would let it back; set cluster_manager"):
        job.restart_service(job.stage.fabric.storages[0])
