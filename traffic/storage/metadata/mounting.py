"""How programs come to a file system: what they must know of it, where a run keeps that, and the connections."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.world.engine import RUN_DIR
from traffic.storage.chains import ChainTable
from traffic.storage.client.library import StorageClient
from traffic.storage.config import Connections, StorageConfig
from traffic.storage.member import follow_routing, manager_link
from traffic.storage.metadata.client import MetadataClient
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.files import Files
from traffic.storage.metadata.remote import RemoteServers, refuse
from traffic.storage.metadata.storage_chunks import StorageChunks
from traffic.storage.orders import ManagerEnd
from traffic.storage.wire.calls import Party, Tasks
from traffic.transport.connection import Endpoint, Transport

DIRECTORY = RUN_DIR / "file_systems"
_SUFFIX = ".mount"


@dataclass(frozen=True)
class MountPoint:
    """What a client must know of the file system of a job. ``sources``: each host's zone and its address there;
    ``servers``, ``services``: where metadata servers and storage services listen, by zone."""

    job: str
    sources: Mapping[str, tuple[int, str]]
    servers: Mapping[int, Mapping[NodeId, Endpoint]]
    services: Mapping[int, Mapping[NodeId, Endpoint]]
    storage: StorageConfig
    metadata: MetadataConfig
    table: ChainTable
    data: Transport
    control: Transport
    managers: Mapping[int, ManagerEnd]
    seed: int = 0
    writes_at_once: int = 32

    def publish(self) -> None:
        """Let programs of the run find it."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        (DIRECTORY / f"{self.job}{_SUFFIX}").write_bytes(pickle.dumps(self))

    def withdraw(self) -> None:
        """Let nobody find it any more."""
        (DIRECTORY / f"{self.job}{_SUFFIX}").unlink(missing_ok=True)


def find_mount_point(job: str | None, host: str | None) -> tuple[MountPoint, str]:
    """Return what a run keeps of the file system of a job, and the host of the program. Raises UsageError."""
    found = {path.name.removesuffix(_SUFFIX): path for path in sorted(DIRECTORY.glob(f"*{_SUFFIX}"))}
    if not found:
        raise UsageError("no file system is there to mount; run the program beside a job of kind files")
    if job is None and len(found) > 1:
        raise UsageError(f"there are several file systems: {', '.join(found)}; name the job of one")
    if job is not None and job not in found:
        raise UsageError(f"job {job} has no file system; those that do: {', '.join(found)}")
    host = host or os.environ.get("FABRIC_HOST")
    if host is None:
        raise UsageError("FABRIC_HOST is not set, so this is not a program that a run has started; name the host")
    place = pickle.loads(found[job or next(iter(found))].read_bytes())
    assert isinstance(place, MountPoint)
    if host not in place.sources:
        raise UsageError(f"{host} is not a host that can mount it; these can: {', '.join(place.sources)}")
    zone, _ = place.sources[host]
    if zone not in place.servers:
        raise UsageError(f"{host} is in zone {zone}, and storage serves only those of its job's nodes; name one there")
    return place, host


@asynccontextmanager
async def mounted(place: MountPoint, host: str) -> AsyncIterator[tuple[Files, asyncio.Future[None]]]:
    """Give the files, connected from a host, to a program of the event loop, and what fails with whatever ends them;
    the links end with it.

    With a cluster manager it asks that for newer chains. Without one it keeps those that it was given. Raises
    TrafficError if servers do not answer.
    """
    zone, source = place.sources[host]
    tasks = Tasks()
    rng = random.Random(f"{place.seed}/mount/{host}/{os.getpid()}")
    ask = RemoteServers(Party(host, refuse, place.control, tasks), place.servers[zone], source)
    metadata = MetadataClient(0, ask.names, ask, place.metadata, rng)
    await metadata.join()
    config = place.storage.model_copy(update={"connections": Connections.WHEN_NEEDED})
    client = StorageClient(host, metadata.number, place.table, config, tasks, place.data, metadata.number)
    await client.connect(place.services[zone], source)
    spawned = [tasks.spawn(metadata.go_on())]
    if zone in place.managers and config.cluster_manager is not None:
        spawned += _follow(client, place.managers[zone], source, config.cluster_manager.polled_every, tasks)
    files = Files(metadata, StorageChunks(client), place.writes_at_once)
    spawned.append(tasks.spawn(files.sync_on()))
    try:
        yield files, tasks.failed
    finally:
        for one in spawned:
            one.cancel()
        ask.close()
        for connection in client.links.values():
            connection.close()


def _follow(
    client: StorageClient, manager: ManagerEnd, source: str, every_s: float, tasks: Tasks
) -> list[asyncio.Task[None]]:
    playing = asyncio.Event()
    playing.set()
    link = manager_link(client.name, manager, source, every_s, tasks)
    return [tasks.spawn(follow_routing(link, every_s, every_s, client, playing))]
