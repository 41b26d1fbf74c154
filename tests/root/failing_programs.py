"""Programs, silent hosts and disks that fail, in a world of either engine: ``failing_programs.py TOPOLOGY REPORT``."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.schedule import FailureSchedule
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.world.isolation import netns
from runs.live import LiveFabric
from runs.session import PhaseOutcome, Session
from tests.live_sessions import plain_lanes, session_live
from tests.root.failing_links import HOSTS, storage_config
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.job import Job, Records
from traffic.storage.job import StorageJob

PHASE_S = 4.0
AT_S, FOR_S = 1.0, 1.5
ESTABLISHED = 1
LINES: dict[str, dict[str, Any]] = {
    "silent": {"silent": "HOST", "at": AT_S, "for": FOR_S},
    "stopped": {"process": "HOST", "job": "hfreduce", "at": AT_S, "for": FOR_S, "effect": "stop"},
    "rotten": {"disk": "st001", "at": AT_S, "effect": "rot", "chunks": 2},
    "killed": {"process": "st001", "job": "storage", "at": AT_S, "effect": "kill"},
    "dead": {"silent": "HOST", "at": AT_S, "for": FOR_S, "then": "dead"},
}
"""In this order: the service stays dead, and the last ends HFReduce."""


class Watcher:
    """A job that only looks: what states the connections of a host to another have, before, during and after a
    failure, and how many connections of it ended by a reset."""

    name = "watcher"
    level = ServiceLevel.CONTROL

    def __init__(self, live: LiveFabric, host: NodeId, peer: NodeId) -> None:
        self.seen: dict[str, Any] = {}
        self._namespace = live.emulation.namespace_of(host)
        self._peer_ip = live.fabric.nics_of[peer][0].ip
        self._thread = threading.Thread()

    def start(self) -> None:
        """There is nothing to start."""

    def play(self, phase: str) -> None:
        """Begin to look."""
        self.seen = {}
        self._thread = threading.Thread(target=self._look, args=(time.monotonic(),), daemon=True)
        self._thread.start()

    def _look(self, began: float) -> None:
        looks = {"before": AT_S - 0.2, "early": AT_S + 0.3, "late": AT_S + FOR_S - 0.1, "after": AT_S + FOR_S + 1.2}
        assert self._namespace is not None
        with netns.inside(self._namespace):
            for name, at in looks.items():
                time.sleep(max(0.0, began + at - time.monotonic()))
                self.seen[name] = {"states": self._states(), "resets": resets()}

    def _states(self) -> list[int]:
        """Return the TCP states of all connections to the peer (1: established)."""
        words = [line.split() for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]]
        of_peer = (one for one in words if address_of(one[2]) == self._peer_ip)
        return sorted(int(one[3], 16) for one in of_peer)

    def halt(self) -> Records:
        """End."""
        self._thread.join(30)
        return Records()

    def close(self) -> None:
        """There is nothing to end."""


def address_of(text: str) -> str:
    return socket.inet_ntoa(struct.pack("=I", int(text.partition(":")[0], 16)))


def resets() -> int:
    """Return how many connections of this host an RST has ended, or the host itself."""
    names, values = (
        line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("EstabResets")])


def failures(topology: str) -> dict[str, Any]:
    """Return what was seen of each failure, each in a phase of its own."""
    fabric = load_fabric(topology)
    with session_live(fabric, plain_lanes(Queueing.LANES)) as session:
        hosts = [session.live.fabric.host_named(name) for name in HOSTS[fabric.name]]
        schedules = {name: schedule_of(session, line, hosts[1].name) for name, line in LINES.items()}
        session.failures = FailureSchedule(tuple(event for one in schedules.values() for event in one.events))
        stage = session.stage
        reduce = HFReduceJob(stage, HFReduceConfig(size=256 << 10), hosts)
        storage = StorageJob(stage, storage_config(), fabric.computes[1::2])
        watcher = Watcher(session.live, hosts[0], hosts[1])
        jobs: list[Job] = [reduce, storage, watcher]
        for job in jobs:
            job.start()
        try:
            found = {name: played(session, name, jobs, schedule) for name, schedule in schedules.items()}
            verification = storage.verify_acknowledged(timeout_s=120)
        finally:
            for job in jobs:
                job.close()
        return {
            **found,
            "table version": storage.table.version,
            "counts": storage.counts,
            "checked": verification.checked,
            "lost": list(verification.lost),
            "rows": session.table("failures").astype({"kind": str, "target": str}).to_dict("records"),
            "jobs": session.table("jobs")[["phase", "job", "failed"]].astype(str).to_dict("records"),
            "checks": {check.name: [check.status.value, check.text] for check in session.judge().checks},
        }


def schedule_of(session: Session, line: dict[str, Any], host: str) -> FailureSchedule:
    named = {key: host if value == "HOST" else value for key, value in line.items()}
    return schedule_failures([failure_line(named)], session.live.fabric, 1)


def played(session: Session, name: str, jobs: list[Job], schedule: FailureSchedule) -> dict[str, Any]:
    """Play a phase; return what was seen."""
    outcome = session.run_phase(name, name, jobs, PHASE_S, schedule)
    began = session.origin + outcome.began_s
    watcher = jobs[-1]
    assert isinstance(watcher, Watcher)
    steps = [row["ended_s"] - began for row in outcome.records.rows("steps")]
    return {
        "tcp": watcher.seen,
        "steps": steps,
        "in the middle": sum(AT_S + 0.3 < at < AT_S + FOR_S for at in steps),
        "after": sum(at > AT_S + FOR_S for at in steps),
        "operations": operations(outcome, began),
        "unaccounted": outcome.conservation.unaccounted,
        "changes": [[str(one.target), str(one.state), one.done_s - one.due_s] for one in outcome.faults.changes],
    }


def operations(outcome: PhaseOutcome, began: float) -> dict[str, dict[str, int]]:
    """Return how many operations of each kind began after the failure had, by their server."""
    there_s = max(began + AT_S + 0.7, outcome.faults.changes[0].done_s)  # A busy machine may carry it out later.
    late = [row for row in outcome.records.rows("operations") if row["started_s"] > there_s]
    kinds = {row["operation"] for row in late}
    return {kind: dict(Counter(row["peer"] for row in late if row["operation"] == kind)) for kind in kinds}


if __name__ == "__main__":
    _, topology, report = sys.argv
    Path(report).write_text(json.dumps(failures(topology), default=str))
