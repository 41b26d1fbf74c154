"""The cluster managers of a run, as its job sees them: programs with a NIC, in the place of :class:`Mgmtd`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.job import Halt, Play, Stage
from traffic.program_group import ProgramGroup
from traffic.storage.chain_states import ChainState
from traffic.storage.chains import ChainTable
from traffic.storage.config import ClusterManagerConfig
from traffic.storage.control import Nodes
from traffic.storage.kv.etcd_program import run_etcd, why_no_etcd
from traffic.storage.kv.program import KvArguments, KvListening, RangeContents, TellRange, run_kv
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit
from traffic.storage.managers.chain_store import LOG, ChainStore, Logged
from traffic.storage.managers.manager import Transition
from traffic.storage.managers.one_writer import shared, writer_faults
from traffic.storage.managers.program import (
    KvEnd,
    ManagerArguments,
    ManagerHistory,
    ManagerListening,
    TellHistory,
    first_lease,
    run_manager,
)
from traffic.storage.orders import ManagerEnd
from traffic.transport.connection import Transport

_ANSWER_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class ManagerPlace:
    """Where a program of the control plane is: its node, and the addresses of that by zone."""

    node: NodeId
    addresses: Mapping[int, str]


@dataclass(frozen=True)
class ManagerPlaces:
    """Where all of them are: the managers, the first primary first, and the store of several."""

    managers: tuple[ManagerPlace, ...]
    kv: ManagerPlace | None = None


def hosts_of(config: ClusterManagerConfig, servers: Sequence[NodeId]) -> tuple[tuple[str, ...], str | None]:
    """Return the hosts of the managers, and that of their store; None: they have none. Where a config names none,
    these are storage nodes, from the last on."""
    from_last = [node.name for node in servers[::-1]]
    if config.managers is None:
        return (config.host or from_last[0],), None
    hosts = tuple(config.managers.hosts or from_last[: config.managers.count])
    left = [host for host in from_last if host not in hosts]
    return hosts, config.managers.kv.host or (left[0] if left else None)


def host_faults(config: ClusterManagerConfig, servers: Sequence[NodeId], fabric: Fabric) -> Iterator[str]:
    """Yield what is wrong with the hosts that a config names."""
    known = {node.name for node in (*fabric.storages, *fabric.computes)}
    hosts, kv = hosts_of(config, servers)
    keys: dict[str, list[str | None] | list[str]] = {"host": [config.host], "clocks:": list(config.clocks)}
    if config.managers is not None:
        keys |= {"managers.hosts:": config.managers.hosts, "managers.kv.host": [config.managers.kv.host]}
        if len(hosts) < config.managers.count or kv is None:
            yield (
                f"cluster_manager.managers: {len(servers)} storage nodes are too few for {config.managers.count}"
                " managers and their store; name managers.hosts and managers.kv.host"
            )
        if config.managers.kv.engine == "etcd" and (why := why_no_etcd()):
            yield f"cluster_manager.managers.kv.engine: {why}"
    for key, named in keys.items():
        for host in named:
            if host is not None and host not in known:
                yield (
                    f"cluster_manager.{key} {host} is not a host of {fabric.name}; name one, such as {servers[-1]}, or "
                    "leave it out"
                )
    for host in config.clocks:
        if host in known and host not in hosts and host not in {node.name for node in servers}:
            yield f"cluster_manager.clocks: {host} has neither a service nor a manager; name a host that has"


class ManagedCluster:
    """The programs of the control plane; their calls are CONTROL traffic, of whatever level the data is."""

    def __init__(self, stage: Stage, name: str, config: ClusterManagerConfig, table: ChainTable) -> None:
        self.programs: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        """The managers."""
        self.store: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        """The store of several managers, if there are several."""
        self.shared_trust: list[str] = []
        """Times in which two managers trusted a lease, as clocks that are too far off allow; else that is a bug."""
        self.transitions: tuple[Transition, ...] = ()
        """How chains had changed since the start when it was halted last."""
        self._stage = stage
        self._config = config
        self._first_table = table
        self._nodes: tuple[NodeId, ...] = ()

    @property
    def groups(self) -> tuple[ProgramGroup[NodeId], ...]:
        """All of its programs."""
        return (self.programs, self.store)

    def start(self, places: ManagerPlaces, nodes: Sequence[NodeId]) -> dict[int, ManagerEnd]:
        """Fork them; return where they are heard, by zone. Raises TrafficError."""
        self._nodes = tuple(nodes)
        transport = self._stage.transport(ServiceLevel.CONTROL, self._config.heartbeat)
        kv = {} if places.kv is None else self._start_store(places, places.kv, transport)
        managers = tuple(place.node for place in places.managers)
        starts = {
            place.node: ("cluster manager", place.node, self._arguments(place, managers, kv, transport))
            for place in places.managers
        }
        self.programs.start_all(run_manager, starts)
        found: Mapping[NodeId, ManagerListening] = self.programs.collect(
            "addresses that it listens on", _ANSWER_TIMEOUT_S
        )
        zones = {zone for listening in found.values() for zone in listening.addresses}
        return {zone: self._end_in(zone, found, transport) for zone in zones}

    def _end_in(self, zone: int, found: Mapping[NodeId, ManagerListening], transport: Transport) -> ManagerEnd:
        """Return where the managers are heard from a zone: by their NICs there, else by any."""
        ends = {node: _in_zone(listening.addresses, zone) for node, listening in found.items()}
        (node, endpoint), *others = ends.items()
        return ManagerEnd(node, endpoint, self._nodes, transport, tuple(others), self._config.has_clocks)

    def _arguments(
        self, place: ManagerPlace, managers: tuple[NodeId, ...], kv: Mapping[int, KvEnd], transport: Transport
    ) -> ManagerArguments:
        end = _in_zone(kv, next(iter(place.addresses))) if kv else None
        return ManagerArguments(
            place.node, place.addresses, self._config, self._first_table, self._nodes, transport, managers, end
        )

    def _start_store(self, places: ManagerPlaces, place: ManagerPlace, transport: Transport) -> dict[int, KvEnd]:
        arguments = KvArguments(place.node, place.addresses, transport, self._first_commit(places))
        is_etcd = self._config.managers is not None and self._config.managers.kv.engine == "etcd"
        program = run_etcd if is_etcd else run_kv
        self.store.start(place.node, "store of keys and values", place.node, program, arguments)
        found: Mapping[NodeId, KvListening] = self.store.collect("addresses that it listens on", _ANSWER_TIMEOUT_S)
        return {zone: KvEnd(place.node, at, is_etcd) for zone, at in found[place.node].addresses.items()}

    def _first_commit(self, places: ManagerPlaces) -> Commit:
        """Return what is in the store from the start: the fabric carries nothing before a job plays."""
        chains = [ChainState.first(chain.number, chain.targets) for chain in self._first_table.chains]
        lease = first_lease(self._config, places.managers[0].node.name)
        return self._chain_store().first(lease, self._first_table.version, chains)

    def _chain_store(self) -> ChainStore:
        """Return what packs and parses chains; nothing is read or written by it here."""
        return ChainStore(SqliteStore(), Nodes(self._nodes))

    def play(self, phase: str) -> None:
        """Let it go on. Raises TrafficError if it has gone."""
        self._order(Play(phase))

    def halt(self) -> None:
        """Let it stand still: services are not heard between phases, and none has failed for that. Raises TrafficError
        if a chain came to be what it must not be, or two managers wrote by one lease."""
        self._order(Halt())
        if not self.programs.living:
            return
        history = self.history()
        self.transitions = history.transitions
        faults = [*history.faults, *writer_faults(history.log)]
        self.shared_trust = shared(history.trusted or {})
        if not self._clocks_are_off:
            faults += self.shared_trust
        if faults:
            raise TrafficError(f"storage: {'; '.join(faults[:3])}; {len(faults)} faults of chains in all: it is a bug")

    @property
    def _clocks_are_off(self) -> bool:
        """Whether clocks of managers differ by as much as the margin of the lease, so that two may trust one."""
        managers = self._config.managers
        if managers is None:
            return False
        skews = [self._config.clocks.get(node.name, 0.0) for node in self.programs.handles]
        return max(skews) - min(skews) >= managers.lease.not_trusted_below

    def _order(self, order: object) -> None:
        for programs in self.groups:
            with programs.asking:
                programs.order(order)
                programs.await_ready("report that it has heard", _ANSWER_TIMEOUT_S)

    def history(self) -> ManagerHistory:
        """Return how chains have changed since the start: as the store has it, if there is one and it lives, else as
        the managers that live have learned. Raises TrafficError if none does."""
        told: list[ManagerHistory] = list(self._asked(self.programs, TellHistory(), "its history"))
        log = self._log()
        if not told and not log:
            raise TrafficError("storage: the cluster manager was killed, and reports nothing")
        if self._config.managers is None:
            return told[0]
        trusted = {name: spans for one in told for name, spans in (one.trusted or {}).items()}
        counts = sum((Counter(one.counts) for one in told), Counter[str]())
        transitions = tuple(transitions_of(log)) if log else self._learned(told)
        versions = [one.table.version for one in told] + [line.version for line in log]
        table = self._table_after(transitions, max(versions))
        return ManagerHistory(transitions, table, counts, tuple(log), trusted, is_whole=bool(log))

    def _log(self) -> list[Logged]:
        told: list[RangeContents] = list(self._asked(self.store, TellRange(LOG), "its log of chains"))
        return self._chain_store().logged(told[0].pairs) if told else []

    @staticmethod
    def _asked(programs: ProgramGroup[NodeId], order: object, what: str) -> Iterator[Any]:
        with programs.asking:
            programs.order(order)
            yield from programs.collect(what, _ANSWER_TIMEOUT_S).values()

    def _learned(self, told: Sequence[ManagerHistory]) -> tuple[Transition, ...]:
        """Return what managers have learned of chains, each of its states once, in order."""
        first = [ChainState.first(chain.number, chain.targets) for chain in self._first_table.chains]
        found = {(chain.number, chain.version): Transition(0.0, chain) for chain in first}
        for one in sorted((one for history in told for one in history.transitions), key=lambda one: one.at_s):
            found.setdefault((one.chain.number, one.chain.version), one)
        return tuple(found.values())

    @staticmethod
    def _table_after(transitions: Sequence[Transition], version: int) -> ChainTable:
        newest = {one.chain.number: one.chain for one in sorted(transitions, key=lambda one: one.chain.version)}
        return ChainTable(version, tuple(newest[number].routed for number in sorted(newest)))

    @property
    def table(self) -> ChainTable:
        """The routing as it is now. Raises TrafficError as :meth:`history`."""
        log = self._log()
        return (
            self._table_after(tuple(transitions_of(log)), max(line.version for line in log))
            if log
            else self.history().table
        )

    def wait_until(self, holds: Callable[[ChainTable], bool], timeout_s: float) -> bool:
        """Return whether the routing comes to be so within a time."""
        ends_s = time.monotonic() + timeout_s
        while not (is_so := holds(self.table)) and time.monotonic() < ends_s:
            time.sleep(_LOOK_EVERY_S)
        return is_so

    def wait_without(self, node: NodeId, timeout_s: float) -> bool:
        """Return whether no chain is written on a node within a time."""
        return self.wait_until(lambda table: all(node not in chain.written for chain in table.chains), timeout_s)

    def wait_whole(self, replicas: int, timeout_s: float) -> bool:
        """Return whether all targets of all chains serve within a time."""
        return self.wait_until(lambda table: all(len(chain.nodes) == replicas for chain in table.chains), timeout_s)

    def stop(self) -> None:
        """It ends with the job's other programs."""


def _in_zone(by_zone: Mapping[int, Any], zone: int) -> Any:
    return by_zone[zone] if zone in by_zone else next(iter(by_zone.values()))


def transitions_of(log: Sequence[Logged]) -> Iterator[Transition]:
    """Yield how chains changed, by the log of their store."""
    for line in log:
        for chain in line.chains:
            yield Transition(line.at_s, chain)
