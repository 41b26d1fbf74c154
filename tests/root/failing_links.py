"""Links that fail under traffic, inside a world of either engine:
``failing_links.py TOPOLOGY REPORT [PHASE_S STEP_BYTES]``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from controllers.planning.paths import planned_path
from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.line import FailureConfig
from fabric.measure.fidelity import conservation_checks
from fabric.model.lanes import Queueing
from fabric.model.network import Link, Nic
from fabric.world.isolation import netns
from runs.live import LiveFabric
from runs.session import PhaseOutcome, Session
from tests.live_sessions import plain_lanes, session_live
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.flows.probes import ProbeConfig, ProbeFlow, ProbeJob
from traffic.job import Job
from traffic.storage.config import CheckpointConfig, ClientConfig, DataloaderConfig, StorageConfig
from traffic.storage.job import StorageJob

HOSTS = {
    "fire_flyer_2_small": ("z0h000", "z0h005", "z0h010", "z1h003"),
    "fire_flyer_2_tiny": ("z0h000", "z0h001", "z0h002", "z1h003"),
}
"""Two hosts at different leaves of zone 0, a third there, and one of zone 1."""
CUT_S = 0.2
LOSS = 0.2


def failures(topology: str, phase_s: float = 4.0, step_bytes: float = 256 << 10) -> dict[str, Any]:
    """A host's link, an uplink, a spine and a storage node, each cut for 200 ms under traffic; then half a rate, and
    losses."""
    with session_live(load_fabric(topology), plain_lanes(Queueing.LANES)) as session:
        return _failures(session, phase_s, int(step_bytes))


def nic(live: LiveFabric, name: str) -> Nic:
    return live.fabric.nics_of[live.fabric.host_named(name)][0]


def uplinks_between(live: LiveFabric, a: str, b: str) -> list[Link]:
    """Return the links between switches that packets from one host to another take."""
    ports = planned_path(live.plan, live.fabric, nic(live, a), nic(live, b))
    links = dict.fromkeys(live.fabric.link_at[port] for port in ports)
    return [link for link in links if link.a.node.is_switch and link.b.node.is_switch]


def _failures(session: Session, phase_s: float, step_bytes: int) -> dict[str, Any]:
    live, stage = session.live, session.stage
    fabric = live.fabric
    hosts = [fabric.host_named(name) for name in HOSTS[fabric.name]]
    up, _ = uplinks_between(live, hosts[0].name, hosts[1].name)
    flows = [ProbeFlow(hosts[0], hosts[1]), ProbeFlow(hosts[1], hosts[0]), ProbeFlow(hosts[2], hosts[3])]
    probes = ProbeJob(stage, ProbeConfig(period=0.002), flows)
    storage = StorageJob(stage, storage_config(), fabric.computes[1::5])
    reduce = HFReduceJob(stage, HFReduceConfig(size=step_bytes), hosts)
    jobs: list[Job] = [probes, storage, reduce]
    targets = {
        "host": {"host": "z0h000"},
        "uplink": {"link": f"{up.a.node}-{up.b.node}"},
        "switch": {"switch": up.b.node.name},
        "storage": {"storage": "st000"},
    }
    links = schedule_failures([one for target in targets.values() for one in line(target, at=0)], fabric, 1).links
    before = configuration(live, links)
    for job in jobs:
        job.start()
    try:
        cuts = {
            name: cut(session, name, target, jobs, probes, flows[0], phase_s)
            | {"operations": operations(session, name)}
            for name, target in targets.items()
        }
        verification = storage.verify_acknowledged(timeout_s=120)
        rates = {fraction: step_s(session, reduce, fraction, phase_s) for fraction in ("1", "0.5")}
        lossy = loss(session, probes, flows[0], phase_s)
        loaded = loss_under_load(session, [reduce, storage], [rank.name for rank in reduce.ranks], phase_s)
    finally:
        for job in jobs:
            job.close()
    return {
        "cuts": cuts,
        "checked": verification.checked,
        "lost": list(verification.lost),
        "step_s": rates,
        "loss": lossy,
        "loss under load": loaded,
        "changed": [text for text in configuration(live, links) if text not in before],
        "failures_rows": len(session.table("failures")),
    }


def storage_config() -> StorageConfig:
    return StorageConfig(
        chunk_size=64 << 10,
        stripe=8,
        dataloader=DataloaderConfig(depth=1, batch=2, sample_min=16 << 10, sample_max=64 << 10, file_size=2 << 20),
        checkpoint=CheckpointConfig(share=0.5, size=512 << 10),
        client=ClientConfig(call_timeout=2.0),
    )


def line(target: dict[str, str], **also: Any) -> list[FailureConfig]:
    return [failure_line({**target, **also})]


def cut(
    session: Session,
    name: str,
    target: dict[str, str],
    jobs: Sequence[Job],
    probes: ProbeJob,
    flow: ProbeFlow,
    phase_s: float,
) -> dict[str, Any]:
    """Cut a target for 200 ms, a quarter into a phase; return what was seen."""
    schedule = schedule_failures(line(target, at=phase_s / 4, **{"for": CUT_S}), session.live.fabric, 1)
    outcome = session.run_phase(name, name, jobs, phase_s, schedule)
    report = probes.reports[flow]
    down, up = outcome.faults.changes[0], outcome.faults.changes[-1]
    return {
        "links": len(schedule.links),
        "changes": len(outcome.faults.changes),
        "late_s": max(change.asked_s - change.due_s for change in outcome.faults.changes),
        "took_s": max(change.done_s - change.asked_s for change in outcome.faults.changes),
        "down_s": up.asked_s - down.done_s,
        "blackout_s": max((one.seconds for one in report.blackouts), default=0.0),
        "probes": {"sent": report.sent, "lost": report.lost},
        "after": sum(row["started_s"] > up.done_s for row in outcome.records.rows("steps")),
        **counted(outcome),
    }


def counted(outcome: PhaseOutcome) -> dict[str, Any]:
    (check,) = conservation_checks([outcome.conservation])
    return {
        "unaccounted": outcome.conservation.unaccounted,
        "lost_in_cuts": outcome.conservation.lost_in_cuts,
        "refused": outcome.faults.refused,
        "conservation": check.status.value,
        "sent_packets": outcome.conservation.sent_packets,
    }


def operations(session: Session, phase: str) -> dict[str, int]:
    """Return how many operations a phase had by kind, and all their retries."""
    found = session.table("operations")
    inside = found[found["phase"] == phase]
    kinds = inside["operation"].astype(str).tolist()
    return {**{kind: kinds.count(kind) for kind in set(kinds)}, "retries": int(inside["retries"].sum())}


def step_s(session: Session, job: HFReduceJob, fraction: str, phase_s: float) -> float:
    """Return the median step time with every NIC of the job at a fraction of its rate."""
    hosts = [rank.name for rank in job.ranks] if fraction != "1" else []
    lines = [one for host in hosts for one in line({"host": host}, at=0, rate=float(fraction))]
    outcome = session.run_phase(
        f"rate {fraction}", "", [job], phase_s, schedule_failures(lines, session.live.fabric, 1)
    )
    steps = outcome.records.rows("steps")[1:]  # The first begins before its rate is lowered.
    return float(np.median([step["ended_s"] - step["started_s"] for step in steps]))


def loss(session: Session, probes: ProbeJob, flow: ProbeFlow, phase_s: float) -> dict[str, Any]:
    """Return what probes lost, and what was counted, on a host's link that loses a fifth of its frames, both ways."""
    lines = line({"host": flow.source.name}, at=0.0, loss=LOSS)
    outcome = session.run_phase("loss", "", [probes], phase_s, schedule_failures(lines, session.live.fabric, 1))
    return {
        "lost": sum(report.lost for report in probes.reports.values()),
        "sent": probes.reports[flow].sent,
        "lost_of_flow": probes.reports[flow].lost,
        "by_loss": sum(outcome.faults.by_loss.values()),
        **counted(outcome),
    }


def loss_under_load(session: Session, jobs: Sequence[Job], hosts: Sequence[str], phase_s: float) -> dict[str, Any]:
    """Return what was counted when the links of hosts began to lose frames while others waited there."""
    lines = [one for host in hosts for one in line({"host": host}, at=phase_s / 4, loss=0.01)]
    schedule = schedule_failures(lines, session.live.fabric, 1)
    outcome = session.run_phase("loss under load", "", jobs, phase_s, schedule)
    return {"by_loss": sum(outcome.faults.by_loss.values()), **counted(outcome)}


def configuration(live: LiveFabric, links: Sequence[Link]) -> list[str]:
    """Return, line by line, all that restoring must bring back: the switches' port numbers, the queues and classes of
    links, and the addresses, routes and neighbours of their hosts.

    A clsact, where a port's programs were, may stay: it does nothing without them, and taking it off empties queues.
    """
    found = output(["ovs-vsctl", "--columns=name,ofport,mtu", "list", "Interface"])
    found += [line for line in output(["tc", "qdisc", "show"]) if " clsact " not in line]
    for port in (port for link in links for port in link.ports):
        classes = ["tc", "class", "show", "dev", port.interface]
        if port.node.is_switch:
            found += [f"{port} {text}" for text in output(classes)]
            continue
        with netns.inside(netns.netns_path(port.node.name)):
            for command in (classes, ["tc", "qdisc", "show"], ["ip", "addr"], ["ip", "route"], ["ip", "neigh"]):
                found += [f"{port} {text}" for text in output(command) if " clsact " not in text]
    return found


def output(command: Sequence[str]) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


if __name__ == "__main__":
    _, name, report, *sizes = sys.argv
    Path(report).write_text(json.dumps(failures(name, *map(float, sizes))))
