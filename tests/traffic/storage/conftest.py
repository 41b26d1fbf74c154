from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from fabric.config import checked
from fabric.model.identity import NodeId
from fabric.world.programs.agents import AgentPool
from tests.traffic.storage.true_timers import listeners
from topologies.load import load_fabric
from traffic.job import Stage
from traffic.storage.client.library import StorageClient
from traffic.storage.config import StorageConfig
from traffic.storage.job import PRELOAD, StorageJob
from traffic.storage.wire.calls import Tasks

__all__ = ["listeners"]
T = TypeVar("T")
FABRIC = load_fabric("fire_flyer_2_small")
TEST_TIMEOUT_S = 120.0

JobOf = Callable[..., StorageJob]


def loopback(node: NodeId, zone: int) -> str:
    return f"127.{zone + 1}.{node.role.value}.{node.index + 1}"


def config_of(settings: Mapping[str, Any]) -> StorageConfig:
    quick = {"failure_detection": 0.05, **settings}
    return checked(StorageConfig, quick, "test")


@pytest.fixture(scope="session")
def pool() -> Iterator[AgentPool]:
    found = AgentPool(PRELOAD)
    yield found
    found.stop()


@pytest.fixture
def job_of(pool: AgentPool) -> Iterator[JobOf]:
    """Starts jobs of services and clients on loopback addresses: ``job_of(clients=2, chunk_size=65536, ...)``."""
    started: list[StorageJob] = []

    def start(clients: int = 1, **settings: Any) -> StorageJob:
        stage = Stage(FABRIC, pool, lambda _: None, seed=7)
        job = StorageJob(stage, config_of(settings), FABRIC.computes[:clients], loopback)
        started.append(job)
        job.start()
        return job

    yield start
    for job in started:
        job.close()


@contextlib.asynccontextmanager
async def client_of(
    job: StorageJob,
    number: int = 900,
    config: StorageConfig | None = None,
    source: str = "127.0.0.1",
    holding: Collection[NodeId] = (),
) -> AsyncIterator[StorageClient]:
    """A client in the test's own process, which goes by the job's newest table."""
    tasks = Tasks()
    config = config or job.config
    transport = job.stage.transport(job.level, config.client.call_timeout)
    client = StorageClient(f"test{number}", number, job.table, config, tasks, transport)
    services = {node: address for (zone, node), address in job.addresses.items() if zone == 0}
    await client.connect(services, source, holding)

    async def follow_tables() -> None:
        while True:
            client.adopt(job.table.change_from(client.table))
            await asyncio.sleep(0.01)

    follower = asyncio.get_running_loop().create_task(follow_tables())
    try:
        yield client
        if tasks.failed.done():
            tasks.failed.result()
    finally:
        follower.cancel()
        for link in client.links.values():
            link.close()


def run(work: Awaitable[T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work, TEST_TIMEOUT_S)

    return asyncio.run(limited())
