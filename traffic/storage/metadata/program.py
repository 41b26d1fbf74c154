"""A metadata server as a program with a NIC: requests come by :mod:`.remote`, keys and values are in another program,
and it is a client of the storage, for the last chunks of files and to remove chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records
from traffic.storage.chains import ChainTable
from traffic.storage.client.library import StorageClient
from traffic.storage.config import Connections, StorageConfig
from traffic.storage.kv.remote import RemoteStore
from traffic.storage.member import follow_routing, manager_link
from traffic.storage.metadata.config import MetadataConfig
from traffic.storage.metadata.latent_store import LatentStore
from traffic.storage.metadata.remote import answers_of, refuse
from traffic.storage.metadata.server import LayoutChoice, MetadataServer
from traffic.storage.metadata.storage_chunks import StorageChunks
from traffic.storage.orders import ManagerEnd, Orders, Report
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Party, Tasks, listen_in_zones
from traffic.storage.wire.links import Links
from traffic.transport.connection import Endpoint, Transport


@dataclass(frozen=True)
class MetadataArguments:
    """What a metadata server is told when it is forked. ``number``: its own among all clients of the storage;
    ``addresses``: its own by zone, the first of which it connects from; ``store``: where keys and values are."""

    node: NodeId
    number: int
    addresses: Mapping[int, str]
    store: tuple[NodeId, Endpoint]
    services: Mapping[NodeId, Endpoint]
    storage: StorageConfig
    metadata: MetadataConfig
    table: ChainTable
    data: Transport
    control: Transport
    seed: int
    manager: ManagerEnd | None = None


@dataclass(frozen=True)
class MetadataListening:
    """A metadata server's word of where it listens, by zone."""

    addresses: Mapping[int, Endpoint]


def run_metadata_server(agent: Agent, arguments: MetadataArguments) -> None:
    """Be a metadata server until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: MetadataArguments) -> None:
    tasks = Tasks()
    source = next(iter(arguments.addresses.values()))
    server, client = _server(arguments, tasks, source)
    orders = Orders(agent, tasks, client.adopt)
    await orders.unless_failed(client.connect(arguments.services, source))
    await orders.unless_failed(server.begin())
    party = Party(agent.host, answers_of(server), arguments.control, tasks, counts=client.party.counts)
    agent.report(MetadataListening(listen_in_zones(party, arguments.addresses)))
    tasks.spawn(server.go_on())
    manager, config = arguments.manager, arguments.storage.cluster_manager
    if manager is not None and config is not None:
        link = manager_link(client.name, manager, source, config.polled_every, tasks, client.party.counts)
        tasks.spawn(follow_routing(link, config.polled_every / 2, config.polled_every, client, server.playing))
    await _serve(agent, orders, server, client.party.counts)


def _server(arguments: MetadataArguments, tasks: Tasks, source: str) -> tuple[MetadataServer, StorageClient]:
    name, config = arguments.node.name, arguments.metadata
    storage = arguments.storage.model_copy(update={"connections": Connections.WHEN_NEEDED})
    client = StorageClient(name, arguments.number, arguments.table, storage, tasks, arguments.data, arguments.seed)
    node, endpoint = arguments.store
    links = Links(Party(name, refuse, arguments.control, tasks, counts=client.party.counts), source)
    links.expect(node, endpoint)
    store = LatentStore(RemoteStore(links, node, config.store.call_timeout), config.store)
    shape = storage.chunk_size, storage.stripe, len(arguments.table.chains)
    layouts = LayoutChoice(*shape, f"{arguments.seed}/{name}")
    return MetadataServer(name, store, StorageChunks(client), config, layouts), client


async def _serve(agent: Agent, orders: Orders, server: MetadataServer, sent: Mapping[str, int]) -> None:
    """Carry out orders; ``sent``: what its connections have counted, of all that it asks and answers."""
    while True:
        order = await orders.next()
        if isinstance(order, Play):
            server.playing.set()
            agent.report(Ready())
        elif isinstance(order, Halt):
            server.playing.clear()
            done = {f"metadata_{name}": count for name, count in server.counts.items()}
            agent.report(Report(Records(), {**sent, **done}))
        else:
            raise TrafficError(f"the metadata server on {agent.host} knows no order {order!r}")
