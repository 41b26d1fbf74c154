"""Do lanes keep training, storage and other traffic out of each other's way?

Phases on one fabric: HFReduce, NCCL, storage and other traffic each alone, in the first queueing of ``queueings``; then
all at once in each of them: one shared queue per port, lanes, and the same two without loss; each with other traffic at
a moderate load and, with ``heavy_load``, at a heavy one. The same jobs and seeds play in all phases, so phases differ
only in the other traffic and in the queues. Fire-Flyer 2 maps each kind to a Virtual Lane with a share (arXiv
2408.14158v2, VI-A1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd

from experiments.isolation.config import IsolationConfig
from experiments.isolation.summary import Shares, summarize
from fabric.failures.kinds.process import FailingPrograms, HasPrograms
from fabric.measure.level_counter import LevelCounter
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Port
from runs.job_metrics import sent_by_port
from runs.jobs import hfreduce_ranks, ordered_ranks, started
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.nccl import NcclJob
from traffic.flows.background import BackgroundJob
from traffic.job import Job, Records
from traffic.storage.job import StorageJob


def run_isolation(session: Session, config: IsolationConfig) -> dict[str, Any]:
    """Play all phases and return the summary."""
    with all_jobs(session, config) as jobs:
        session.use_queueing(config.queueings[0])
        for job in jobs.values():
            name = job.level.label
            session.run_phase(f"{name}_alone", f"{name} alone", [job], config.alone_time)
        port = busiest_switch_port(session.table("ports"), session.live.fabric)
        emulation = session.live.emulation
        counter = LevelCounter(session.pool, {port: emulation.namespace_of_port(port)}, emulation.lane_plan.levels)
        at_port: Shares = {}
        for mix in config.mixes:
            session.use_queueing(mix.queueing)
            jobs[ServiceLevel.OTHER].load = mix.other_load
            first, *others = jobs.values()
            watched = WatchedJob(first, lambda: counter.read()[port])
            session.run_phase(mix.phase, mix.title, [watched, *others], config.together_time)
            at_port[mix.phase] = watched.levels_Bps
        verification = jobs[ServiceLevel.STORAGE].verify_acknowledged()
    return summarize(session, config, port, at_port, verification)


class WatchedJob:
    """The job that begins first and is halted first, and what a port sent meanwhile: ``levels_Bps``, in bytes per
    second of each service level, from its begin until it was told to halt. ``read`` returns the bytes since the last
    reading, ``now`` the time. What others and the job itself send after that is of a load that no longer plays."""

    def __init__(
        self,
        job: Job,
        read: Callable[[], Mapping[ServiceLevel, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.level = job.name, job.level
        self.levels_Bps: dict[ServiceLevel, float] = {}
        self._job, self._read, self._now = job, read, now
        self._began = 0.0

    @property
    def failing_programs(self) -> Sequence[FailingPrograms]:
        """The job's programs, for failures."""
        return self._job.failing_programs if isinstance(self._job, HasPrograms) else ()

    def start(self) -> None:
        """Start the job."""
        self._job.start()

    def play(self, phase: str) -> None:
        """Begin to count, and to play."""
        self._read()
        self._began = self._now()
        self._job.play(phase)

    def halt(self) -> Records:
        """End the count, and the job."""
        counted, seconds = self._read(), self._now() - self._began
        self.levels_Bps = {level: size / seconds for level, size in counted.items()}
        return self._job.halt()

    def close(self) -> None:
        """Close the job."""
        self._job.close()


@contextmanager
def all_jobs(session: Session, config: IsolationConfig) -> Iterator[dict[ServiceLevel, Any]]:
    """Start the four kinds of traffic for the time of a block; collectives first, so that they are halted first."""
    stage, computes = session.stage, session.live.fabric.computes
    made: tuple[Job, ...] = (
        HFReduceJob(stage, config.hfreduce, hfreduce_ranks(session, config.hfreduce, config.rank_order)),
        NcclJob(stage, config.nccl, _nccl_ranks(session, config)),
        StorageJob(stage, config.storage, computes),
        BackgroundJob(stage, config.background, computes),
    )
    with started(session, made):
        yield {job.level: job for job in made}


def _nccl_ranks(session: Session, config: IsolationConfig) -> tuple[NodeId, ...]:
    """Return the first computes: one zone's as far as they go."""
    ranks = session.live.fabric.computes[: config.nccl_nodes]
    return ordered_ranks(session, config.rank_order, ranks, config.nccl.flows(ranks))


def busiest_switch_port(ports: pd.DataFrame, fabric: Fabric) -> Port:
    """Return the port of a switch that sends the most, as a fraction of its link, summed over phases played alone."""
    by_name = {str(port): port for port, _ in fabric.directed_ports() if port.node.is_switch}
    totals = sent_by_port(ports[ports["port"].isin(by_name)])
    relative = {name: total / fabric.link_at[by_name[name]].rate_bps for name, total in totals.items()}
    return by_name[max(relative, key=lambda name: relative[name])]
