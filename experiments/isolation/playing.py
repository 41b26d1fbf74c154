"""What plays, and what each Service Level sends by the busiest port while all programs do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from experiments.isolation.cases import Alone, Mix
from experiments.isolation.config import IsolationConfig
from fabric.measure.level_counter import LevelCounter
from fabric.metrics import metric_path
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Port
from runs.job_metrics import sent_by_port
from runs.jobs import hfreduce_ranks, ordered_ranks
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.nccl import NcclJob
from traffic.flows.background import BackgroundJob
from traffic.job import Job, Records
from traffic.storage.job import StorageJob


class WatchedHFReduce(HFReduceJob):
    """HFReduce, which starts first and is halted first, and what a port sent meanwhile: ``levels_Bps``, in bytes per
    second of each service level, from its start until the order to halt; ``read``, if it is set, returns the bytes
    since the last reading. What others and HFReduce send after that belongs to a load that no longer plays."""

    read: Callable[[], Mapping[ServiceLevel, int]] | None = None
    levels_Bps: Mapping[ServiceLevel, float] = MappingProxyType({})  # noqa: N815 - bytes, not bits
    _began = 0.0

    def play(self, phase: str) -> None:
        """Start to count, and to play."""
        if self.read is not None:
            self.read()
        self._began = time.monotonic()
        super().play(phase)

    def halt(self) -> Records:
        """End the count, and the job."""
        if self.read is not None:
            counted, seconds = self.read(), time.monotonic() - self._began
            self.levels_Bps = {level: size / seconds for level, size in counted.items()}
        return super().halt()


def busiest_switch_port(ports: pd.DataFrame, fabric: Fabric) -> Port:
    """Return the port of a switch that sends the most, as a fraction of its link, summed over phases played alone."""
    by_name = {str(port): port for port, _ in fabric.directed_ports() if port.node.is_switch}
    totals = sent_by_port(ports[ports["port"].isin(by_name)])
    relative = {name: total / fabric.link_at[by_name[name]].rate_bps for name, total in totals.items()}
    return by_name[max(by_name, key=lambda name: relative.get(name, 0.0))]


def busiest_port(session: Session, config: IsolationConfig) -> Port:
    """Return that port of a run, once the phases played alone are over."""
    alone = {case.name for case in Alone.grid(config)}
    until_s = min((one.phase.started_s for one in session.phases if one.phase.name not in alone), default=math.inf)
    ports = session.table("ports")
    return busiest_switch_port(ports[ports["at_s"] < until_s], session.live.fabric)


def all_jobs(session: Session, config: IsolationConfig) -> tuple[Job, ...]:
    """Return the four kinds of traffic; collectives first, so that they are halted first."""
    stage, computes = session.stage, session.live.fabric.computes
    nccl = computes[: config.nccl_nodes]  # The first ones: of one zone as far as it goes.
    return (
        WatchedHFReduce(stage, config.hfreduce, hfreduce_ranks(session, config.hfreduce, config.rank_order)),
        NcclJob(stage, config.nccl, ordered_ranks(session, config.rank_order, nccl, config.nccl.flows(nccl))),
        StorageJob(stage, config.storage, computes),
        BackgroundJob(stage, config.background, computes),
    )


def play(session: Session, config: IsolationConfig, case: Alone | Mix, jobs: Sequence[Any]) -> dict[str, float]:
    """Play a case, and return what each service level got of the busiest port while all played."""
    session.use_queueing(case.queueing)
    if isinstance(case, Alone):
        session.run_phase(case.name, case.title, [job for job in jobs if job.level is case.level], config.alone_time)
        return {}
    first, port, emulation = jobs[0], busiest_port(session, config), session.live.emulation
    if first.read is None:
        counter = LevelCounter(session.pool, {port: emulation.namespace_of_port(port)}, emulation.lane_plan.levels)
        first.read = lambda: counter.read()[port]
    jobs[-1].load = case.load.fraction
    session.run_phase(case.name, case.title, jobs, config.together_time)
    link_Bps = session.live.fabric.link_at[port].rate_bps / 8  # noqa: N806 - bytes, not bits
    return {got(level): each / link_Bps for level, each in first.levels_Bps.items()}


def got(level: ServiceLevel) -> str:
    """Return the name of the share of the link that a service level got."""
    return metric_path("port", level.label)
