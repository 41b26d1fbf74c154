"""Jobs, the interface of experiments to traffic: a job starts its programs, plays in phases and returns rows.

Life of a job: ``start()`` forks its programs into hosts and returns once all are connected; ``play(phase)`` begins the
load and returns at once; ``halt()`` ends it and returns the rows measured; ``close()`` ends the programs. The orders
travel over pipes, never over the fabric.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.model.rails import most_nics, rails_in_common
from fabric.world.programs.agents import AgentPool
from traffic.transport.connection import DEFAULT_CONGESTION_CONTROL, Endpoint, SocketOptions, Transport
from traffic.transport.rails import RailsTransport, address_of
from traffic.transport.sampling import FlowSample
from traffic.transport.tcp import TcpTransport


def _itself(address: str) -> str:
    return address


@dataclass(frozen=True)
class Stage:
    """Where jobs play: the fabric, the pool that forks programs, and each host's network namespace (None in tests).

    ``logs``: the directory of the run's logs. ``make_transport``: what carries the data of collectives, storage,
    streams and fan-in; other programs hold TCP sockets. :meth:`addresses_on` decides which NICs that uses;
    :meth:`transport` makes one connection over them. ``failing_hosts``: those whose programs failures hit, so that
    each has a process of its own; ``rotten_hosts``: storage nodes whose disks get wrong data on purpose.
    ``address_of``: the address that stands for one of the fabric: itself, unless all hosts share a network, as in
    tests."""

    fabric: Fabric
    pool: AgentPool
    namespace_of: Callable[[NodeId], Path | None]
    seed: int
    congestion_control: dict[ServiceLevel, str] = field(default_factory=dict)
    receive_window_bytes: int | None = None
    logs: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    failing_hosts: frozenset[str] = frozenset()
    rotten_hosts: frozenset[str] = frozenset()
    make_transport: Callable[[SocketOptions], Transport] = TcpTransport
    address_of: Callable[[str], str] = _itself

    def socket_options(self, level: ServiceLevel) -> SocketOptions:
        """Return what every socket of a service level carries; its congestion control is cubic unless configured."""
        congestion_control = self.congestion_control.get(level, DEFAULT_CONGESTION_CONTROL)
        return SocketOptions(level, congestion_control, self.receive_window_bytes)

    def transport(self, level: ServiceLevel, user_timeout_s: float | None = None) -> Transport:
        """Return what carries the data of a service level; its connections end once what was sent stays unacknowledged
        for ``user_timeout_s`` (None: as long as the kernel has it)."""
        options = replace(self.socket_options(level), user_timeout_s=user_timeout_s)
        return RailsTransport(self.make_transport(options))

    def addresses_on(self, hosts: Iterable[NodeId], zone: int | None = None) -> Callable[[NodeId], str]:
        """Return how a job finds the address of each of its hosts, which stands for all NICs that it uses
        (:func:`fabric.model.rails.rails_in_common`) on a :meth:`transport`. Raises TopologyError."""
        nics = rails_in_common(self.fabric, hosts, zone)
        are_several = most_nics(nics) > 1
        return lambda node: address_of([self.address_of(nic.ip) for nic in nics[node]], are_several)


@dataclass(frozen=True)
class Ready:
    """A program's word that the last order is carried out."""


@dataclass(frozen=True)
class Listening:
    """A program's report that peers can connect, or send, to it."""

    endpoint: Endpoint


@dataclass(frozen=True)
class Play:
    """The order to begin the load of a phase."""

    phase: str


@dataclass(frozen=True)
class Halt:
    """The order to end the load and report its rows."""


@dataclass(frozen=True)
class Collect:
    """The order to report what has arrived."""


class Records(dict[str, list[dict[str, Any]]]):
    """Rows by the name of their table, as dicts by column; times are ``time.monotonic()``.

    Tables are those that all results share (:data:`fabric.tables.TABLES`), and those of the job's kind
    (:attr:`traffic.job_kind.JobKind.tables`). The run adds the name of the job and compares rows with the declaration
    (:class:`runs.run_tables.RunTables`): programs make rows, too, and need not load what tables are made of.
    """

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table; none if it has none. Whoever wants to add rows uses :meth:`add`."""
        return self.get(table, [])

    def add(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to a table."""
        if rows:
            self.setdefault(table, []).extend(rows)

    def extend(self, other: Mapping[str, list[dict[str, Any]]]) -> None:
        """Add another's rows."""
        for table, rows in other.items():
            self.add(table, rows)


@runtime_checkable
class TellsSoFar(Protocol):
    """A job that can say what has happened while it plays."""

    name: str

    def so_far(self) -> Records:
        """Return the rows of what has happened in the phase since the last call, as far as they will not change."""


class Job(Protocol):
    """A kind of traffic in an experiment. ``name`` is what its rows bear; of several jobs of a phase, each has its
    own.

    The line is drawn at orders and rows: an experiment says when a job plays and reads tables, and knows neither its
    programs nor its sockets. So any job plays beside any other, in either engine, and is judged and drawn like them.

    Example: a job without programs, which tells when it played::

        class Pauses:
            def __init__(self, stage, config, nodes, *, level, name):
                self.level, self.name = level, name

            def start(self): ...

            def play(self, phase):
                self.phase, self.began_s = phase, time.monotonic()

            def halt(self):
                row = {"phase": self.phase, "began_s": self.began_s, "ended_s": time.monotonic()}
                return Records({"pauses": [row]})

            def close(self): ...
    """

    name: str
    level: ServiceLevel

    def start(self) -> None:
        """Fork the programs and connect them. Raises TrafficError."""

    def play(self, phase: str) -> None:
        """Begin the load; returns at once."""

    def halt(self) -> Records:
        """End the load and return its rows. Raises TrafficError if a program failed or measured a wrong answer."""

    def close(self) -> None:
        """End the programs."""


@runtime_checkable
class FiniteJob(Job, Protocol):
    """A job that has a fixed amount to do, however long that takes: its phase is over once it has ended."""

    def finish(self) -> None:
        """Return once all is done; raises TrafficError if it cannot be, or not in time."""


@runtime_checkable
class RestingJob(Job, Protocol):
    """A job whose config lets it rest: ``rests_s``, the longest time between two of its operations, in seconds."""

    rests_s: float


@runtime_checkable
class WatchedJob(Job, Protocol):
    """A job that can say while it plays that it has failed, so that nobody waits for the end of its phase."""

    def verify(self) -> None:
        """Raise TrafficError, with the reason, if it has failed so far."""


def flow_rows(samples: list[FlowSample], phase: str, level: ServiceLevel, host: str) -> list[dict[str, Any]]:
    """Return rows of the ``flows`` table from samples of a program's connections."""
    return [
        {
            "at_s": sample.at,
            "phase": phase,
            "service_level": level.label,
            "host": host,
            "peer": sample.peer,
            "rtt_s": sample.said.round_trip_s,
            "retransmissions": sample.said.retransmissions,
            "bytes_acked": sample.said.delivered_bytes,
            "naks": sample.said.naks,
            "timeouts": sample.said.timeouts,
            "cnps": sample.said.cnps,
        }
        for sample in samples
    ]
