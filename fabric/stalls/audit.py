"""A process that reads all lossless ports of a fabric at once, repeatedly, and reports why lanes are stalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.queueing import vl
from fabric.queueing.lossless import lane_names
from fabric.queueing.vl_samples import VlReader
from fabric.stalls.causes import Stall, StallLedger, stalls
from fabric.stalls.waits import LaneNames, ObservedPort, PortView, deadlocks, describe
from fabric.world import inside
from fabric.world.datapath import SWITCH_NICENESS
from fabric.world.isolation.priority import leave_session
from fabric.world.kernel_api.netlink import Netlink
from fabric.world.programs.agents import Agent, AgentHandle, AgentPool

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and Mininet is large.
    from fabric.emulation.build import Emulation

_ANSWER_TIMEOUT_S = 60.0
_LOOKS_A_LIMIT = 2
"""Looks in the time of the shortest stall that counts, so that each that lasts so long is seen when half of it is over;
also in the time that what is on its way out may take, while something is."""


@dataclass(frozen=True)
class AuditSetup:
    """The ports by namespace (None: the world's own) and interface index; stalls of ``limit_s`` are all seen.

    ``leaving_limit_s``: how long it takes at most until what nothing holds back has left an input buffer.
    """

    ports: Mapping[Path | None, Mapping[int, ObservedPort]]
    limit_s: float
    leaving_limit_s: float
    names: LaneNames


@dataclass(frozen=True)
class AuditReport:
    """What was seen between begin and end: how many looks, every stall that lasted for half the limit, and all
    deadlocks in words."""

    looks: int
    stalls: tuple[Stall, ...]
    deadlocks: tuple[str, ...] = ()


class StallAudit:
    """The run's end of the process."""

    def __init__(self, pool: AgentPool, emulation: Emulation, limit_s: float, leaving_limit_s: float) -> None:
        setup = AuditSetup(audited_ports(emulation), limit_s, leaving_limit_s, lane_names(emulation.lane_plan))
        self._agent: AgentHandle = pool.start("stall audit", "this world", audit, setup, None)
        self._agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def begin(self) -> None:
        """Begin to look."""
        self._agent.send("begin")

    def end(self) -> AuditReport:
        """End it and return what was seen. Raises TrafficError if the process failed."""
        self._agent.send("end")
        return self._agent.receive_a(AuditReport, _ANSWER_TIMEOUT_S, "report of stalls")


def audited_ports(emulation: Emulation) -> dict[Path | None, dict[int, ObservedPort]]:
    """Return all ports of a fabric by namespace and interface index."""
    found: dict[Path | None, dict[int, ObservedPort]] = {}
    for port, link in emulation.fabric.directed_ports():
        namespace = emulation.namespace_of_port(port)
        audited = ObservedPort.of(port, link)
        found.setdefault(namespace, {})[emulation.indices[port]] = audited
    return found


def audit(agent: Agent, setup: AuditSetup) -> None:
    """Report from each "begin" to the next "end" (a program of :mod:`fabric.world.programs.agents`)."""
    sockets = {namespace: Netlink(namespace) for namespace in setup.ports}
    leave_session(SWITCH_NICENESS)
    inside.precise_timers()
    agent.report("ready")
    while True:
        agent.expect("begin")
        agent.report(_look_on(agent, setup, sockets))


def _look_on(agent: Agent, setup: AuditSetup, sockets: Mapping[Path | None, Netlink]) -> AuditReport:
    least_ns = round(setup.limit_s * 1e9 / _LOOKS_A_LIMIT)
    ledger = StallLedger(round(setup.leaving_limit_s * 1e9))
    looks = 0
    circles: dict[str, None] = {}
    while not agent.pipe.poll(setup.leaving_limit_s / _LOOKS_A_LIMIT if ledger.is_leaving else least_ns / 1e9):
        dumps = {namespace: sock.dump_qdiscs() for namespace, sock in sockets.items()}
        looks += 1
        if any(_has_old_stall(dump, least_ns) for dump in dumps.values()):
            ports = views(dumps, setup.ports, setup.names)
            ledger.add(stalls(ports, least_ns))
            circles.update(dict.fromkeys(map(describe, deadlocks(ports))))
        else:
            ledger.add([])
    agent.receive(_ANSWER_TIMEOUT_S)
    return AuditReport(looks, ledger.entries, tuple(circles))


def _has_old_stall(dump: bytes, least_ns: int) -> bool:
    """Return whether a look at a namespace is worth decoding all of it."""
    sample = VlReader().read(dump)
    if sample is None:
        return False
    since = sample.lanes["stalled_since_ns"].astype("i8")
    return bool(((since > 0) & (since <= sample.now_ns - least_ns)).any())


def views(
    dumps: Mapping[Path | None, bytes], ports: Mapping[Path | None, Mapping[int, ObservedPort]], names: LaneNames
) -> dict[str, PortView]:
    """Return all ports in the dumps of all namespaces by their names."""
    return {
        one.port: PortView(one.node, one.peer, stats, names)
        for namespace, dump in dumps.items()
        for index, stats in vl.read(dump).items()
        if (one := ports[namespace].get(index)) is not None
    }
