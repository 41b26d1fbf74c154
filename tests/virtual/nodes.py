"""Nodes with an inside, in a guest: each limit alone, then allreduces over GPUs, a step of training whose gradients
HFReduce adds up, and the same with one limit halved after the other: ``nodes.py REPORT LIMIT...``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from app.commands.inside_limits import limits_of
from fabric.config import checked
from fabric.emulation.insides import draws_by_port
from fabric.measure.census import lane_counters
from fabric.model.inside import Inside, gpu_of
from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel
from fabric.model.network import Port
from runs.session import RunSettings, Session
from tests.live_sessions import plain_lanes, session_live, session_on
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob
from traffic.collectives.job import CollectiveJob
from traffic.collectives.nccl import NcclConfig, NcclJob
from traffic.stepped_job import FiniteSteps
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall
from traffic.work.training_job import PlayedTrainingConfig, TrainingJob

SMALL = ("compute=2", "storage=0", "leaves_per_zone=1", "spines_per_zone=1", "node=fire_flyer_2_nvlink")
SIZE_BYTES = 4 * 2**20
SETTINGS = RunSettings(QueueConfig(), seed=1, sample_period_s=0.005, receive_window_bytes=4 << 20)
CHUNK_BYTES = 64 * 1024
MODEL = """
family: transformer
source: a test
layers: 2
hidden: 256
sequence: 64
vocabulary: 64
attention: {heads: 4, head_size: 64}
mlp: {inner: 1024}
"""
"""Of some 8 MB of gradients."""
NCCL_GPUS = 2
"""Of each node: a ring over two of each shows that GPUs of several nodes can be ranks."""


def seen(limits: Sequence[str]) -> dict[str, Any]:
    """Return what packets reached of each limit, and what the collectives sent and how fast they were; and the same
    with half of each of ``limits``."""
    fabric = load_fabric("fire_flyer_2_nodes", SMALL)
    assert fabric.inside is not None
    with session_live(fabric, plain_lanes(Queueing.LOSSLESS), SETTINGS) as session:
        found = _limits_and_collectives(session, fabric.inside)
        found["most_arriving"] = int(Path("/proc/sys/net/core/netdev_max_backlog").read_text())
        found["training"] = _trained(session)
        insides = halved(fabric.inside)
        return found | {"halved": {limit: _with(session, insides[limit]) for limit in limits}}


def halved(inside: Inside) -> dict[str, Inside]:
    """Return nodes that have half of one limit each."""
    (root_port,), nvlink = inside.root_ports, inside.nvlink
    assert nvlink is not None
    assert inside.peer_to_peer_Bps is not None
    return {
        "PCIe": replace(inside, gpu_link_bps=inside.gpu_link_bps // 2),
        "memory": replace(inside, memory_Bps=inside.memory_Bps // 2),
        "root port": replace(inside, root_ports=(replace(root_port, rate_Bps=root_port.rate_Bps // 2),)),
        "peer to peer": replace(inside, peer_to_peer_Bps=inside.peer_to_peer_Bps // 2),
        "NVLink": replace(inside, nvlink=replace(nvlink, rate_bps=nvlink.rate_bps // 2)),
    }


def _with(session: Session, inside: Inside) -> dict[str, Any]:
    """Return the same on nodes with another inside, whose queues and budgets take the place of those there."""
    live = session.live
    fabric = replace(live.fabric, inside=inside)
    draws = draws_by_port(fabric, live.emulation.indices)
    emulation = replace(live.emulation, fabric=fabric, draws=draws)
    emulation.set_lanes(live.emulation.lane_plan)
    return _limits_and_collectives(session_on(replace(live, emulation=emulation), session.pool, SETTINGS), inside)


def _limits_and_collectives(session: Session, inside: Inside) -> dict[str, Any]:
    fabric = session.live.fabric
    limits = [asdict(row) for row in limits_of(session.live, inside)]
    hfreduce = HFReduceJob(session.stage, HFReduceConfig(size=SIZE_BYTES, chunk=CHUNK_BYTES), fabric.computes)
    found = {"limits": limits, "hfreduce": _played(session, hfreduce)}
    gpus = [gpu_of(host, number) for host in fabric.computes for number in range(NCCL_GPUS)]
    ring = NcclJob(session.stage, NcclConfig(size=SIZE_BYTES, slice=CHUNK_BYTES), gpus, fabric.address_inside)
    return found | {"nccl": _played(session, ring)}


def _played(session: Session, job: CollectiveJob) -> dict[str, Any]:
    job.start()
    try:
        session.warm_up(job)
        before = session.live.emulation
        sent = lane_counters(before, "sent_bytes")
        outcome = session.run_phase(job.name, job.name, [_Once(job)], 0.0)
        after = lane_counters(before, "sent_bytes")
    finally:
        job.close()
    (row,) = outcome.records.rows("steps")
    return {
        "algbw_Bps": SIZE_BYTES / (row["ended_s"] - row["started_s"]),
        "sent": _by_port(sent, after),
        "unaccounted": outcome.conservation.unaccounted,
        "dropped": outcome.conservation.dropped_by_cause,
        "retransmissions": outcome.conservation.retransmissions,
    }


def _trained(session: Session) -> dict[str, Any]:
    """Return what a step of DDP over all GPUs took and sent, with HFReduce for its buckets."""
    fabric = session.live.fabric
    assert fabric.inside is not None
    ranks = len(fabric.computes) * fabric.inside.gpus
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as model:
        model.write(MODEL)
        model.flush()
        keys = {
            "model": model.name,
            "layout": {"data": ranks},
            "data_parallel": {"algorithm": "hfreduce", "bucket": "4 MiB"},
            "compute": {"forward": 0.0005},
            "slice": CHUNK_BYTES,
            "ranks_per_process": fabric.inside.gpus,
        }
        config = checked(PlayedTrainingConfig, keys, "training")
        job = TrainingJob(session.stage, config, fabric.computes, level=ServiceLevel.NCCL, name="ddp")
    buckets = [one.size_bytes for one in job.graph.operations[0] if isinstance(one, CollectiveCall)]
    job.start()
    try:
        session.warm_up(job)
        before = lane_counters(session.live.emulation, "sent_bytes")
        outcome = session.run_phase("ddp", "ddp", [FiniteSteps(job, partial(job.run_steps, 1))], 0.0)
        after = lane_counters(session.live.emulation, "sent_bytes")
    finally:
        job.close()
    rows = outcome.records.rows("work_steps")
    return {
        "step_s": max(row["ended_s"] for row in rows) - min(row["started_s"] for row in rows),
        "computed_s": list_schedule(job.graph, lambda operations, ranks: 0.0).end_s,
        "buckets": buckets,
        "sent": _by_port(before, after, sum(buckets)),
        "unaccounted": outcome.conservation.unaccounted,
        "dropped": outcome.conservation.dropped_by_cause,
        "retransmissions": outcome.conservation.retransmissions,
    }


class _Once:
    """A started collective that plays one step in a phase."""

    def __init__(self, job: CollectiveJob) -> None:
        self.level, self.name, self._job, self._phase = job.level, job.name, job, ""

    def start(self) -> None:
        """Do nothing."""

    def play(self, phase: str) -> None:
        """Note the phase."""
        self._phase = phase

    def halt(self) -> Any:
        """Play."""
        return self._job.run_steps(1, self._phase)

    def close(self) -> None:
        """Do nothing."""


def _by_port(
    before: Mapping[tuple[Port, str], int], after: Mapping[tuple[Port, str], int], size_bytes: int = SIZE_BYTES
) -> dict[str, float]:
    """Return what each port sent, as a multiple of the size."""
    found: dict[str, float] = {}
    for (port, lane), value in after.items():
        grown = value - before[port, lane]
        found[str(port)] = found.get(str(port), 0) + grown / size_bytes
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(seen(sys.argv[2:])))
