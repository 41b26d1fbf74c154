"""The clients of a load of files: a program in each host, with the processes of the load in it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.storage.client.library import StorageClient
from traffic.storage.client.verification import Verification
from traffic.storage.member import follow_routing, manager_link
from traffic.storage.metadata.client import MetadataClient
from traffic.storage.metadata.files import Files
from traffic.storage.metadata.load_config import FioConfig, MdtestConfig
from traffic.storage.metadata.loads import Done, FioProcess, MdtestProcess, StepResult, together
from traffic.storage.metadata.mounting import MountPoint
from traffic.storage.metadata.remote import RemoteServers, refuse
from traffic.storage.metadata.storage_chunks import StorageChunks
from traffic.storage.orders import Orders, Report, Verify
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Party, Tasks
from traffic.transport.sampling import FlowSampler


@dataclass(frozen=True)
class FilesClientArguments:
    """What a client of a load is told when it is forked. ``number``: its place among ``clients``."""

    host: str
    number: int
    clients: int
    place: MountPoint
    load: FioConfig | MdtestConfig | None

    @property
    def processes(self) -> int:
        """How many processes of the load there are in each client."""
        if self.load is None:
            return 0
        return self.load.numjobs if isinstance(self.load, FioConfig) else self.load.processes


@dataclass(frozen=True)
class RunStep:
    """The order to carry out a step of the load."""

    name: str
    iteration: int


@dataclass(frozen=True)
class EndStep:
    """The order to begin nothing more of it."""


@dataclass(frozen=True)
class StepDone:
    """A client's word of what its processes did in a step."""

    result: StepResult


def run_files_client(agent: Agent, arguments: FilesClientArguments) -> None:
    """Be a client until the run stops it."""
    event_loop.run(FilesClient(agent, arguments).run())


class FilesClient:
    """A client's program. Loads of other kinds are made of it: :meth:`step` is theirs."""

    def __init__(self, agent: Agent, arguments: FilesClientArguments) -> None:
        self.agent = agent
        self._arguments = arguments
        self._playing = asyncio.Event()
        self._processes: list[FioProcess | MdtestProcess] = []
        self._metadata: list[MetadataClient] = []
        self._sampler = FlowSampler()
        self.phase = ""

    async def run(self) -> None:
        """Carry out orders."""
        tasks = Tasks()
        client = self._storage_client(tasks)
        orders = Orders(self.agent, tasks, client.adopt)
        zone, source = self._arguments.place.sources[self._arguments.host]
        connected = client.connect(
            self._arguments.place.services[zone],
            source,
            on_link=lambda node, link: self._sampler.track(link.data, node.name),
        )
        await orders.unless_failed(connected)
        self._make_processes(client, tasks)
        self._follow(client, tasks)
        self.agent.report(Ready())
        await self._serve(orders, tasks, client)

    def _storage_client(self, tasks: Tasks) -> StorageClient:
        place, arguments = self._arguments.place, self._arguments
        number = arguments.number + 1
        return StorageClient(arguments.host, number, place.table, place.storage, tasks, place.data, place.seed)

    def _make_processes(self, client: StorageClient, tasks: Tasks) -> None:
        """Make the processes of the load; each is a client of the metadata servers of its own, on common links."""
        arguments, place = self._arguments, self._arguments.place
        zone, source = place.sources[arguments.host]
        caller = Party(arguments.host, refuse, place.control, tasks, counts=client.party.counts)
        ask = RemoteServers(caller, place.servers[zone], source)
        chunks, each = StorageChunks(client), arguments.processes
        for number in range(each):
            rank = arguments.number * each + number
            rng = random.Random(f"{place.seed}/metadata/{rank}")
            metadata = MetadataClient(rank + 1, ask.names, ask, place.metadata, rng)
            files = Files(metadata, chunks, place.writes_at_once)
            self.make_process(files, rank, each * arguments.clients)
            self._metadata.append(metadata)
            tasks.spawn(metadata.go_on(self._playing))
            tasks.spawn(files.sync_on(self._playing))

    def make_process(self, files: Files, rank: int, ranks: int) -> None:
        """Make a process of the load, of so many in all clients."""
        place, load = self._arguments.place, self._arguments.load
        rest = (files, rank, ranks, f"/{place.job}", place.seed)
        self._processes.append(
            FioProcess(*rest, load) if isinstance(load, FioConfig) else MdtestProcess(*rest, _mdtest(load))
        )

    def _follow(self, client: StorageClient, tasks: Tasks) -> None:
        place, config = self._arguments.place, self._arguments.place.storage.cluster_manager
        zone, source = place.sources[self._arguments.host]
        if config is None or zone not in place.managers:
            return
        turn = random.Random(f"{place.seed}/turns/{self._arguments.number}").random()
        counts = client.party.counts
        link = manager_link(client.name, place.managers[zone], source, config.polled_every, tasks, counts)
        first_s = config.polled_every * turn
        tasks.spawn(follow_routing(link, first_s, config.polled_every, client, self._playing))

    async def _serve(self, orders: Orders, tasks: Tasks, client: StorageClient) -> None:
        while True:
            order = await orders.next()
            if isinstance(order, Play):
                self._begin(order.phase, client)
                self.agent.report(Ready())
            elif isinstance(order, RunStep):
                tasks.spawn(self.step(order))
            elif isinstance(order, EndStep):
                for process in self._processes:
                    process.stopping.set()
            elif isinstance(order, Halt):
                self.agent.report(self.end(client))
            elif isinstance(order, Verify):
                self.agent.report(Verification())
            else:
                raise TrafficError(f"the client on {self._arguments.host} knows no order {order!r}")

    def _begin(self, phase: str, client: StorageClient) -> None:
        self.phase = phase
        client.operations.clear()
        for process in self._processes:
            process.done.clear()
            process.stopping.clear()
        self._sampler.start()
        self._playing.set()

    async def step(self, order: RunStep) -> None:
        """Carry out a step in all processes side by side, and say so."""
        work = (process.carry_out(order.name, order.iteration) for process in self._processes)
        self.agent.report(StepDone(together(await asyncio.gather(*work))))

    def end(self, client: StorageClient) -> Report:
        """Return what it did in a phase, which is over."""
        self._playing.clear()
        level, host = self._arguments.place.data.options.level, self._arguments.host
        done = (one for process in self._processes for one in process.done)
        operations = [operation_row(one, self.phase, level, host) for one in done]
        flows = flow_rows(self._sampler.stop(), self.phase, level, host)
        return Report(Records(operations=operations, flows=flows), self._counts(client))

    def _counts(self, client: StorageClient) -> Mapping[str, int]:
        retries = sum(one.retries for one in self._metadata)
        return {**client.party.counts, "retries": client.retries, "metadata_retries": retries}


def _mdtest(load: object) -> MdtestConfig:
    assert isinstance(load, MdtestConfig), "without a load there are no processes"
    return load


def operation_row(one: Done, phase: str, level: ServiceLevel, host: str) -> dict[str, object]:
    """Return a row of the table ``operations``."""
    return {
        "phase": phase,
        "service_level": level.label,
        "operation": one.operation,
        "host": host,
        "peer": one.server,
        "size_bytes": one.size_bytes,
        "started_s": one.started_s,
        "ended_s": one.ended_s,
        "retries": one.retries,
    }
