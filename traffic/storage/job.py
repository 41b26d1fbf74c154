"""The storage service of a run and its clients, as an experiment plays them.

Orders, chain tables and the data set travel out of band: services make the data set's chunks themselves (a recipe for
each, no memory), so the fabric carries nothing before :meth:`StorageJob.play`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fabric.config import MOST_TIME_S
from fabric.errors import ConfigError, TrafficError
from fabric.failures.injection import NotThereError
from fabric.failures.kinds.disk import DiskState
from fabric.model.identity import NodeId
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from fabric.world.programs.agents import Program
from traffic.job import Halt, Play, Records, Stage
from traffic.program_group import ProgramGroup, close_all
from traffic.storage.chains import ChainTable, ChunkId, FileLayout, Striping, TableChange, place_chains
from traffic.storage.client.data_loader import sample_shape
from traffic.storage.client.fio_load import fio_files
from traffic.storage.client.restoring import Restored, restored_files
from traffic.storage.client.samples import ReaderPlace, batches_in_epoch, sample_table
from traffic.storage.client.verification import Verification
from traffic.storage.client.workloads import dataset, files_of, run_client
from traffic.storage.config import StorageConfig
from traffic.storage.managers.cluster import ManagedCluster, ManagerPlace, ManagerPlaces, host_faults, hosts_of
from traffic.storage.managers.mgmtd import Mgmtd
from traffic.storage.orders import (
    LoadPart,
    ManagedClientArguments,
    ManagerEnd,
    NewChains,
    Peers,
    Report,
    ResyncAttempt,
    Rot,
    RotSome,
    Rotten,
    ServiceArguments,
    SetDisk,
    Verify,
)
from traffic.storage.placement import in_order
from traffic.storage.returns import CHAINS, RESYNCS, chain_rows, resync_rows
from traffic.storage.service.program import run_service
from traffic.transport.connection import Endpoint, Transport

PRELOAD = (
    "traffic.storage.service.program",
    "traffic.storage.client.workloads",
    "traffic.storage.managers.program",
    "traffic.storage.kv.program",
)
"""For :class:`fabric.world.programs.agents.AgentPool`: what its programs import."""
PEAKS = ("peak_senders", "peak_pulls")
"""Of the counts, those of which the most of any program counts."""
START_TIMEOUT_S = 60.0
_WHILE_STOPPED_S = MOST_TIME_S
"""How long a service may take to do something to its disks: one that is stopped does it once it goes on."""
AddressOf = Callable[[NodeId, int], str]


def chosen(clients: Sequence[NodeId], share: float) -> frozenset[NodeId]:
    """Return ``share`` of the clients, rounded down, evenly spaced over the sequence."""
    rounding = 1e-9  # 0.1 + 0.2 is not 0.3 in floating point.
    up_to = [int(place * share + rounding) for place in range(len(clients) + 1)]
    return frozenset(client for place, client in enumerate(clients) if up_to[place + 1] > up_to[place])


def _places(clients: Sequence[NodeId], share: float) -> dict[NodeId, ReaderPlace]:
    """Return the places of a share of the clients among themselves."""
    found = chosen(clients, share)
    return {
        client: ReaderPlace(number, len(found))
        for number, client in enumerate(client for client in clients if client in found)
    }


@dataclass
class _Started:
    """What is known once a job has started: where each service listens in each zone, where the cluster manager is
    heard, if there is one, the phase that plays, when the last one began, and how each node's disks are, by number."""

    addresses: dict[tuple[int, NodeId], Endpoint] = field(default_factory=dict)
    manager: dict[int, ManagerEnd] = field(default_factory=dict)
    phase: str | None = None
    played_s: float = 0.0
    disks: dict[str, dict[int, DiskState]] = field(default_factory=dict)


@dataclass
class StorageJob:
    """A :class:`traffic.job.Job`: a service on every storage node of the fabric, or on ``servers``, and ``clients``.

    ``address_of(node, zone)`` overrides the fabric's addresses, for tests on one machine.
    """

    stage: Stage
    config: StorageConfig
    clients: Sequence[NodeId]
    address_of: AddressOf | None = None
    level: ServiceLevel = ServiceLevel.STORAGE
    name: str = ServiceLevel.STORAGE.label
    servers: Sequence[NodeId] = ()

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ConfigError("storage", faults)
        self._started = _Started()
        self._services: ProgramGroup[NodeId] = ProgramGroup(self.stage, self.name)
        self._services.again = lambda host: self.restart_service(self._server_named(host))
        self._clients: ProgramGroup[NodeId] = ProgramGroup(self.stage, self.name)
        self._mgmtd: Mgmtd | ManagedCluster | None = None
        self._counts: Counter[str] = Counter()

    def _faults(self) -> Iterator[str]:
        fabric = self.stage.fabric
        if not fabric.storages:
            yield f"fabric {fabric.name} has no storage nodes; give it some"
            return
        if not self.clients:
            yield "no clients; name at least one compute node"
        for zone in self.zones:
            for node in self._servers:
                if fabric.nic_in_zone(node, zone) is None:
                    yield f"{node} has no NIC in zone {zone}, where there are clients; storage must not cross zones"
        try:
            chains = len(self._first_table.chains)
        except ConfigError as error:
            yield from error.faults
            return
        yield from self._manager_faults()
        if self.config.stripe > chains:
            yield f"stripe {self.config.stripe} exceeds the {chains} chains; lower it, or raise chains_per_target"
        yield from self._epoch_faults()

    def _epoch_faults(self) -> Iterator[str]:
        config = self.config.dataloader
        readers = len(chosen(self.clients, config.share))
        if config.epochs is None or not readers:
            return
        samples = sample_table(sample_shape(config), self.stage.seed).count
        batches = batches_in_epoch(samples, config.batch, readers)
        if batches < (config.epochs.batches or 1):
            yield (
                f"dataloader: {samples:,} samples are {batches:,} batches of {config.batch} for each of {readers} "
                f"readers, less than the {config.epochs.batches or 1} of an epoch; raise files or file_size, or lower "
                "batch or epochs.batches"
            )

    def _manager_faults(self) -> Iterator[str]:
        if self.config.cluster_manager is not None:
            yield from host_faults(self.config.cluster_manager, self._servers, self.stage.fabric)

    def _named(self, host: str) -> NodeId | None:
        fabric = self.stage.fabric
        return next((node for node in (*fabric.storages, *fabric.computes) if node.name == host), None)

    @property
    def rests_s(self) -> float:
        """How long all clients rest between two operations, by the config, in seconds: as those that rest least."""
        reads, writes = self.config.dataloader, self.config.checkpoint
        return min([reads.pause] * (reads.share > 0) + [writes.period] * (writes.share > 0), default=0.0)

    @property
    def addresses(self) -> dict[tuple[int, NodeId], Endpoint]:
        """Where each service listens in each zone; known once started."""
        return self._started.addresses

    @property
    def cluster(self) -> ManagedCluster | None:
        """The cluster manager, if it is a program of its own."""
        return self._mgmtd if isinstance(self._mgmtd, ManagedCluster) else None

    @property
    def _servers(self) -> Sequence[NodeId]:
        return self.servers or self.stage.fabric.storages

    @cached_property
    def zones(self) -> tuple[int, ...]:
        """The zones of the clients."""
        return tuple(sorted({self._zone_of(client) for client in self.clients}))

    def _zone_of(self, client: NodeId) -> int:
        return self.stage.fabric.nics_of[client][0].zone

    @cached_property
    def _first_table(self) -> ChainTable:
        config = self.config
        table = place_chains(self._servers, config.disks_per_node, config.chains_per_target, config.replicas)
        return in_order(table, config.target_order, self.stage.seed)

    @property
    def table(self) -> ChainTable:
        """The newest chain table."""
        return self._mgmtd.table if self._mgmtd else self._first_table

    @cached_property
    def striping(self) -> Striping:
        """How files are laid over the chains."""
        return Striping(self.config.chunk_size, self.config.stripe, len(self._first_table.chains), self.stage.seed)

    @cached_property
    def dataset(self) -> tuple[FileLayout, ...]:
        """The data set that readers read."""
        return dataset(self.config.dataloader, self.striping)

    def _files_before(self) -> Iterator[FileLayout]:
        """Yield the files that are there before the run: the data set, and those of ``chunk_io``."""
        config = self.config.chunk_io
        if config is None or self.config.dataloader.share:
            yield from self.dataset
        if config is not None and config.are_there:
            for number in range(len(self.clients)):
                yield from fio_files(config, self.striping, number)

    @cached_property
    def restored(self) -> tuple[FileLayout, ...]:
        """The files of the checkpoint that is restored; none if nobody restores."""
        return restored_files(self.config.restore, self.striping, len(chosen(self.clients, self.config.restore.share)))

    @cached_property
    def parts(self) -> dict[NodeId, LoadPart]:
        """What of the load is each client's."""
        config = self.config
        readers, restorers = (_places(self.clients, share) for share in (config.dataloader.share, config.restore.share))
        # From the other end: others than the readers, as far as the shares allow.
        writers = chosen(self.clients[::-1], config.checkpoint.share)
        restored = {
            client: Restored(self.restored[place.number % len(self.restored)], place)
            for client, place in restorers.items()
        }
        return {
            client: LoadPart(readers.get(client), client in writers, restored.get(client)) for client in self.clients
        }

    def _address(self, node: NodeId, zone: int) -> str:
        if self.address_of is not None:
            return self.address_of(node, zone)
        if node in self._servers or (node in self.clients and self._zone_of(node) == zone):
            return self._addresses_in[zone](node)
        return self._address_in_control(node, zone)

    def _address_in_control(self, node: NodeId, zone: int) -> str:
        """Return the one address of programs that do not carry data."""
        if self.address_of is not None:
            return self.address_of(node, zone)
        nic = self.stage.fabric.nic_in_zone(node, zone)
        assert nic is not None, "_faults() verified it"
        return self.stage.address_of(nic.ip)

    @cached_property
    def _addresses_in(self) -> dict[int, Callable[[NodeId], str]]:
        """How the addresses of servers and of a zone's clients are found, which stand for all NICs that they have."""
        found = {}
        for zone in self.zones:
            clients = [client for client in self.clients if self._zone_of(client) == zone]
            found[zone] = self.stage.addresses_on((*clients, *self._servers), zone)
        return found

    @property
    def _transport(self) -> Transport:
        """What carries its data: who has been silent for as long as a call may take is out of reach."""
        return self.stage.transport(self.level, self.config.client.call_timeout)

    @property
    def _resync_transport(self) -> Transport | None:
        manager = self.config.cluster_manager
        if manager is None or manager.resync.level is None:
            return None
        level = next(level for level in DATA_LEVELS if level.label == manager.resync.level)
        return self.stage.transport(level, self.config.client.call_timeout)

    # The life of a job.

    def start(self) -> None:
        """Fork services and clients and link them up. Raises TrafficError."""
        manager = self._start_services()
        clients = {
            client: self._start_of(client, number, manager.get(self._zone_of(client)))
            for number, client in enumerate(self.clients)
        }
        self._clients.start_all(self.client_program, clients, self.config.clients_per_process)
        self._clients.collect("report that it is linked to the services", START_TIMEOUT_S)
        if not manager:
            self._watch()

    def _start_services(self) -> dict[int, ManagerEnd]:
        """Fork the cluster manager, if it is to be a program, and the services, and link these to each other. Return
        where the manager is heard from each zone. Raises TrafficError."""
        self._started.manager = manager = self._start_manager()
        starts = {node: self._start_of_service(node, manager.get(self.zones[0])) for node in self._servers}
        self._services.start_all(run_service, starts, self.config.services_per_process)
        for node, listening in self._services.collect("addresses that it listens on", START_TIMEOUT_S).items():
            self.addresses.update({(zone, node): address for zone, address in listening.addresses.items()})
        self._order(self._services, Peers(self.addresses), "report that it is linked to its peers")
        return manager

    def _watch(self) -> None:
        """Begin to publish chains without services that have died."""
        processes = {node: handle.process for node, handle in self._services.handles.items()}
        self._mgmtd = Mgmtd(self._first_table, processes, self.config.failure_detection, self._publish)

    def _start_manager(self) -> dict[int, ManagerEnd]:
        """Start the cluster manager, or several and their store, if it is to be a program, on the last storage nodes if
        no hosts are named; return where they are heard from each zone: by their NICs there, else by any."""
        config = self.config.cluster_manager
        if config is None:
            return {}
        managers, kv = hosts_of(config, self._servers)
        places = ManagerPlaces(tuple(map(self._place_of, managers)), None if kv is None else self._place_of(kv))
        self._mgmtd = ManagedCluster(self.stage, self.name, config, self._first_table)
        found = self._mgmtd.start(places, self._servers)
        return {zone: found.get(zone) or next(iter(found.values())) for zone in self.zones}

    def _place_of(self, host: str) -> ManagerPlace:
        node = self._named(host)
        assert node is not None, "_faults() verified it"
        zones = [zone for zone in self.zones if self.stage.fabric.nic_in_zone(node, zone) is not None]
        return ManagerPlace(
            node, {zone: self._address_in_control(node, zone) for zone in zones or [self._zone_of(node)]}
        )

    def _start_of_service(self, node: NodeId, manager: ManagerEnd | None) -> tuple[str, NodeId, ServiceArguments]:
        if manager is not None and self.config.cluster_manager is not None:
            manager = replace(manager, skew_s=self.config.cluster_manager.clocks.get(node.name, 0.0))
        arguments = ServiceArguments(
            node=node,
            addresses={zone: self._address(node, zone) for zone in self.zones},
            config=self.config,
            table=self._first_table,
            preloaded=(*self._files_before(), *self.restored),
            transport=self._transport,
            manager=manager,
            resync=self._resync_transport,
        )
        return "storage service", node, arguments

    def _start_of(self, client: NodeId, number: int, manager: ManagerEnd | None = None) -> tuple[str, NodeId, Any]:
        services = [*self.services_of(client).items()]
        first = number % len(services)  # Else all clients would connect to the same service first.
        arguments = ManagedClientArguments(
            number=number,
            source=self.source_of(client),
            services=dict(services[first:] + services[:first]),
            config=self.config,
            table=self._first_table,
            striping=self.striping,
            dataset=files_of(self.config.dataloader, self.dataset, number),
            part=self.parts[client],
            seed=self.stage.seed,
            transport=self._transport,
            expects_rot=any(server.name in self.stage.rotten_hosts for server in self._servers),
            manager=manager,
        )
        return "storage client", client, self.told(arguments)

    @property
    def client_program(self) -> Program:
        """What runs in a client's host; other kinds of jobs have another."""
        return run_client

    def told(self, arguments: ManagedClientArguments) -> object:
        """Return what the program of a client is told; kinds of jobs whose clients play another load say so here."""
        return arguments

    def services_of(self, client: NodeId) -> dict[NodeId, Endpoint]:
        """Return where the services listen in a client's zone; they have started."""
        zone = self._zone_of(client)
        return {node: address for (where, node), address in self.addresses.items() if where == zone}

    def source_of(self, client: NodeId) -> str:
        """Return the address from which a client connects."""
        return self._address(client, self._zone_of(client))

    def play(self, phase: str) -> None:
        """Begin the load: clients at full demand. Raises TrafficError if a program has gone."""
        with self._services.asking:
            self._started.phase, self._started.played_s = phase, time.monotonic()
            if self.cluster is not None:
                self.cluster.play(phase)
            self._order(self._services, Play(phase), "report that it samples")
            self._order(self._clients, Play(phase), "report that it plays")

    def halt(self) -> Records:
        """End the load, let what is under way end, and return its rows.

        Operations that did not succeed in time are rows, as failed. Raises TrafficError if a read was wrong, a chain
        was lost, or a service ended that no failure had ended.
        """
        records = Records()
        self._counts = Counter()
        patience_s = self.config.client.operation_timeout + self.config.client.call_timeout + 10
        with self._services.asking:
            phase, began_s = self._started.phase or "", self._started.played_s
            self._started.phase = None
            attempts: list[ResyncAttempt] = []
            for programs in (self._clients, self._services):
                programs.order(Halt())
                reports: Iterable[Report] = programs.collect("report of the phase", patience_s).values()
                for report in reports:
                    records.extend(report.records)
                    attempts += report.resyncs
                    self._add(report)
            records.add(RESYNCS, resync_rows(phase, attempts, began_s))
            if self.cluster is not None:
                self.cluster.halt()
                records.add(CHAINS, chain_rows(phase, self.cluster.transitions, began_s))
                if self.cluster.shared_trust:
                    self._counts["shared_trust"] = len(self.cluster.shared_trust)
        return records

    def _add(self, report: Report) -> None:
        for name, count in report.counts.items():
            self._counts[name] = max(self._counts[name], count) if name in PEAKS else self._counts[name] + count

    @property
    def counts(self) -> dict[str, int]:
        """What services and clients counted from the start to the last halt; peaks are of the busiest program.

        ``peak_senders``: payloads arriving at a client at once; ``peak_pulls``: at a NIC of a service;
        ``apply_timeouts``: reads sent without leave; ``retries``: tries that did not succeed; ``expired_calls`` and
        ``expired_replies``: dropped, since nobody waited any more; ``unsettled``: how often the completion of a pending
        version was tried in vain; ``wrong_copies``: reads of rotten data, which were tried elsewhere; ``refused_...``:
        calls refused, by status; ``links_made_again``; ``disk_read_bytes`` and ``disk_written_bytes``: of updates, on
        all replicas; ``copies_on_write`` and ``writes_in_place``: updates of these kinds, likewise;
        ``sent_..._bytes`` and ``payload_..._bytes``: by cause (:mod:`traffic.storage.wire.causes`), the cluster
        manager's left out; ``shared_trust``: times in which two cluster managers, whose clocks are too far apart,
        both trusted a lease.
        """
        return dict(self._counts)

    def close(self) -> None:
        """End the programs."""
        if self._mgmtd is not None:
            self._mgmtd.stop()
        cluster = () if self.cluster is None else self.cluster.groups
        close_all(self.stage, self._clients, self._services, *cluster)

    # Failures: it is :class:`fabric.failures.kinds.process.HasPrograms` and
    # :class:`fabric.failures.kinds.disk.HasDisks`.

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its services and clients, and the cluster managers and their store, if these are programs. Without one, the
        next chain table follows a service's death after ``failure_detection``, and one that is silent stays in its
        chains."""
        return (self._services, self._clients, *(() if self.cluster is None else self.cluster.groups))

    @property
    def retry_s(self) -> float:
        """How long a client waits for an answer before it tries again, in seconds."""
        client = self.config.client
        return max(client.call_timeout, client.retry.longest if client.retry else 0.0)

    def disks_on(self, host: str) -> int:
        """Return how many disks a host has; 0 if it has no service."""
        return self.config.disks_per_node if any(node.name == host for node in self._servers) else 0

    def set_disk(self, host: str, number: int, state: DiskState) -> None:
        """Let each access to a disk fail, or reads take longer, from now on: also by a service that is started later.
        Raises TrafficError, NotThereError."""
        self._started.disks.setdefault(host, {})[number] = state
        self._asked(host, SetDisk(number, state), "report that its disk is so", _WHILE_STOPPED_S)

    def rot(self, host: str, number: int, count: int, seed: str) -> Sequence[str]:
        """Flip a bit in each of some sound chunks of a disk, drawn by a seed; return their names. Clients that read
        one count that and read another copy, if the stage names the host. Raises TrafficError, NotThereError."""
        order, what = RotSome(number, count, seed), "report of which chunks are rotten"
        rotten: Rotten = self._asked(host, order, what, _WHILE_STOPPED_S)
        return [str(chunk) for chunk in rotten.chunks]

    def _asked(self, host: str, order: object, what: str, timeout_s: float = START_TIMEOUT_S) -> Any:
        """Return what the service on a host answers to an order. Raises TrafficError, NotThereError if it was killed,
        also meanwhile."""
        node = self._server_named(host)
        with self._services.asking.of(node):
            found = {}
            if node in self._services.living:
                self._services.order(order, [node])
                found = self._services.collect(what, timeout_s, [node])
        if node not in found:
            raise NotThereError(f"{self.name}: its service on {host} was killed")
        return found[node]

    def _server_named(self, host: str) -> NodeId:
        return next(node for node in self._servers if node.name == host)

    def kill_service(self, node: NodeId, wait_s: float = 0.0) -> None:
        """End a storage node's service at once, as a crash would (SIGKILL).

        The next chain table follows after ``failure_detection``; with ``wait_s`` this returns once it is published.
        Raises TrafficError if it is not by then, or if others share the service's process (``services_per_process``).
        """
        self._services.kill(node)
        if wait_s and self._mgmtd is not None and not self._mgmtd.wait_without(node, wait_s):
            raise TrafficError(f"{node}: no chain table without it within {wait_s:g} s of its death")

    def restart_service(self, node: NodeId) -> None:
        """Start a service again that was killed, on the same addresses. It has the chunks of its files
        (``service.chunk_files``), without those none, and is brought up to date by the cluster manager's rules. Raises
        ConfigError if there is no cluster manager: nobody would let it back; TrafficError if it does not start."""
        if self.cluster is None:
            raise ConfigError(
                "storage", [f"{node} cannot be started again: nobody would let it back; set cluster_manager"]
            )
        name, _, arguments = self._start_of_service(node, self._started.manager.get(self.zones[0]))
        ports = {zone: endpoint[1] for (zone, server), endpoint in self.addresses.items() if server == node}
        with self._services.asking.of(node):
            arguments = replace(arguments, ports=ports, disks=dict(self._started.disks.get(node.name, {})))
            self._services.start_again(node, name, node, run_service, arguments)
            self._services.collect("addresses that it listens on", START_TIMEOUT_S, [node])
            self._services.order(Peers(self.addresses), [node])
            self._services.await_ready("report that it is linked to its peers", START_TIMEOUT_S, [node])
            if self._started.phase is not None:
                self._services.order(Play(self._started.phase), [node])
                self._services.await_ready("report that it samples", START_TIMEOUT_S, [node])

    def rot_chunk(self, node: NodeId, chunk: ChunkId) -> None:
        """Flip a bit of a chunk in a service's memory, as a disk may. Raises TrafficError."""
        self._services.order(Rot(chunk), [node])
        self._services.await_ready("report that it flipped a bit", START_TIMEOUT_S, [node])

    def verify_acknowledged(self, timeout_s: float = 600.0) -> Verification:
        """Read back, over the fabric, every chunk's last acknowledged write of the run from each of its replicas.

        Call it between phases. ``lost`` must be empty; what a client could not read, lost or not, is ``out_of_reach``.
        Raises TrafficError if a client fails or takes longer.
        """
        self._clients.order(Verify())
        found = self._clients.collect("result of reading back", timeout_s)
        return sum(found.values(), Verification())

    def _publish(self, change: TableChange) -> None:
        """Tell all programs; one that has gone finds no chains, and whoever needs it finds out by its own order."""
        for programs in (self._services, self._clients):
            programs.order(NewChains.of(change))

    @staticmethod
    def _order(programs: ProgramGroup[NodeId], order: object, what: str) -> None:
        programs.order(order)
        programs.await_ready(what, START_TIMEOUT_S)
