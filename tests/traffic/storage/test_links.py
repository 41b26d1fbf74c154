"""Links that are made when they are needed: none before, one for each service that is called, and no service that has
gone before anyone called it holds up those who can do without it."""

from __future__ import annotations

import asyncio
import time

from traffic.storage.chains import Extent
from traffic.storage.verification import Verification
from traffic.storage.workloads import FIRST_CHECKPOINT_FILE

from .conftest import JobOf, client_of, run

WHEN_NEEDED = {"connections": "when_needed", "dataloader": {"files": 1, "file_size": "8 MiB"}}


def test_a_link_is_made_for_the_first_call_and_no_other(job_of: JobOf) -> None:
    job = job_of(**WHEN_NEEDED)
    extent = job.dataset[0].extent(0)

    async def scene() -> None:
        async with client_of(job) as client:
            assert len(client.links) == 0
            node, other = job.table.chains[extent.chain].nodes
            await asyncio.gather(*(client.read_chunks([extent], node) for _ in range(5)))
            assert list(client.links) == [node]
            await client.read_chunks([extent], other)
            assert list(client.links) == [node, other]
            assert client.retries == 0
            assert client.party.counts["links_made_again"] == 0

    run(scene())


def test_copies_are_made_over_links_that_the_first_write_makes(job_of: JobOf) -> None:
    job = job_of(replicas=3, **WHEN_NEEDED)
    extents = list(job.striping.layout(FIRST_CHECKPOINT_FILE + 5000, 6 * (256 << 10)).extents())

    async def scene() -> None:
        async with client_of(job) as client:
            await asyncio.gather(*map(client.write_chunk, extents))
            assert client.retries == 0
            assert await client.read_back() == Verification(18)

    run(scene())


def test_without_a_link_every_replica_is_chosen_from(job_of: JobOf) -> None:
    job = job_of(**WHEN_NEEDED)
    extents = list(job.dataset[0].extents())

    async def scene() -> None:
        async with client_of(job) as client:
            await client.read_chunks(extents[:1], job.table.chains[extents[0].chain].nodes[0])
            servers = {found.server for found in await client.read_chunks(extents)}
            assert servers == set(job.stage.fabric.storages)

    run(scene())


def test_a_service_that_has_gone_before_it_was_called_is_done_without(job_of: JobOf) -> None:
    job = job_of(failure_detection=20.0, **WHEN_NEEDED)  # The chains do not change meanwhile.
    extent: Extent = job.dataset[0].extent(0)
    job.kill_service(job.table.chains[extent.chain].nodes[0])

    async def scene() -> None:
        async with client_of(job) as client:
            started = time.monotonic()
            for _ in range(20):
                await client.read_chunks([extent])
            assert time.monotonic() - started < 15
            assert job.table.version == 1

    run(scene())
