"""Samples of every port and lane, and of what may make the emulation unfaithful, taken by a process of its own.

The sampler reads the kernel's counters by netlink, without starting a program. It keeps to an absolute timetable.
Its own wake-up delay is recorded: it runs at the switches' priority, so the switches may have been delayed by as much.
In addition, one process per core records the delay at the priority of the hosts' programs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fabric.emulation.openvswitch import InputQueues
from fabric.errors import DeadlockError, EmulationError
from fabric.measure.lateness import HostLateness
from fabric.measure.live_file import LiveNames, LiveWriter
from fabric.measure.machine import MachineReader, clock_offset_s
from fabric.queueing.counters import COUNTERS, QueueReader, QueueSample
from fabric.queueing.vl_samples import WAITS, VlSample
from fabric.stalls.deadlock_watch import Watchdog
from fabric.stalls.waits import LaneNames, ObservedPort
from fabric.tables import TABLES
from fabric.world.datapath import SWITCH_NICENESS
from fabric.world.isolation.priority import leave_session
from fabric.world.kernel_api.netlink import Netlink
from fabric.world.programs.agents import Agent, AgentHandle, AgentPool
from fabric.world.programs.guest_calls import orders_arrived_at

_ANSWER_TIMEOUT_S = 30.0
_CORES_PERIOD_S = 0.25
"""Period of the readings of each core's time, which has a resolution of 10 ms and is judged by seconds."""
MACHINE = np.dtype(
    [
        ("at", "f8"),
        ("lateness", "f8"),
        ("cpu_busy", "f8"),
        ("switch_cpu", "f8"),
        ("host_lateness", "f8"),
        ("input_queue", "i8"),
        ("softnet_drops", "i8"),
        ("softnet_backlog", "i8"),
        ("softnet_squeezed", "i8"),
        ("clock_offset", "f8"),
        ("stolen", "f8"),
    ]
)
"""A sample of the machine: ``time.monotonic()``, lateness of switches in seconds, busy seconds of all cores and of
ovs-vswitchd since boot, the worst lateness of hosts since the last sample in seconds, memory in bytes of the frames
that wait to be switched, and of the kernel's input queues (softnet) of all cores: frames dropped since boot, frames
that wait (-1: not reported by this kernel), and how often work was deferred since boot. ``clock_offset``: seconds by
which the date (CLOCK_REALTIME) is ahead of ``time.monotonic()``. ``stolen``: seconds that a hypervisor has
taken from all cores since boot."""
CORES = np.dtype([("busy", "f8"), ("niced", "f8"), ("switch", "f8")])
"""A core's seconds so far: busy, in niced programs, and in ovs-vswitchd as far as that was seen on it."""
_WORST = ("lateness", "host_lateness", "softnet_backlog", "clock_offset")
_COUNTED = ("softnet_drops", "softnet_squeezed")
"""Of machines that are guests of one run: of which samples the worst counts, and which are counters, whose sum does."""
_TOGETHER_S = 1e-4
"""How long before they begin or end samplers of several guests are told so, at least."""

STALLS = np.dtype([(name, "i8") for name in TABLES["stalls"].sampled])
"""The counters of lossless lanes in addition to COUNTERS, see :class:`fabric.queueing.vl.LaneStats`."""
SAMPLED_WAITS = np.dtype([("at", "f8"), ("namespace", "i4"), *((name, WAITS[name]) for name in WAITS.names or ())])
"""Waits of all samples: ``time.monotonic()``, number of the namespace, and the fields of WAITS."""

QueueKey = tuple[int, int, int]
"""A lane's queue: number of its namespace, interface index, lane number."""


@dataclass(frozen=True)
class SamplerSetup:
    """What to sample: the namespaces of the ports (None: the run's own), ovs-vswitchd's process, and how often.

    ``has_input_queues``: whether that process receives the packets, as the userspace datapath does.
    """

    namespaces: tuple[Path | None, ...]
    switch_pid: int
    has_input_queues: bool
    period_s: float
    watched: Mapping[int, ObservedPort] = field(default_factory=dict)
    longest_stall_s: float = 1.0
    """Arguments of the deadlock watchdog, for the first namespace: that of the switches."""
    live_file: Path | None = None
    live_is_synced: bool = False
    keeps: bool = True
    """Where samples are written as they are taken, for whoever watches the run, and how; None: nobody does.
    ``keeps``: whether the end of a series returns all of its samples; else only the last."""
    first_number: int = 0
    """The number of the first namespace, among those of all samplers of a run that several guests play."""
    place: Path | None = None
    """What stands for the guest in which this sampler is; None: the first."""


@dataclass(frozen=True)
class Series:
    """The samples between begin and end: counters of each queue (samples x keys) and of the machine (samples).

    ``stalls`` (STALLS, samples x keys) is None if queues are not lossless; ``waits`` has the dtype SAMPLED_WAITS.
    ``read_at`` (samples x (namespaces + 1), ``time.monotonic()``): the queues of a namespace were read between the time
    at its number and the next. ``cores`` (CORES, readings x cores) has a row for each of ``cores_at``.
    """

    keys: list[QueueKey]
    counters: npt.NDArray[np.void]
    machine: npt.NDArray[np.void]
    stalls: npt.NDArray[np.void] | None = None
    waits: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, SAMPLED_WAITS))
    read_at: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 1)))
    cores_at: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    core_numbers: tuple[int, ...] = ()
    cores: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros((0, 0), CORES))


@dataclass(frozen=True)
class Deadlock:
    """Report of a deadlock, which names the ports that wait for each other."""

    text: str


@dataclass(frozen=True)
class BeginSeries:
    """The order to begin a series; ``live``: what to tell those who watch the run. ``together``: not at once, but when
    :class:`BeginAt` says, as other samplers do. That is short: it is not later than it says, however far they are."""

    names: LaneNames
    live: LiveNames | None = None
    together: bool = False


@dataclass(frozen=True)
class BeginAt:
    """When the first sample of a series is due (``time.monotonic()``)."""

    at_s: float


@dataclass(frozen=True)
class EndSeries:
    """The order to end a series with a sample at ``at_s``, or at once."""

    at_s: float | None = None


class Sampler:
    """The run's handle of the sampling processes: one, or one in each guest of the run."""

    _is_open = False

    def __init__(self, pool: AgentPool, *setups: SamplerSetup) -> None:
        self._agents = [pool.start("sampler", "this world", sample, setup, setup.place) for setup in setups]
        for agent in self._agents:
            agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def begin(self, names: LaneNames, live: LiveNames | None = None) -> None:
        """Begin a series; returns once its first sample is taken, so that even the shortest one has two.

        ``names`` are those of lossless lanes, for the report of a deadlock; ``live``: for those who watch the run.
        """
        self._order(BeginSeries(names, live, self._are_several))
        self._is_open = True
        if self._are_several:
            for agent in self._agents:
                agent.receive(_ANSWER_TIMEOUT_S, "report that it is to begin")
            self._order(BeginAt(orders_arrived_at(_TOGETHER_S)))
        for agent in self._agents:
            agent.receive(_ANSWER_TIMEOUT_S, "report that it has begun")

    def end(self) -> Series:
        """End the series and return it. Raises DeadlockError naming the ports if there was a deadlock in it, also one
        that was reported while it ended."""
        series, deadlocks = self._ended()
        if deadlocks:
            raise DeadlockError(deadlocks[0].text)
        return joined(series)

    def abandon(self) -> None:
        """End the series, if one is open, and forget it with its deadlocks."""
        if self._is_open:
            self._ended()

    def _ended(self) -> tuple[list[Series], list[Deadlock]]:
        self._order(EndSeries(orders_arrived_at(_TOGETHER_S) if self._are_several else None))
        deadlocks: list[Deadlock] = []
        series = [_series_of(agent, deadlocks) for agent in self._agents]
        self._is_open = False
        return series, deadlocks

    def verify_no_deadlock(self) -> None:
        """Raise DeadlockError naming the ports if there is a deadlock in the series so far."""
        for agent in self._agents:
            if agent.pipe.poll():
                raise DeadlockError(agent.receive_a(Deadlock, _ANSWER_TIMEOUT_S, "report of a deadlock").text)

    def verify_no_deadlock_until(self, done: Connection) -> None:
        """Return once ``done`` can be read. Raises DeadlockError as soon as there is a deadlock before that."""
        while done not in wait([done, *(agent.pipe for agent in self._agents)]):
            self.verify_no_deadlock()

    @property
    def _are_several(self) -> bool:
        """Whether samplers have to agree on when they begin and end."""
        return len(self._agents) > 1

    def _order(self, order: BeginSeries | BeginAt | EndSeries) -> None:
        for agent in self._agents:
            agent.send(order)


def _series_of(agent: AgentHandle, deadlocks: list[Deadlock]) -> Series:
    """Return a sampler's series, and add the deadlocks that it reports before."""
    while isinstance(found := agent.receive(_ANSWER_TIMEOUT_S, "series of samples"), Deadlock):
        deadlocks.append(found)
    assert isinstance(found, Series)
    return found


def joined(parts: Sequence[Series]) -> Series:
    """Return the samples that several samplers took at the same times as those of one.

    Of machines, which are guests on one, the worst counts, and the sum of what they count. Raises EmulationError if
    samplers took more than others.
    """
    if len(parts) == 1:
        return parts[0]
    taken = {len(part.counters) for part in parts}
    if len(taken) > 1:
        raise EmulationError(f"the samplers of the run's guests took {sorted(taken)} samples, not equally many")
    machine = parts[0].machine.copy()
    for name in _WORST:
        machine[name] = np.max([part.machine[name] for part in parts], axis=0)
    for name in _COUNTED:
        machine[name] = np.sum([part.machine[name] for part in parts], axis=0)
    stalls = [part.stalls for part in parts if part.stalls is not None]
    return replace(
        parts[0],
        keys=[key for part in parts for key in part.keys],
        counters=np.concatenate([part.counters for part in parts], axis=1),
        machine=machine,
        stalls=np.concatenate(stalls, axis=1) if stalls else None,
        waits=np.concatenate([part.waits for part in parts]),
        read_at=np.concatenate([part.read_at for part in parts], axis=1),
    )


def sample(agent: Agent, setup: SamplerSetup) -> None:
    """The sampling process (a program of :mod:`fabric.world.programs.agents`): one series from each
    :class:`BeginSeries` to the next :class:`EndSeries`."""
    sources = [
        (number, Netlink(path), QueueReader()) for number, path in enumerate(setup.namespaces, setup.first_number)
    ]
    inputs = InputQueues(setup.switch_pid) if setup.has_input_queues else None
    reader = MachineReader(setup.switch_pid, counts_niced=os.getpriority(os.PRIO_PROCESS, 0) > 0)
    hosts = HostLateness(reader.cores)
    leave_session(SWITCH_NICENESS)
    writer = LiveWriter(setup.live_file, setup.live_is_synced) if setup.live_file else None
    agent.report("ready")
    try:
        while True:
            begin = agent.receive_a(BeginSeries)
            begin_s = _begin_together(agent) if begin.together else None
            watchdog = Watchdog(setup.watched, setup.longest_stall_s, begin.names)
            taken = _Taken(writer, begin.live, setup.keeps)
            samples = _MachineSamples(reader, hosts, inputs)
            agent.report(_series(agent, _Instruments(sources, samples, watchdog, taken), setup.period_s, begin_s))
    finally:
        hosts.close()


def _begin_together(agent: Agent) -> float:
    agent.report("told")
    return agent.receive_a(BeginAt, _ANSWER_TIMEOUT_S).at_s


class _MachineSamples:
    """The samples of the machine in one series."""

    def __init__(self, reader: MachineReader, hosts: HostLateness, inputs: InputQueues | None) -> None:
        self._reader = reader
        self._hosts = hosts
        self._inputs = inputs
        self._rows: list[tuple[float | int, ...]] = []
        self._cores_at: list[float] = []
        self._cores: list[list[tuple[float, float, float]]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, lateness_s: float, is_last: bool) -> float:
        """Take a sample and return its time; the first and last of a series also read each core's time."""
        at = time.monotonic()
        times = self._reader.core_times()
        switch_s = self._reader.switch_seconds()
        waiting = self._inputs.waiting_bytes() if self._inputs else 0
        softnet = self._reader.softnet()
        busy_s = sum(core.busy_s for core in times)
        of_switches = (switch_s, self._hosts.worst_s(), waiting)
        of_softnet = (softnet.dropped, softnet.backlog, softnet.squeezed)
        stolen_s = sum(core.stolen_s for core in times)
        self._rows.append((at, lateness_s, busy_s, *of_switches, *of_softnet, clock_offset_s(), stolen_s))
        if is_last or not self._cores_at or at - self._cores_at[-1] >= _CORES_PERIOD_S:
            self._cores_at.append(at)
            on_core = self._reader.switch_s.values()
            self._cores.append([(core.busy_s, core.niced_s, used) for core, used in zip(times, on_core, strict=True)])
        return at

    def added_to(self, series: Series) -> Series:
        """Return a series with these samples in it."""
        return replace(
            series,
            machine=np.array(self._rows, MACHINE),
            cores_at=np.array(self._cores_at),
            core_numbers=self._reader.cores,
            cores=np.array(self._cores, CORES),
        )


class _Instruments(NamedTuple):
    """What takes the samples of a series: of each namespace's queues, by its number, and of the machine; what looks at
    them for deadlocks, and where they are kept."""

    sources: Sequence[tuple[int, Netlink, QueueReader]]
    machine: _MachineSamples
    watchdog: Watchdog
    taken: _Taken


def _series(agent: Agent, instruments: _Instruments, period_s: float, begin_s: float | None) -> Series:
    sources, machine, watchdog, taken = instruments
    # Samplers that begin and end together go by the times that they are told, to the last bit: their timetables agree.
    start = time.monotonic() if begin_s is None else begin_s
    if begin_s is not None:
        time.sleep(max(0.0, begin_s - time.monotonic()))
    end: EndSeries | None = None
    while True:
        due = start + len(machine) * period_s
        if end is None and len(machine) > 0:
            # Whoever has been told by then takes no sample after the last one that others take.
            told = _told_by(due, agent) or (begin_s is not None and agent.pipe.poll())
            end = agent.receive_a(EndSeries, _ANSWER_TIMEOUT_S) if told else None
        ended = end is not None and (end.at_s is None or end.at_s <= due)
        if end is not None and end.at_s is not None:
            time.sleep(max(0.0, min(due, end.at_s) - time.monotonic()))
        lateness_s = 0.0 if ended else time.monotonic() - due
        at = machine.take(lateness_s, is_last=ended)
        read_at = [time.monotonic()]
        dumps = []
        for _, link, _ in sources:
            dumps.append(link.dump_qdiscs())
            read_at.append(time.monotonic())
        found = [(number, reader.sample(dump)) for (number, _, reader), dump in zip(sources, dumps, strict=True)]
        taken.add(at, found, read_at)
        if len(machine) == 1:
            agent.report("begun")
        if found and (first := found[0][1].lossless) and (deadlock := watchdog.look(first, dumps[0])):
            agent.report(Deadlock(deadlock))
        if ended:
            return machine.added_to(taken.series())
        start += _skipped(start + len(machine) * period_s, period_s)


_POLL_SLACK = 0.006
"""By which part of its time a poll may end late: the kernel gives one 0.1 %, and 0.5 % to programs that are niced."""


def _told_by(due: float, agent: Agent) -> bool:
    """Return whether the run has sent an order by ``due``. Waiting for orders rounds up to whole milliseconds, and the
    kernel may end it a part of its time later; it would be late by as much every time, so the rest is slept."""
    whole_ms = int(max(0.0, due - time.monotonic()) * (1 - _POLL_SLACK) * 1e3)
    if agent.pipe.poll(max(0.0, whole_ms - 0.5) / 1e3):
        return True
    time.sleep(max(0.0, due - time.monotonic()))
    return False


class _Taken:
    """The samples of a series so far; a writer passes each on at once, if somebody watches."""

    def __init__(self, writer: LiveWriter | None, live: LiveNames | None, keeps: bool = True) -> None:
        self._writer = writer if live is not None else None
        self._live, self._keeps, self._is_first = live, keeps, True
        self._keys: list[QueueKey] = []
        self._counters: list[npt.NDArray[np.void]] = []
        self._stalls: list[npt.NDArray[np.void]] = []
        self._waits: list[npt.NDArray[np.void]] = []
        self._read_at: list[Sequence[float]] = []

    def add(self, at: float, found: Sequence[tuple[int, QueueSample]], read_at: Sequence[float]) -> None:
        """Take a sample of all namespaces. Raises EmulationError if queues are not what they were."""
        self._read_at.append(read_at)
        keys = [(number, index, lane) for number, sample in found for index, lane in sample.keys]
        if not self._counters:
            self._keys = keys
        if keys != self._keys:
            raise EmulationError("queues changed during a series of samples; end the series before set_lanes()")
        self._counters.append(_joined([sample.counters for _, sample in found], COUNTERS))
        lossless = [(number, sample.lossless) for number, sample in found if sample.lossless is not None]
        if lossless:
            self._stalls.append(_joined([_stalls_of(sample) for _, sample in lossless], STALLS))
            self._waits += [_waits_of(at, number, sample) for number, sample in lossless if len(sample.waits)]
        if self._writer is not None and self._live is not None:
            if self._is_first:
                self._writer.begin(self._live, keys, is_lossless=bool(lossless))
            self._writer.sample(at, self._counters[-1], self._stalls[-1] if lossless else None)
        self._is_first = False
        if not self._keeps:
            for samples in (self._counters, self._stalls, self._waits, self._read_at):
                del samples[:-1]

    def series(self) -> Series:
        """Return the series, without the samples of the machine."""
        stalls = np.stack(self._stalls) if self._stalls else None
        waits = _joined(self._waits, SAMPLED_WAITS)
        read_at = np.array(self._read_at)
        return Series(self._keys, np.stack(self._counters), np.zeros(0, MACHINE), stalls, waits, read_at)


def _joined(parts: Sequence[npt.NDArray[np.void]], kind: np.dtype[Any]) -> npt.NDArray[np.void]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def _stalls_of(sample: VlSample) -> npt.NDArray[np.void]:
    rows = np.zeros(len(sample.keys), STALLS)
    for name in STALLS.names or ():
        rows[name] = sample.lanes[name]
    return rows


def _waits_of(at: float, namespace: int, sample: VlSample) -> npt.NDArray[np.void]:
    rows = np.zeros(len(sample.waits), SAMPLED_WAITS)
    rows["at"], rows["namespace"] = at, namespace
    for name in WAITS.names or ():
        rows[name] = sample.waits[name]
    return rows


def _skipped(due: float, period_s: float) -> float:
    """Return by how much to move a timetable that cannot be kept: whole periods; 0 if it can be kept."""
    behind = time.monotonic() - due
    return 0.0 if behind < period_s else (behind // period_s) * period_s
