"""A file system as a job: storage services, a store of keys and values, metadata servers, and clients with a load.

The run orders the steps of the load one after the other (:mod:`.loads`); these orders travel over pipes. Programs of
users on the run's hosts can mount the file system (:mod:`.usrbio`) while the job is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.programs.agents import Program
from traffic.job import Halt, Play, Records, Stage
from traffic.program_group import ProgramGroup
from traffic.storage.chains import FileLayout
from traffic.storage.job import START_TIMEOUT_S, AddressOf, StorageJob
from traffic.storage.kv.program import KvArguments, KvListening, run_kv
from traffic.storage.metadata.clients import EndStep, FilesClientArguments, RunStep, StepDone, run_files_client
from traffic.storage.metadata.job_config import FileSystemConfig
from traffic.storage.metadata.load_config import FioConfig
from traffic.storage.metadata.loads import StepResult, fio_steps, mdtest_steps, together
from traffic.storage.metadata.mounting import MountPoint
from traffic.storage.metadata.program import MetadataArguments, MetadataListening, run_metadata_server
from traffic.storage.orders import ManagerEnd
from traffic.transport.connection import Endpoint

PRELOAD = (
    "traffic.storage.service.program",
    "traffic.storage.managers.program",
    "traffic.storage.kv.program",
    "traffic.storage.metadata.program",
    "traffic.storage.metadata.clients",
)
FIRST_SERVER_NUMBER = 1 << 19
"""Metadata servers are clients of the storage, too; those of jobs have the numbers below, those of users' programs the
ones above."""
_LOOK_S = 0.2
"""How often a job that waits for its load looks for servers that have ended by themselves."""
_STEP_TIMEOUT_S = 3600.0
_HALT_TIMEOUT_S = 120.0


@dataclass
class Conducted:
    """The load of a phase: its thread, the rows of what was carried out, and what made it fail."""

    phase: str
    thread: threading.Thread | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    failure: Exception | None = None
    is_halting: bool = False


class FilesJob(StorageJob):
    """A :class:`traffic.job.FiniteJob`, if its load has an end."""

    load_table = "file_steps"
    """The table that has the rows of its load."""

    def __init__(
        self,
        stage: Stage,
        config: FileSystemConfig,
        clients: Sequence[NodeId],
        address_of: AddressOf | None = None,
        *,
        level: ServiceLevel,
        name: str,
    ) -> None:
        self.files = config
        self.place: MountPoint | None = None
        """How it is mounted; known once started."""
        self._metadata: ProgramGroup[tuple[str, NodeId]] = ProgramGroup(stage, name)
        self._conducted = Conducted("")
        super().__init__(stage, config.storage(), clients, address_of, level, name)

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        metadata = self.files.metadata
        for key, host in [("store.host", metadata.store.host), *(("hosts", host) for host in metadata.hosts)]:
            if host is not None and self._named(host) is None:
                example = self._servers[0] if self._servers else "st000"
                yield f"metadata.{key}: {host} is not a host of {self.stage.fabric.name}; name one, such as {example}"

    @cached_property
    def dataset(self) -> tuple[FileLayout, ...]:
        """No files are there before."""
        return ()

    @property
    def metadata_nodes(self) -> tuple[NodeId, ...]:
        """Where its metadata servers are."""
        named = [self._named(host) for host in self.files.metadata.hosts]
        return tuple(node for node in named if node is not None) or tuple(self._servers[:2])

    # The life of a job.

    def start(self) -> None:
        """Fork all programs, servers first, and link them up. Raises TrafficError."""
        managers = self._start_services()
        self.place = self._start_metadata(managers)
        if inside.is_inside():
            self.place.publish()
        starts = {
            client: ("files client", client, self.files_client(client, number))
            for number, client in enumerate(self.clients)
        }
        self._clients.start_all(self.client_program, starts, self.config.clients_per_process)
        self._clients.collect("report that it is linked to the services", START_TIMEOUT_S)
        if not managers:
            self._watch()

    @property
    def client_program(self) -> Program:
        """What runs in a client's host."""
        return run_files_client

    def files_client(self, client: NodeId, number: int) -> FilesClientArguments:
        """Return what the program of a client is told."""
        assert self.place is not None, "servers are started before clients"
        return FilesClientArguments(client.name, number, len(self.clients), self.place, self.files.load)

    def _start_metadata(self, managers: dict[int, ManagerEnd]) -> MountPoint:
        """Start the store and the metadata servers; return how clients come to them."""
        control = self.stage.transport(ServiceLevel.CONTROL, self.files.metadata.call_timeout)
        store = self._start_store(control)
        services = {zone: self._services_in(zone) for zone in self.zones}
        listening: dict[NodeId, MetadataListening] = {}
        for number, node in enumerate(self.metadata_nodes):
            addresses = self._addresses_of(node)
            zone = next(iter(addresses))
            arguments = MetadataArguments(
                node=node,
                number=FIRST_SERVER_NUMBER + number,
                addresses=addresses,
                store=(store[0], store[1].get(zone) or next(iter(store[1].values()))),
                services=services.get(zone) or services[self.zones[0]],
                storage=self.config,
                metadata=self.files.metadata,
                table=self._first_table,
                data=self._transport,
                control=control,
                seed=self.stage.seed,
                manager=managers.get(zone),
            )
            # One after the other: each finds in the store who is there.
            key = ("metadata", node)
            self._metadata.start(key, "metadata server", node, run_metadata_server, arguments)
            listening[node] = self._metadata.collect("addresses that it listens on", START_TIMEOUT_S, [key])[key]
        servers = {zone: {node: _heard(one.addresses, zone) for node, one in listening.items()} for zone in self.zones}
        return MountPoint(
            job=self.name,
            sources={node.name: (self._zone_of(node), self.source_of(node)) for node in self.stage.fabric.computes},
            servers=servers,
            services=services,
            storage=self.config,
            metadata=self.files.metadata,
            table=self._first_table,
            data=self._transport,
            control=control,
            managers=managers,
            seed=self.stage.seed,
            writes_at_once=self.files.writes_at_once,
        )

    def _start_store(self, control: Any) -> tuple[NodeId, dict[int, Endpoint]]:
        named = self.files.metadata.store.host
        node = self._named(named) if named is not None else self._servers[-1]
        assert node is not None, "_faults() verified it"
        key = ("store", node)
        self._metadata.start(key, "metadata store", node, run_kv, KvArguments(node, self._addresses_of(node), control))
        found: KvListening = self._metadata.collect("addresses that it listens on", START_TIMEOUT_S, [key])[key]
        return node, dict(found.addresses)

    def _addresses_of(self, node: NodeId) -> dict[int, str]:
        """Return a host's addresses in the zones of clients; its first one, if it has none there."""
        zones = [zone for zone in self.zones if self.stage.fabric.nic_in_zone(node, zone) is not None]
        return {zone: self._address_in_control(node, zone) for zone in zones or [self._zone_of(node)]}

    def _services_in(self, zone: int) -> dict[NodeId, Endpoint]:
        return {node: address for (where, node), address in self.addresses.items() if where == zone}

    def play(self, phase: str) -> None:
        """Begin the load. Raises TrafficError if a program has gone."""
        with self._metadata.asking:
            servers = self._living_servers()
            self._metadata.order(Play(phase), servers)
            self._metadata.await_ready("report that it plays", START_TIMEOUT_S, servers)
        super().play(phase)
        self._conducted = Conducted(phase)
        if self.has_load:
            self._conducted.thread = threading.Thread(target=self._conduct, args=(self._conducted,), daemon=True)
            self._conducted.thread.start()

    @property
    def has_load(self) -> bool:
        """Whether its clients have something to do in a phase."""
        return self.files.load is not None

    def _living_servers(self) -> list[tuple[str, NodeId]]:
        return [key for key in self._metadata.living if key[0] == "metadata"]

    def _conduct(self, conducted: Conducted) -> None:
        """Order the load, in a thread of its own."""
        try:
            self.conduct(conducted)
        except Exception as error:  # Raised where somebody waits.
            conducted.failure = error

    def conduct(self, conducted: Conducted) -> None:
        """Order the steps of the load, one after the other. Raises TrafficError if one fails."""
        load = self.files.load
        assert load is not None
        iterations = 1 if isinstance(load, FioConfig) else load.iterations
        steps = fio_steps(load) if isinstance(load, FioConfig) else mdtest_steps(load)
        for iteration in range(iterations):
            for name in steps:
                if conducted.is_halting:
                    return
                self._carry_out(conducted, name, iteration)

    def _carry_out(self, conducted: Conducted, name: str, iteration: int) -> None:
        with self._clients.asking:
            self._clients.order(RunStep(name, iteration))
            found = self._clients.collect(f"end of step {name}", _STEP_TIMEOUT_S)
        results = [one.result for one in found.values() if isinstance(one, StepDone)]
        if results:
            conducted.rows.append(self._step_row(conducted.phase, name, iteration, together(results)))

    def _step_row(self, phase: str, name: str, iteration: int, result: StepResult) -> dict[str, Any]:
        return {
            "phase": phase,
            "service_level": self.level.label,
            "step": name,
            "iteration": iteration,
            "items": result.items,
            "size_bytes": result.size_bytes,
            "started_s": result.started_s,
            "ended_s": result.ended_s,
        }

    def finish(self) -> None:
        """Return once the load has ended, if it has an end. Raises TrafficError as it does."""
        thread = self._conducted.thread
        until_s = time.monotonic() + _STEP_TIMEOUT_S
        while thread is not None and thread.is_alive():
            thread.join(_LOOK_S)
            self._raise_servers_end()
            if time.monotonic() > until_s:
                raise TrafficError(f"{self.name}: its load has not ended within {_STEP_TIMEOUT_S:g} s")
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what has made the load fail: if a server has ended by itself, that is the cause."""
        if self._conducted.failure is not None:
            self._raise_servers_end()
            raise self._conducted.failure

    def _raise_servers_end(self) -> None:
        """Raise why a server or the store has ended by itself, if one has: clients may try for long without it."""
        self._metadata.verify("the end of the load")

    def halt(self) -> Records:
        """End the load, let what is under way end, and return its rows. Raises TrafficError as :meth:`finish`, and as
        :meth:`traffic.storage.job.StorageJob.halt`."""
        conducted = self._conducted
        conducted.is_halting = True
        if conducted.thread is not None and conducted.thread.is_alive():
            self._clients.order(EndStep())
            conducted.thread.join(_HALT_TIMEOUT_S + self.config.client.operation_timeout)
            if conducted.thread.is_alive():
                raise TrafficError(f"{self.name}: a step of its load does not end within {_HALT_TIMEOUT_S:g} s")
        self._raise_failure()
        records = super().halt()
        records.add(self.load_table, conducted.rows)
        with self._metadata.asking:
            servers = self._living_servers()
            self._metadata.order(Halt(), servers)
            for report in self._metadata.collect("report of the phase", START_TIMEOUT_S, servers).values():
                self._add(report)
        return records

    def close(self) -> None:
        """End the programs."""
        if self.place is not None and inside.is_inside():
            self.place.withdraw()
        super().close()
        self._metadata.close()

    @property
    def failing_programs(self) -> Sequence[Any]:
        """Those of storage, metadata servers and their store."""
        return (*super().failing_programs, self._metadata)


def _heard(addresses: Any, zone: int) -> Endpoint:
    found: Endpoint = addresses.get(zone) or next(iter(addresses.values()))
    return found
