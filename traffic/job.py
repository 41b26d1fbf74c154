"""Jobs, the interface of experiments to traffic: a job starts its programs, plays in phases and returns rows.

Life of a job: ``start()`` forks its programs into hosts and returns once all are connected; ``play(phase)`` begins the
load and returns at once; ``halt()`` ends it and returns the rows measured; ``close()`` ends the programs. The orders
travel over pipes, never over the fabric.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.world.programs.agents import AgentPool
from traffic.transport.connection import DEFAULT_CONGESTION_CONTROL, Endpoint, SocketOptions, Transport
from traffic.transport.sampling import FlowSample
from traffic.transport.tcp import TcpTransport


@dataclass(frozen=True)
class Stage:
    """Where jobs play: the fabric, the pool that forks programs, and each host's network namespace (None in tests).

    ``logs``: the directory of the run's logs. ``make_transport``: what carries the data of programs that take any
    transport; others hold TCP sockets."""

    fabric: Fabric
    pool: AgentPool
    namespace_of: Callable[[NodeId], Path | None]
    seed: int
    congestion_control: dict[ServiceLevel, str] = field(default_factory=dict)
    receive_window_bytes: int | None = None
    logs: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    make_transport: Callable[[SocketOptions], Transport] = TcpTransport

    def socket_options(self, level: ServiceLevel) -> SocketOptions:
        """Return what every socket of a service level carries; its congestion control is cubic unless configured."""
        congestion_control = self.congestion_control.get(level, DEFAULT_CONGESTION_CONTROL)
        return SocketOptions(level, congestion_control, self.receive_window_bytes)

    def transport(self, level: ServiceLevel) -> Transport:
        """Return what carries the data of a service level."""
        return self.make_transport(self.socket_options(level))


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


@dataclass
class Records:
    """Rows for the tables of :data:`fabric.tables.TABLES`, as dicts by column; times are ``time.monotonic()``."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    rank_steps: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    flows: list[dict[str, Any]] = field(default_factory=list)
    blackouts: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)

    def of_job(self, name: str) -> Records:
        """Return these rows with the name of the job that they are of, where tables have a column for it."""
        for rows in (self.steps, self.rank_steps, self.operations, self.flows, self.restarts):
            for row in rows:
                row["job"] = name
        return self

    def extend(self, other: Records) -> None:
        """Add another's rows."""
        for name, rows in vars(other).items():
            getattr(self, name).extend(rows)


class Job(Protocol):
    """A kind of traffic in an experiment. ``name`` is what its rows bear; of several jobs of a phase, each has its
    own."""

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
        }
        for sample in samples
    ]
