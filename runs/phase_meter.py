"""What is measured of every phase, whatever plays in it: samples, a census of packets before and after, CPU time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fabric.failures.report import FaultReport
from fabric.measure.census import Census, conservation, take_census
from fabric.measure.cores import CoreReader, CpuSnapshot, CpuUse, cpu_use, take_snapshot, usable_cores
from fabric.measure.live_file import LiveNames, LivePhase
from fabric.measure.port_rates import FullQueue, full_queues
from fabric.measure.sampling import Sampler, SamplerSetup, Series
from fabric.model.network import Port
from fabric.queueing.lossless import lane_names
from fabric.records.conservation import Conservation
from fabric.stalls.deadlock_watch import LONGEST_STALL_FRAMES, switch_ports
from fabric.world.datapath import Datapath
from fabric.world.engine import Spun
from fabric.world.engines import current_engine
from fabric.world.isolation import netns
from fabric.world.programs import guest_calls
from fabric.world.programs.agents import AgentPool

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation
    from runs.live import LiveFabric

T = TypeVar("T")


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
        self._sampler = Sampler(pool, *_sampler_setups(live, sample_period_s, live_file))
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
        self._spun_before = _spun()
        self._started = time.monotonic()
        return self._started

    def verify_no_deadlock(self) -> None:
        """Raise DeadlockError if lossless ports wait for each other forever."""
        self._sampler.verify_no_deadlock()

    def unless_deadlocked(self, work: Callable[[], T]) -> T:
        """Return what ``work`` does. Raises DeadlockError at once if there is one: who waits for data that stands still
        would wait for as long as it may, and ``work`` is left to do so in its thread."""
        done, end = Pipe(duplex=False)
        outcome: Future[T] = Future()
        with done:
            threading.Thread(target=_do, args=(work, outcome, end), daemon=True).start()
            self._sampler.verify_no_deadlock_until(done)
        return outcome.result(0)

    def end(self) -> Measured:
        """End the samples of the phase. Raises DeadlockError if there was one."""
        self._sampler.verify_no_deadlock()
        ended = time.monotonic()
        spun_after = _spun()
        spun = spun_after.since(self._spun_before) if self._spun_before and spun_after else None
        series = self._sampler.end()
        cpu_after = self._take_cpu()
        cpu = cpu_use(self._cpu_before, cpu_after) if self._cpu_before and cpu_after else None
        return Measured(self._started, ended, series, TimeUse(cpu, spun))

    def abandon(self) -> None:
        """End the samples of a phase that a deadlock broke off, and forget them."""
        self._sampler.abandon()
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
        return _sampled_ports(self._live.emulation)

    def _live_names(self, phase: LivePhase) -> LiveNames | None:
        """Return what those who watch the run are told; None if nobody does."""
        return _live_names(self._live.emulation, self.sampled_ports, phase) if self._is_watched else None

    def full_queues(self, series: Series, faults: FaultReport) -> list[FullQueue]:
        """Return the full ports, except those of links that failures changed."""
        spared = frozenset(port for change in faults.link_changes for port in change.link.ports)
        return full_queues(series, self.sampled_ports, self._live.emulation.lane_plan, self._live.fabric, spared)


@contextmanager
def sampled_to_file(live: LiveFabric, pool: AgentPool, period_s: float, file: Path, phase: LivePhase) -> Iterator[None]:
    """Write samples of a fabric that is up to a file as they are taken, for the time of a block; none is kept."""
    setups = [replace(one, keeps=False) for one in _sampler_setups(live, period_s, file)]
    sampler = Sampler(pool, *setups)
    names = _live_names(live.emulation, _sampled_ports(live.emulation), phase)
    sampler.begin(lane_names(live.emulation.lane_plan), names)
    try:
        yield
    finally:
        sampler.abandon()


def _sampled_ports(emulation: Emulation) -> dict[tuple[int, int], Port]:
    numbers = {
        namespace: number
        for first, namespaces in _numbered(emulation)
        for number, namespace in enumerate(namespaces, first)
    }
    return {(numbers[emulation.namespace_of_port(port)], index): port for port, index in emulation.indices.items()}


def _live_names(emulation: Emulation, sampled: Mapping[tuple[int, int], Port], phase: LivePhase) -> LiveNames:
    ports = {place: str(port) for place, port in sampled.items()}
    return LiveNames(phase, ports, {lane.number: lane.name for lane in emulation.lane_plan.lanes})


def _do(work: Callable[[], T], outcome: Future[T], end: Connection) -> None:
    with end:  # Whoever waits sees it closed.
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)


def _spun() -> Spun | None:
    """Return what passed of time in all guests of the run because programs spun; None in real time."""
    found = [one for one in guest_calls.everywhere(_spun_here) if one is not None]
    return Spun(sum(one.seconds for one in found), max(found, key=lambda one: one.seconds).program) if found else None


def _spun_here() -> Spun | None:
    return current_engine().spun()


def _numbered(emulation: Emulation) -> Iterator[tuple[int, tuple[Path | None, ...]]]:
    """Yield, for each guest of the run, its namespaces and the number of the first.

    It is the guest's own, with the switches' ports; then come those of its hosts, in the fabric's order. There is a
    number between guests, for the time when the last namespace of one had been read.
    """
    first = 0
    for guest in range(emulation.guests):
        namespaces = (emulation.namespace_of_guest(guest), *map(emulation.namespace_of, emulation.hosts_of(guest)))
        yield first, namespaces
        first += len(namespaces) + 1


def _sampler_setups(live: LiveFabric, period_s: float, live_file: Path | None) -> list[SamplerSetup]:
    emulation, fabric = live.emulation, live.fabric
    return [
        SamplerSetup(
            namespaces=tuple(map(netns.as_seen_there, namespaces)),
            switch_pid=switch_pid,
            has_input_queues=emulation.datapath is Datapath.USERSPACE,
            period_s=period_s,
            watched=switch_ports(fabric, emulation.indices),
            longest_stall_s=LONGEST_STALL_FRAMES * fabric.frame_time_s,
            live_file=live_file,
            live_is_synced=current_engine().has_own_kernel,  # A guest would keep it for itself for seconds.
            first_number=first,
            place=namespaces[0],
        )
        for (first, namespaces), switch_pid in zip(_numbered(emulation), emulation.switch_pids, strict=True)
    ]
