"""Random failures of real links, programs and disks, and observers at each, in a world of either engine:
``observed_failures.py TOPOLOGY REPORT FIRST_SEED SCHEDULES``. The report has what they saw and what the rows say."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.line import FailureConfig
from fabric.failures.schedule import FailureSchedule
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.world.kernel_api.netlink import Netlink
from runs.live import LiveFabric
from runs.session import PhaseOutcome, Session
from tests.live_sessions import plain_lanes, session_live
from tests.root.failing_links import HOSTS
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.flows.probes import ProbeConfig, ProbeFlow, ProbeJob
from traffic.job import Job, Records
from traffic.program_group import ProgramGroup
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob

PHASE_S, PERIOD_S, PROBES_S = 6.0, 0.05, 0.005
SLOW_S = 0.2
STORAGE = {
    "chunk_size": 16 << 10,
    "stripe": 2,
    "replicas": 2,
    "disks_per_node": 1,
    "chains_per_target": 2,
    "connections": "when_needed",
    "client": {"call_timeout": 1.0, "operation_timeout": 20.0},
    "cluster_manager": {"heartbeat": 0.2, "failed_after": 30.0, "checked_every": 0.2, "polled_every": 0.2,
                        "restart": 0.1, "resync": {"pause": 0.2}},
    "dataloader": {"share": 0.5, "depth": 2, "batch": 1, "pause": 0.01, "sample_min": 2048, "sample_max": 4096,
                   "files": 2, "file_size": 128 << 10},
}  # fmt: skip


class Observer:
    """A job that only looks, once per period: at the carrier and the rate of links, and at the state of programs."""

    name = "observer"
    level = ServiceLevel.CONTROL

    def __init__(self, live: LiveFabric, groups: dict[str, ProgramGroup[Any]], ports: list[Any]) -> None:
        self.seen: dict[str, list[tuple[float, str]]] = {}
        self._live, self._groups, self._ports = live, groups, ports
        self._over = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        """There is nothing to start."""

    def play(self, phase: str) -> None:
        """Begin to look."""
        self.seen = {}
        self._over.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        emulation, kernel = self._live.emulation, Netlink()
        shaped = {port: emulation.shaped_port(port) for port in self._ports}
        while not self._over.wait(PERIOD_S):
            for port, one in shaped.items():
                rate = kernel.htb_rate(one.index)
                fraction = 0.0 if rate is None else round(8 * rate / one.rate_bps, 3)
                state = "whole" if fraction == 1 else f"rate {fraction:g}"
                self._note(str(self._live.fabric.link_at[port]), state if kernel.link(one.index).carrier else "down")
            for job, group in self._groups.items():
                for handle in group.handles.values():
                    state = {"T": "stopped", "Z": "killed", "": "killed"}.get(state_of(handle.process.pid), "whole")
                    self._note(f"{job} on {handle.host}", state)
        kernel.close()

    def _note(self, target: str, state: str) -> None:
        self.seen.setdefault(target, []).append((time.monotonic(), state))

    def halt(self) -> Records:
        """End."""
        self._over.set()
        self._thread.join(30)
        return Records()

    def close(self) -> None:
        """There is nothing to end."""


def state_of(process: int | None) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def draw_lines(draws: random.Random, hosts: list[str], storages: list[str]) -> list[FailureConfig]:
    kept: list[FailureConfig] = []
    fabric = load_fabric("fire_flyer_2_tiny")
    for _ in range(draws.randint(2, 6)):
        line = failure_line(dict(_line(draws, hosts, storages)))
        try:
            schedule_failures([*kept, line], fabric, 1)
        except ConfigError:
            continue
        kept.append(line)
    return kept


def _line(draws: random.Random, hosts: list[str], storages: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a line: nothing that a phase does not come back from. The cluster manager lives on the last
    storage node and is not started again, so configs are refused that restart programs there."""
    nic = {"nic": f"{draws.choice([*hosts, *storages])}:0"}
    storage = {"process": draws.choice(storages), "job": "storage"}
    disk = {"disk": draws.choice(storages)}
    kinds: list[dict[str, Any]] = [
        nic,
        {**nic, "rate": draws.choice([0.2, 0.5])},
        {**nic, "loss": 1.0},
        {"process": draws.choice(hosts[:3]), "job": "hfreduce", "effect": "stop"},
        {**storage, "effect": "stop"},
        {"process": storages[0], "job": "storage", "effect": "restart"},
        {**disk, "effect": "slow", "latency": SLOW_S},
        {**disk, "effect": "slow", "latency": SLOW_S},
        {**disk, "effect": "error"},
        {**disk, "effect": "rot", "chunks": 1},
    ]
    chosen = draws.choice(kinds)
    yield from chosen.items()
    yield "at", round(draws.uniform(0.2, PHASE_S - 1.5), 3)
    if chosen.get("effect") != "rot":
        yield "for", round(draws.uniform(0.4, 2.5), 3)


def observed(topology: str, first: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """Return of each schedule its lines, what was seen of it and what its rows say. Chunks are in files of ``folder``:
    with two services, one may begin again before the other is whole."""
    fabric = load_fabric(topology)
    with session_live(fabric, plain_lanes(Queueing.LANES)) as session:
        names = list(HOSTS[fabric.name])
        storages = [node.name for node in fabric.storages]
        plans = [draw_lines(random.Random(first + number), names, storages) for number in range(count)]
        schedules = [schedule_failures(lines, fabric, 1) for lines in plans]
        session.failures = FailureSchedule(tuple(event for one in schedules for event in one.events))
        hosts = [session.live.fabric.host_named(name) for name in names]
        stage = session.stage
        reduce = HFReduceJob(stage, HFReduceConfig(size=16 << 10), hosts)
        config = checked(StorageConfig, {**STORAGE, "service": {"chunk_files": str(folder)}}, "test")
        storage = StorageJob(stage, config, fabric.computes[1::3])
        flows = [ProbeFlow(hosts[0], hosts[1]), ProbeFlow(hosts[1], hosts[2])]
        probes = ProbeJob(stage, ProbeConfig(period=PROBES_S), flows)
        ports = [link.b if link.b.node.is_switch else link.a for link in session.failures.links]
        groups: dict[str, ProgramGroup[Any]] = {
            "hfreduce": reduce.failing_programs[0], "storage": storage.failing_programs[0],
        }  # fmt: skip
        observer = Observer(session.live, groups, ports)
        jobs: list[Job] = [reduce, storage, probes, observer]
        for job in jobs:
            job.start()
        try:
            found = []
            for number, (lines, schedule) in enumerate(zip(plans, schedules, strict=True)):
                outcome = session.run_phase(f"p{number}", f"p{number}", jobs, PHASE_S, schedule)
                found.append(seen_in(session, outcome, lines, observer, probes))
        finally:
            for job in jobs:
                job.close()
    return found


def seen_in(
    session: Session, outcome: PhaseOutcome, lines: list[FailureConfig], observer: Observer, probes: ProbeJob
) -> dict[str, Any]:
    origin = session.origin
    table = session.table("failures")
    rows = table[table["phase"] == outcome.phase.name]
    texts = dict.fromkeys(["kind", "target", "state", "missed", "detail"], str)
    blackouts = [
        [str(flow.source), str(flow.destination), one.began_s - origin, one.ended_s - origin]
        for flow, report in probes.reports.items() for one in report.blackouts
    ]  # fmt: skip
    reads = [
        [row["peer"], row["operation"], row["started_s"] - origin, row["ended_s"] - origin, row["retries"]]
        for row in outcome.records.rows("operations") if row["operation"].startswith("read")
    ]  # fmt: skip
    return {
        "phase": list(outcome.phase.load_s),
        "lines": [line.model_dump(exclude_defaults=True, by_alias=True) for line in lines],
        "seen": {target: [(at - origin, state) for at, state in seen] for target, seen in observer.seen.items()},
        "rows": rows.astype(texts).to_dict("records"),
        "blackouts": blackouts,
        "reads": reads,
    }


if __name__ == "__main__":
    _, topology, report, first, count = sys.argv
    found = observed(topology, int(first), int(count), Path(report).parent / "chunks")
    Path(report).write_text(json.dumps(found, default=str))
