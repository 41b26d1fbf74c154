"""What is measured of every phase, whatever plays in it: samples, a census of packets before and after, CPU time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.run.live import LiveFabric
from fabric.failures.injector import FaultReport
from fabric.measure.census import Census, Conservation, conservation, take_census
from fabric.measure.cores import CoreReader, CpuSnapshot, CpuUse, cpu_use, take_snapshot, usable_cores
from fabric.measure.live_file import LiveNames, LivePhase
from fabric.measure.port_rates import FullQueue, full_queues
from fabric.measure.sampling import Sampler, SamplerSetup, Series
from fabric.model.network import Port
from fabric.queueing.lossless import lane_names
from fabric.stalls.deadlock_watch import LONGEST_STALL_FRAMES, switch_ports
from fabric.world.agents import AgentPool
from fabric.world.datapath import Datapath
from fabric.world.engine import Spun
from fabric.world.engines import current_engine


@dataclass(frozen=True)
class TimeUse:
    """The CPU time that a phase used (None in virtual time, where nothing computes), and the time that passed because
    programs spun (None in real time)."""

    cpu: CpuUse | None = None
    spun: Spun | None = None


@dataclass(frozen=True)
class Measured:
    """The samples of a phase, from when to when they were taken (``time.monotonic()``), and what it used of time."""

    started: float
    ended: float
    series: Series
    used: TimeUse


class PhaseMeter:
    """Measures one phase after another: :meth:`begin`, :meth:`end`, then :meth:`count`."""

    def __init__(
        self, live: LiveFabric, pool: AgentPool, sample_period_s: float, live_file: Path | None = None
    ) -> None:
        self._live = live
        self._is_watched = live_file is not None
        self._sampler = Sampler(pool, _sampler_setup(live, sample_period_s, live_file))
        self._census: Census | None = None
        """Of a fabric at which nothing was changed since."""
        self._before: Census | None = None
        self._cpu_before: CpuSnapshot | None = None
        self._spun_before: Spun | None = None
        self._started = 0.0

    def forget_census(self) -> None:
        """Take a new census before the next phase: queues or rules were changed, or packets sent."""
        self._census = None

    def begin(self, phase: LivePhase) -> float:
        """Begin a phase, and return when (``time.monotonic()``); ``phase``: what those who watch the run are told."""
        self._before = self._census or self._take_census()
        self._cpu_before = self._take_cpu()
        current_engine().settle()
        self._sampler.begin(lane_names(self._live.emulation.lane_plan), self._live_names(phase))
        self._spun_before = current_engine().spun()
        self._started = time.monotonic()
        return self._started

    def verify_no_deadlock(self) -> None:
        """Raise DeadlockError if lossless ports wait for each other for ever."""
        self._sampler.verify_no_deadlock()

    def end(self) -> Measured:
        """End the samples of the phase. Raises DeadlockError if there was one."""
        self._sampler.verify_no_deadlock()
        ended = time.monotonic()
        spun_after = current_engine().spun()
        spun = spun_after.since(self._spun_before) if self._spun_before and spun_after else None
        series = self._sampler.end()
        cpu_after = self._take_cpu()
        cpu = cpu_use(self._cpu_before, cpu_after) if self._cpu_before and cpu_after else None
        return Measured(self._started, ended, series, TimeUse(cpu, spun))

    def abandon(self) -> None:
        """End the samples of a phase that a deadlock broke off, and forget them."""
        self._sampler.end()
        self.forget_census()

    def count(self, faults: FaultReport) -> Conservation:
        """Return what became of the packets of the phase that ended. Waits until the fabric is at rest."""
        assert self._before is not None, "begin() took it"
        self._census = self._take_census()
        return conservation(self._live.fabric, self._before, self._census, faults)

    def _take_census(self) -> Census:
        return take_census(self._live.emulation, self._live.rule_drops)

    @cached_property
    def _core_reader(self) -> CoreReader:
        return CoreReader(usable_cores(), counts_niced=os.getpriority(os.PRIO_PROCESS, 0) > 0)

    def _take_cpu(self) -> CpuSnapshot | None:
        if current_engine().is_exact:
            return None
        return take_snapshot(time.monotonic(), self._core_reader, self._live.emulation.switches.switch_pid)

    @cached_property
    def sampled_ports(self) -> dict[tuple[int, int], Port]:
        """The port at each interface of each namespace that is sampled, by their numbers."""
        numbers = {host: number for number, host in enumerate(self._live.fabric.hosts, start=1)}
        emulation = self._live.emulation
        return {
            (numbers[port.node.host] if emulation.namespace_of_port(port) else 0, index): port
            for port, index in emulation.indices.items()
        }

    def _live_names(self, phase: LivePhase) -> LiveNames | None:
        """Return what those who watch the run are told; None if nobody does."""
        if not self._is_watched:
            return None
        ports = {place: str(port) for place, port in self.sampled_ports.items()}
        lanes = {lane.number: lane.name for lane in self._live.emulation.lane_plan.lanes}
        return LiveNames(phase, ports, lanes)

    def full_queues(self, series: Series, faults: FaultReport) -> list[FullQueue]:
        """Return the full ports, except those of links that failures changed."""
        spared = frozenset(port for change in faults.changes for port in change.link.ports)
        return full_queues(series, self.sampled_ports, self._live.emulation.lane_plan, self._live.fabric, spared)


def _sampler_setup(live: LiveFabric, period_s: float, live_file: Path | None) -> SamplerSetup:
    emulation, fabric = live.emulation, live.fabric
    return SamplerSetup(
        # Namespace 0 is the world's own, with the switches' ports; then each host's, in the fabric's order.
        namespaces=(None, *(emulation.namespace_of(host) for host in fabric.hosts)),
        switch_pid=emulation.switches.switch_pid,
        has_input_queues=emulation.datapath is Datapath.USERSPACE,
        period_s=period_s,
        watched=switch_ports(fabric, emulation.indices),
        longest_stall_s=LONGEST_STALL_FRAMES * fabric.frame_time_s,
        live_file=live_file,
        live_is_synced=current_engine().has_own_kernel,  # A guest would keep it for itself for seconds.
    )
