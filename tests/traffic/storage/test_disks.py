"""The time that disks take, alone and in services, in time that jumps."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from fabric.failures.kinds.disk import DiskState
from traffic.storage.chains import ChunkId, ChunkPlace
from traffic.storage.client.chunk_io import ChunkIo
from traffic.storage.config import ServiceConfig
from traffic.storage.service.disks import Disk, DiskWork

from .test_true_timers import config_of
from .true_timers import Cluster, run


def disk(**keys: Any) -> Disk:
    return Disk(ServiceConfig.model_validate(keys))


async def took(*works: Any) -> float:
    began_s = time.monotonic()
    await asyncio.gather(*works)
    return round(time.monotonic() - began_s, 6)


def test_reads_and_writes_of_a_disk_queue_for_its_rate_and_latencies_pass_side_by_side() -> None:
    async def scene() -> None:
        one = disk(ssd_read_rate=8000, ssd_write_rate=4000, ssd_latency=0.01, ssd_write_latency=0.02)
        assert await took(one.read(100)) == 0.11
        assert await took(one.write(100)) == 0.22
        assert await took(one.read(100), one.write(100), one.read(100)) == 0.41
        assert replace(one.work, busy_s=round(one.work.busy_s, 6)) == DiskWork(3, 300, 2, 200, 0, 0.7)
        one.state = DiskState(factor=3, added_s=1)
        assert await took(one.write(100)) == pytest.approx(3 * 0.22 + 1)

    run(scene())


def test_disks_that_are_no_limit_take_no_time() -> None:
    async def scene() -> None:
        slow = disk(ssd_read_rate=8000)
        slow.state = DiskState(factor=3, added_s=1)
        assert await took(slow.write(10**9)) == 0, "writes are no limit"
        assert await took(disk().read(10**9), disk().write(10**9)) == 0

    run(scene())


async def update_takes(replicas: int, offset: int, size: int) -> float:
    """How long an update takes of a chunk of 4000 B, of whose disks each reads and writes 4000 B in 0.1 and 0.2 s."""
    disks = {"ssd_read_rate": 320_000, "ssd_write_rate": 160_000, "ssd_write_latency": 0.001}
    cluster = Cluster(config_of(replicas=replicas, chains_per_target=6, service=disks))
    await cluster.start()
    chunks, place = ChunkIo(cluster.clients["c0"]), ChunkPlace(ChunkId(7, 0), 0)
    await chunks.write(place, 0, bytes(4000))
    return await took(chunks.write(place, offset, bytes(size)))


def test_a_write_waits_for_the_disk_of_one_replica_after_the_other() -> None:
    for replicas in (1, 2, 3):
        assert run(update_takes(replicas, 4000, 400)) == pytest.approx(replicas * 0.021)
        assert run(update_takes(replicas, 0, 4000)) == pytest.approx(replicas * 0.201)
        assert run(update_takes(replicas, 100, 40)) == pytest.approx(replicas * (0.1 + 0.201)), "copied on write"


def test_a_chunk_that_is_being_written_cannot_be_read_except_relaxed() -> None:
    async def scene() -> tuple[float, float, int]:
        cluster = Cluster(config_of(service={"ssd_write_latency": 3}))
        await cluster.start()
        chunks, place = ChunkIo(cluster.clients["c0"]), ChunkPlace(ChunkId(7, 0), 0)
        await chunks.write(place, 0, b"old")
        head = cluster.table.chains[0].head.node
        writing = asyncio.get_running_loop().create_task(chunks.write(place, 0, b"new"))
        await asyncio.sleep(1)
        began_s = time.monotonic()
        (early,) = await chunks.read_all([(place, 0, 3)], relaxed=True, server=head)
        relaxed_s = time.monotonic() - began_s
        (late,) = await chunks.read_all([(place, 0, 3)], server=head)
        strict_s = time.monotonic() - began_s
        assert (early.data, late.data) == (b"new", b"new")
        await writing
        return relaxed_s, strict_s, cluster.count("refused_pending")

    relaxed_s, strict_s, refused = run(scene())
    assert relaxed_s == 0
    assert 8 <= strict_s < 11 and refused >= 1, "told of a pending version, it tries again 5 s later"
