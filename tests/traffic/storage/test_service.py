"""Service processes on loopback addresses, and a client in the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from pathlib import Path

import pytest

from fabric.errors import TrafficError
from tests.waiting import until
from traffic.storage.chains import Chain, Extent
from traffic.storage.client.library import ChainLost, StorageClient
from traffic.storage.client.verification import Verification
from traffic.storage.client.workloads import FIRST_CHECKPOINT_FILE
from traffic.storage.job import StorageJob
from traffic.storage.wire.messages import CallKind, Io, ReplyStatus, pack_all, parse_results

from .conftest import JobOf, client_of, config_of, run

FILE = FIRST_CHECKPOINT_FILE + 5000
SMALL = {"dataloader": {"files": 2, "file_size": "8 MiB"}}


def _io(extent: Extent, length: int) -> Io:
    return Io(extent.chain, extent.chunk, 0, length, chain_version=1)


def test_what_is_written_is_read_from_every_replica_and_versions_count_up(job_of: JobOf) -> None:
    job = job_of(replicas=3, **SMALL)
    layout = job.striping.layout(FILE, 5 * (256 << 10) + 777)

    async def scene() -> None:
        async with client_of(job) as client:
            for version in (1, 2, 3):
                written = await asyncio.gather(*map(client.write_chunk, layout.extents()))
                assert [write.version for write in written] == [version] * 6
                for write in written:
                    nodes = job.table.chains[write.extent.chain].nodes
                    assert len(nodes) == 3
                    for node in nodes:
                        (found,) = await client.read_chunks([write.extent], node)
                        assert (found.server, found.version, found.request) == (node, version, write.request)
            assert await client.read_back() == Verification(18)

    run(scene())


def test_any_stretch_of_the_data_set_is_read_and_verified(job_of: JobOf) -> None:
    job = job_of(**SMALL)

    async def scene() -> None:
        async with client_of(job) as client:
            layout = job.dataset[1]
            for offset, length in ((0, 1), (1000, 300_000), (layout.size_bytes - 5, 5), (0, layout.size_bytes)):
                found = await client.read_chunks(layout.locate(offset, length))
                assert sum(chunk.extent.length for chunk in found) == length
                assert {chunk.version for chunk in found} == {1}
            servers = {chunk.server for chunk in await client.read_chunks(list(layout.extents()))}
            assert servers == set(job.stage.fabric.storages)

    run(scene())


def test_a_write_that_does_not_match_its_checksum_changes_nothing(job_of: JobOf) -> None:
    job = job_of(**SMALL)
    extent = job.striping.layout(FILE, 100_000).extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            before = await client.write_chunk(extent)
            with pytest.raises(
                TrafficError, match=f"test900: write of {extent.chunk}: st00. refused it: WRONG_CHECKSUM"
            ):
                await client.write_chunk(extent, checksum=12345)
            for node in job.table.chains[extent.chain].nodes:
                (found,) = await client.read_chunks([extent], node)
                assert (found.version, found.request) == (before.version, before.request)

    run(scene())


@pytest.mark.parametrize(
    ("length", "fault"), [(None, "checksum .*, the service reports"), (1 << 17, "not those of write")]
)
def test_a_flipped_bit_is_found_and_named(job_of: JobOf, length: int | None, fault: str) -> None:
    job = job_of(**SMALL)
    whole = job.dataset[0].extent(3)
    extent = whole if length is None else Extent(whole.chunk, whole.chain, whole.length // 2, length)
    rotten, sound = job.table.chains[whole.chain].nodes
    job.rot_chunk(rotten, whole.chunk)

    async def scene() -> None:
        async with client_of(job) as client:
            await client.read_chunks([extent], sound)
            with pytest.raises(TrafficError, match=f"test900: {whole.chunk} version 1 from {rotten}: .*{fault}"):
                await client.read_chunks([extent], rotten)

    run(scene())


def test_requests_beyond_the_limits_are_refused_and_the_client_stays_within_them(job_of: JobOf) -> None:
    job = job_of(client={"max_batch_ios": 8, "max_batch_size": "1 MiB"}, **SMALL)
    extents = list(job.dataset[0].extents())
    small = [Extent(e.chunk, e.chain, 0, 100) for e in extents]

    async def scene() -> None:
        async with client_of(job) as client:
            node = job.table.chains[extents[0].chain].head.node
            here = [e for e in extents if node in job.table.chains[e.chain].nodes]
            for ios in (
                [_io(here[0], 1)] * 9,
                [_io(here[0], 200_000)] * 6,
            ):
                reply = await client.links[node].call(CallKind.READ, pack_all(ios), 5)
                assert reply.status is ReplyStatus.WRONG_REQUEST
            await client.read_chunks(small)
            await client.read_chunks(extents)
            whole = [operation.size_bytes for operation in client.operations]
            assert max(whole) <= 1 << 20
            assert len([size for size in whole if size <= 800]) >= 4

    run(scene())


@pytest.mark.parametrize(
    "change",
    [{"length": 0}, {"offset": 64 << 20}, {"action": 7}, {"chain": 9999}, None],
    ids=["empty", "too far", "no action", "no chain", "no record"],
)
def test_a_write_that_makes_no_sense_is_refused_and_the_service_goes_on(
    job_of: JobOf, change: dict[str, int] | None
) -> None:
    job = job_of(**SMALL)
    extent = job.striping.layout(FILE, 1000).extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            link = client.links[job.table.chains[extent.chain].head.node]
            io = _io(extent, extent.length)
            wrong = b"" if change is None else io._replace(**change).pack()  # type: ignore[arg-type]
            for meta in (wrong, pack_all([io, io])):
                reply = await link.call(CallKind.WRITE, meta, 5)
                assert reply.status is ReplyStatus.WRONG_REQUEST
            await client.write_chunk(extent)

    run(scene())


def test_a_read_reports_each_stretch_that_is_not_there(job_of: JobOf) -> None:
    job = job_of(**SMALL)
    extent = job.dataset[0].extent(0)
    absent = job.striping.layout(FILE + 1, 100).extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            node = job.table.chains[extent.chain].head.node
            ios = [_io(extent, 10), _io(extent, 10)._replace(chunk=absent.chunk)]
            reply = await client.links[node].call(CallKind.READ, pack_all(ios), 5)
            assert [result.status for result in parse_results(reply.meta)] == [ReplyStatus.OK, ReplyStatus.NOT_FOUND]
            with pytest.raises(TrafficError, match="NOT_FOUND"):
                await client.read_chunks([absent])

    run(scene())


def test_a_read_beyond_a_chunks_end_is_refused(job_of: JobOf) -> None:
    """Less than what was asked for would not wake the client, which sleeps until all of it is there."""
    job = job_of(**SMALL)
    extent = job.dataset[0].extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            with pytest.raises(TrafficError, match="WRONG_REQUEST"):
                await client.read_chunks([extent._replace(offset=1)])

    run(scene())


def test_a_read_of_many_chains_misses_only_those_that_changed(job_of: JobOf) -> None:
    job = job_of(**SMALL)
    extents = list(job.dataset[0].extents())

    async def scene() -> None:
        async with client_of(job) as client:
            node = job.table.chains[extents[0].chain].head.node
            here = [e for e in extents if node in job.table.chains[e.chain].nodes]
            ios = [_io(extent, 10) for extent in here]
            ios[1] = ios[1]._replace(chain_version=0)
            reply = await client.links[node].call(CallKind.READ, pack_all(ios), 5)
            statuses = [result.status for result in parse_results(reply.meta)]
            assert statuses == [ReplyStatus.OK, ReplyStatus.STALE_CHAIN] + [ReplyStatus.OK] * (len(here) - 2)

    run(scene())


def test_a_client_with_an_old_table_tries_again_until_it_has_the_new_one(job_of: JobOf) -> None:
    job = job_of(client={"operation_timeout": 3.0}, **SMALL)
    extent = job.dataset[0].extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            newest, client.table = client.table, client.table.without_node(job.table.chains[extent.chain].nodes[-1])
            for work in (client.read_chunks([extent]), client.write_chunk(extent)):
                with pytest.raises(TrafficError, match=r"no success within 3 s; last: st00. answered UNKNOWN_CHAIN"):
                    await work
            reading = asyncio.get_running_loop().create_task(client.read_chunks([extent]))
            await asyncio.sleep(0.05)
            client.table = newest
            assert (await reading)[0].version == 1

    run(scene())


async def _peak_arrivals(client: StorageClient, job: StorageJob, limit: int | None) -> int:
    """Read the data set six times and until as many payloads as the limit have arrived at once; without one, three.

    How many services happen to send at one moment is the scheduler's choice: on a busy machine, often one.
    """
    for read in itertools.count(1):
        await client.read_chunks([extent for layout in job.dataset for extent in layout.extents()])
        peak = client.party.arrivals.peak
        if peak > 2 if limit is None else read >= 6 and peak >= limit:
            break
    return client.party.arrivals.peak


@pytest.mark.parametrize("limit", [1, 2, None])
def test_request_to_send_limits_how_many_send_to_a_client_at_once(job_of: JobOf, limit: int | None) -> None:
    job = job_of(request_to_send=limit, **SMALL)

    async def scene() -> int:
        async with client_of(job) as client:
            return await _peak_arrivals(client, job, limit)

    peak = run(scene())
    print(f"limit {limit}: {peak} payloads arrived at once")
    assert peak > 2 if limit is None else peak == limit


def test_a_service_that_gets_no_leave_counts_it_and_sends_anyway(job_of: JobOf) -> None:
    job = job_of(request_to_send=1, service={"apply_timeout": 0.1}, **SMALL)

    async def scene() -> float:
        async with client_of(job) as client:
            client.gate.leave = lambda read: asyncio.get_running_loop().create_future()  # type: ignore[method-assign]
            started = time.monotonic()
            await client.read_chunks([job.dataset[0].extent(0)])
            return time.monotonic() - started

    assert 0.1 <= run(scene()) < 20
    job.halt()
    assert job.counts["apply_timeouts"] == 1


@pytest.mark.parametrize("permits", [1, 3])
def test_a_head_pulls_from_so_many_writers_at_once(job_of: JobOf, permits: int) -> None:
    job = job_of(replicas=1, chunk_size="4 MiB", service={"max_concurrent_pulls": permits}, **SMALL)
    layouts = [job.striping.layout(FILE + number, 64 << 20) for number in range(6)]
    head, numbers = job.table.chains[0].head.node, itertools.count()
    extents = [next(e for e in layout.extents() if job.table.chains[e.chain].head.node == head) for layout in layouts]

    async def scene() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client_of(job, next(numbers))) for _ in range(6)]
            for _ in range(10):  # On a busy machine writers seldom meet.
                writes = zip(clients, extents, strict=True)
                await asyncio.gather(*(client.write_chunk(extent) for client, extent in writes))

    def peak() -> int:
        run(scene())
        job.halt()
        return job.counts["peak_pulls"]

    until(lambda: peak() >= permits, f"{permits} payloads at once")
    assert job.counts["peak_pulls"] == permits


def test_disks_take_their_time_when_they_are_emulated(job_of: JobOf) -> None:
    job = job_of(service={"ssd_read_rate": "8 Mbit/s", "ssd_latency": "20 ms"}, **SMALL)
    extent = job.dataset[0].extent(0)
    node = job.table.chains[extent.chain].head.node

    async def scene() -> float:
        async with client_of(job) as client:
            started = time.monotonic()
            await asyncio.gather(*(client.read_chunks([extent], node) for _ in range(2)))
            return time.monotonic() - started

    assert 2 * 0.262 + 0.02 <= run(scene()) < 10


def _dialled() -> set[tuple[tuple[str, int], tuple[str, int]]]:
    """Local and remote address and port of this machine's established TCP connections.

    The kernel gives the table in pieces. It repeats an entry when another connection comes before it between two of
    them, and omits one when another goes: of two equal readings neither has done so.
    """

    def parsed(text: str) -> tuple[str, int]:
        address, port = text.split(":")
        return socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)

    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {(parsed(row[1]), parsed(row[2])) for row in rows if row[3] == "01"}


def test_no_storage_connection_crosses_zones(job_of: JobOf) -> None:
    job = job_of(clients=24, checkpoint={"share": 0.5}, **SMALL)
    assert job.zones == (0, 1)
    job.play("both")
    zone_of = {address: zone for (zone, _), address in job.addresses.items()}
    # 24 clients to 4 services, and 4 services to 3 others in 2 zones, with 2 connections each.
    wanted = 2 * (24 * 4 + 2 * 4 * 3)
    looks: list[set[tuple[str, int, int]]] = [set()]

    def stay() -> set[tuple[str, int, int]] | None:
        time.sleep(0.1)
        looks.append({(*local, zone_of[remote]) for local, remote in _dialled() if remote in zone_of})
        return looks[-1] if len(looks[-1]) >= wanted and looks[-1] == looks[-2] else None

    ours = until(stay, "all connections, and the same ones twice")
    job.halt()
    assert len(ours) == wanted
    for local, _, zone in ours:
        assert local.startswith(f"127.{zone + 1}."), "test addresses bear their zone"


def _chains_headed_by(job: StorageJob, place: int) -> tuple[Chain, list[Extent]]:
    """A chain of the file ``FILE``, and the file's chunks on chains whose target at ``place`` is on the same node."""
    layout = job.striping.layout(FILE, 4 << 20)
    chain = job.table.chains[layout.chains[0]]
    node = chain.nodes[place]
    chunks = [e for e in layout.extents() if job.table.chains[e.chain].nodes[place] == node]
    return chain, chunks


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("moment_s", [0.0, 0.03])
def test_kill_in_the_middle_of_writes_loses_nothing_acknowledged(job_of: JobOf, place: int, moment_s: float) -> None:
    job = job_of(replicas=3, failure_detection=1.0, **SMALL)  # Reads are to go on meanwhile.
    chain, extents = _chains_headed_by(job, place)
    victim = chain.nodes[place]

    async def write_on(client: StorageClient, extent: Extent, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await client.write_chunk(extent)

    async def read_on(client: StorageClient, times: list[float], stopping: asyncio.Event) -> None:
        extents = list(job.dataset[0].extents())
        while not stopping.is_set():
            await client.read_chunks(extents[:8])
            times.append(time.monotonic())

    async def scene() -> None:
        stopping, times = asyncio.Event(), list[float]()
        async with client_of(job, 901) as client, client_of(job, 902) as reader:
            load = [asyncio.create_task(write_on(client, extent, stopping)) for extent in extents]
            load.append(asyncio.create_task(read_on(reader, times, stopping)))
            while not client.acknowledged:
                await asyncio.sleep(0.005)
            await asyncio.sleep(moment_s)
            before = dict(client.acknowledged)
            killed_at = time.monotonic()
            await asyncio.get_running_loop().run_in_executor(None, job.kill_service, victim, 60.0)
            published_at = time.monotonic()
            await asyncio.sleep(0.3)
            stopping.set()
            await asyncio.gather(*load)
            assert all(client.acknowledged[chunk].version > write.version for chunk, write in before.items())
            assert await client.read_back() == Verification(2 * len(extents))
            assert [at for at in times if killed_at < at < published_at - 0.05], "reads went on before the next table"

    run(scene())


def test_the_second_kill_says_which_chain_is_lost(job_of: JobOf) -> None:
    job = job_of(**SMALL)
    extent = job.dataset[0].extent(0)
    head, tail = job.table.chains[extent.chain].nodes
    other = next(e for e in job.dataset[0].extents() if set(job.table.chains[e.chain].nodes) != {head, tail})

    async def scene() -> None:
        async with client_of(job) as client:
            await client.write_chunk(extent)
            for node in (tail, head):
                await asyncio.get_running_loop().run_in_executor(None, job.kill_service, node, 60.0)
            await asyncio.sleep(0.1)
            for work in (client.read_chunks([extent]), client.write_chunk(extent)):
                started = time.monotonic()
                with pytest.raises(ChainLost, match=f"chain {extent.chain} is lost: chain table 3 .* {extent.chunk}"):
                    await work
                assert time.monotonic() - started < 10
            await client.read_chunks([other])
            found = await client.read_back()
            assert (found.checked, len(found.lost), found.out_of_reach) == (1, 1, ())
            assert "any node: version 2 was acknowledged" in found.lost[0]

    run(scene())


def test_a_client_config_may_not_widen_what_a_service_allows(job_of: JobOf) -> None:
    job = job_of(client={"max_batch_ios": 4}, **SMALL)
    wide = config_of({**SMALL, "client": {"max_batch_ios": 128}})

    async def scene() -> None:
        async with client_of(job, config=wide) as client:
            with pytest.raises(TrafficError, match="WRONG_REQUEST"):
                await client.read_chunks([Extent(e.chunk, e.chain, 0, 10) for e in job.dataset[0].extents()])

    run(scene())
