"""Links that are made when they are needed: none before, one for each service that is called, and no service that has
gone before anyone called it holds up those who can do without it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

from traffic.storage.chains import Extent
from traffic.storage.client.verification import Verification
from traffic.storage.client.workloads import FIRST_CHECKPOINT_FILE, files_of, holding

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


def test_links_are_made_at_the_start_to_those_that_hold_a_clients_data(job_of: JobOf) -> None:
    """Its file and its checkpoints are on one chain each, of two services."""
    data = {"files": 4, "files_per_client": 1, "file_size": "1 MiB"}
    job = job_of(clients=3, connections="to_its_data", stripe=1, dataloader=data, checkpoint={"share": 1.0})
    arguments = job._start_of(job.clients[2], 2)[2]
    files = [job.dataset[2], *(job.striping.layout(FIRST_CHECKPOINT_FILE + 4 + kept, 1 << 20) for kept in range(2))]
    nodes = {node for layout in files for node in job.table.chains[layout.chains[0]].nodes}
    only_reader = replace(arguments, part=replace(arguments.part, writes=False))
    assert holding(arguments) == nodes
    assert holding(only_reader) == set(job.table.chains[files[0].chains[0]].nodes)

    async def scene() -> None:
        held = holding(only_reader)
        async with client_of(job, holding=held) as client:
            assert set(client.links) == held
            other = next(node for node in job.stage.fabric.storages if node not in held)
            extent = next(one for one in job.dataset if other in job.table.chains[one.chains[0]].nodes).extent(0)
            await client.read_chunks([extent], other)
            assert set(client.links) == {*held, other}

    run(scene())


def test_clients_read_files_in_turn_so_that_all_are_read_equally_often(job_of: JobOf) -> None:
    config = job_of(**WHEN_NEEDED).config.dataloader.model_copy(update={"files": 6, "files_per_client": 2})
    files = tuple(job_of(**WHEN_NEEDED).striping.layout(number, 1 << 20) for number in range(6))
    read = Counter(layout.file for client in range(9) for layout in files_of(config, files, client))
    assert read == dict.fromkeys(range(6), 3)
    assert set(files_of(config.model_copy(update={"files_per_client": None}), files, 5)) == set(files)


def test_clients_do_not_all_connect_to_one_service_first(job_of: JobOf) -> None:
    job = job_of(clients=4, **WHEN_NEEDED)
    first = [next(iter(job._start_of(client, number)[2].services)) for number, client in enumerate(job.clients)]
    assert len(set(first)) == len(job.stage.fabric.storages)
