"""The cluster and its clients as two jobs, so that the cluster's timers run while clients play for some windows only.

A cluster's timers are of tens of seconds and its transfers of milliseconds: whoever plays minutes of the first needs
not play minutes of load.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from traffic.job import Halt, Play, Records
from traffic.program_group import ProgramGroup
from traffic.storage.chains import ChainTable
from traffic.storage.job import StorageJob
from traffic.storage.orders import BeginAnew, Finish, Report, ResyncAttempt


@dataclass
class StorageInParts(StorageJob):
    """A storage job whose services and clients play and halt apart."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reports: dict[tuple[str, NodeId], Report] = {}
        """What each program said at its last halt, its rows left out; by the group of programs that it is in."""

    @property
    def first_table(self) -> ChainTable:
        """The chains with which the cluster begins."""
        return self._first_table

    def play_services(self, phase: str) -> None:
        """Let the cluster go on, without a load. Raises TrafficError if a program has gone."""
        with self._services.asking:
            if self.cluster is not None:
                self.cluster.play(phase)
            self._order(self._services, Play(phase), "report that it samples")

    def play_clients(self, phase: str) -> None:
        """Begin the load of clients. Raises TrafficError if one has gone."""
        with self._clients.asking:
            self._order(self._clients, Play(phase), "report that it plays")

    def play(self, phase: str) -> None:
        """Do both."""
        self.play_services(phase)
        self.play_clients(phase)

    def finish_clients(self, timeout_s: float) -> None:
        """Return once clients that have a fixed amount to do have done it. Raises TrafficError if not in time."""
        with self._clients.asking:
            self._clients.order(Finish())
            self._clients.await_ready("report that its load is over", timeout_s)

    def halt_clients(self) -> Records:
        """End the load of clients, and return its rows. Raises TrafficError as :meth:`halt` does."""
        with self._clients.asking:
            return self._halted("clients", self._clients)

    def halt_services(self) -> Records:
        """Let the cluster stand still, once clients are halted; return its rows. Raises TrafficError likewise."""
        with self._services.asking:
            records = self._halted("services", self._services)
            if self.cluster is not None:
                self.cluster.halt()
        return records

    def halt(self) -> Records:
        """Do both."""
        records = self.halt_clients()
        records.extend(self.halt_services())
        return records

    def _halted(self, group: str, programs: ProgramGroup[NodeId]) -> Records:
        records = Records()
        programs.order(Halt())
        patience_s = self.config.client.operation_timeout + self.config.client.call_timeout + 10
        reports: Mapping[NodeId, Report] = programs.collect("report of the phase", patience_s)
        self._reports = {key: report for key, report in self._reports.items() if key[0] != group}
        for node, report in reports.items():
            records.extend(report.records)
            self._reports[group, node] = replace(report, records=Records())
        return records

    @property
    def counts(self) -> dict[str, int]:
        """As those of a whole one, of the last halt of each part."""
        self._counts = Counter()
        for report in self._reports.values():
            self._add(report)
        return super().counts

    @property
    def resyncs(self) -> tuple[ResyncAttempt, ...]:
        """What services did to bring targets up to date, from the start to the last halt, in the order of time."""
        found = (attempt for report in self._reports.values() for attempt in report.resyncs)
        return tuple(sorted(found, key=lambda attempt: attempt.began_s))

    def begin_service_anew(self, node: NodeId, with_empty_disks: bool = False) -> None:
        """Let a storage node's service begin anew, as if an operator restarted it, or after new disks were put in: the
        cluster manager hears it, and it is brought up to date. Raises TrafficError if there is no cluster manager."""
        if self.cluster is None:
            raise TrafficError(f"{node}: a service begins anew with a cluster manager only; set cluster_manager: {{}}")
        self._asked(node.name, BeginAnew(with_empty_disks), "report that it begins anew")


@dataclass
class ClusterJob:
    """The services and the cluster manager of a storage job, as a :class:`traffic.job.FiniteJob`: it plays until
    somebody says that it is ``over``, for ``patience_s`` at most. It starts and closes the clients, too."""

    storage: StorageInParts
    patience_s: float
    over: threading.Event = field(default_factory=threading.Event)
    name: str = field(init=False)
    level: ServiceLevel = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.level = self.storage.name, self.storage.level

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its programs, for failures."""
        return self.storage.failing_programs

    def start(self) -> None:
        """Start the storage job."""
        self.storage.start()

    def play(self, phase: str) -> None:
        """Let the cluster go on."""
        self.storage.play_services(phase)

    def finish(self) -> None:
        """Return once it is over. Raises TrafficError if it is not in time."""
        if not self.over.wait(self.patience_s):
            raise TrafficError(f"{self.name}: waited {self.patience_s:g} s for the phase to be over, and it is not")

    def halt(self) -> Records:
        """Let the cluster stand still; return its rows."""
        return self.storage.halt_services()

    def close(self) -> None:
        """End all programs of the storage job."""
        self.storage.close()


@dataclass
class ClientsJob:
    """The clients of a storage job that a :class:`ClusterJob` starts and closes; with a name of their own."""

    storage: StorageInParts
    name: str = field(init=False)
    level: ServiceLevel = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.level = f"{self.storage.name}_clients", self.storage.level

    @property
    def served_by(self) -> tuple[str, ...]:
        """The job whose programs they need: the cluster's."""
        return (self.storage.name,)

    @property
    def retry_s(self) -> float:
        """How long they wait for an answer before they try again, in seconds."""
        return self.storage.retry_s

    @property
    def rests_s(self) -> float:
        """How long they rest between two operations at most, in seconds."""
        return self.storage.rests_s

    def start(self) -> None:
        """They have started with the cluster."""

    def play(self, phase: str) -> None:
        """Begin their load."""
        self.storage.play_clients(phase)

    def halt(self) -> Records:
        """End it; return their rows."""
        return self.storage.halt_clients()

    def close(self) -> None:
        """They end with the cluster."""
