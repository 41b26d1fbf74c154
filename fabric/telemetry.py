"""Samples of every port and lane, of the machine, and of what may make the emulation unfaithful, taken by a process of
its own.

The sampler reads the kernel's counters by netlink, without starting a program. It keeps to an absolute timetable, and
how late it wakes is itself a measurement: it has the switches' priority, so that late, too, they may be. Beside it a
second process with the priority of the hosts' programs wakes every 10 ms and notes how late those may be.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.agents import Agent, AgentHandle, AgentPool
from fabric.errors import EmulationError
from fabric.lanes import LanePlan
from fabric.model import Port
from fabric.netlink import Netlink
from fabric.openvswitch import SWITCH_NICENESS, InputQueues
from fabric.queues import COUNTERS, QueueReader, QueueSample
from fabric.results import TABLES, empty_table
from fabric.vl_samples import WAITS, VlSample
from fabric.watchdog import SwitchPort, Watchdog

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1
_ANSWER_TIMEOUT_S = 30.0
_HOST_WAKE_S = 0.01
_LATENESS = struct.Struct("=d")
MACHINE = np.dtype(
    [
        ("at", "f8"),
        ("lateness", "f8"),
        ("cpu_busy", "f8"),
        ("switch_cpu", "f8"),
        ("host_lateness", "f8"),
        ("input_queue", "i8"),
        ("softnet_drops", "i8"),
    ]
)
"""A sample of the machine: ``time.monotonic()``, lateness of switches in seconds, busy seconds of all cores and of
ovs-vswitchd since boot, the worst lateness of hosts since the last sample in seconds, memory in bytes of the frames
that wait to be switched, frames that the kernel's input queues dropped since boot."""

STALLS = np.dtype([(name, "i8") for name in ("stalls", "stalled_ns", "buffered_bytes", "most_buffered_bytes")])
"""What lossless lanes tell beside COUNTERS, see :class:`fabric.vl.LaneStats`."""
SAMPLED_WAITS = np.dtype([("at", "f8"), ("namespace", "i4"), *((name, WAITS[name]) for name in WAITS.names or ())])
"""Waits of all samples: ``time.monotonic()``, number of the namespace, and the fields of WAITS."""

QueueKey = tuple[int, int, int]
"""A lane's queue: number of its namespace, interface index, lane number."""


@dataclass(frozen=True)
class SamplerSetup:
    """What to sample: the namespaces of the ports (None: the world's own), ovs-vswitchd's process, and how often.

    ``has_input_queues``: whether that process receives the packets, as the userspace datapath does.
    """

    namespaces: tuple[Path | None, ...]
    switch_pid: int
    has_input_queues: bool
    period_s: float
    watched: Mapping[int, SwitchPort] = field(default_factory=dict)
    longest_stall_s: float = 1.0
    """What the watchdog of the first namespace, the switches', is to know."""


@dataclass(frozen=True)
class Series:
    """What was sampled between begin and end: counters of each queue (samples x keys) and of the machine (samples).

    ``stalls`` (STALLS, samples x keys) is None where queues are not lossless; ``waits`` is as SAMPLED_WAITS says.
    """

    keys: list[QueueKey]
    counters: npt.NDArray[np.void]
    machine: npt.NDArray[np.void]
    stalls: npt.NDArray[np.void] | None = None
    waits: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, SAMPLED_WAITS))


@dataclass(frozen=True)
class Deadlock:
    """Word of a deadlock, which says which ports wait for each other."""

    text: str


class Sampler:
    """The run's end of the sampling process."""

    def __init__(self, pool: AgentPool, setup: SamplerSetup) -> None:
        self._agent: AgentHandle = pool.start("sampler", "this world", sample, setup, None)
        self._agent.receive(_ANSWER_TIMEOUT_S, "word that it is ready")

    def begin(self) -> None:
        """Begin a series; returns once its first sample is taken, so that even the shortest one has two."""
        self._agent.send("begin")
        self._agent.receive(_ANSWER_TIMEOUT_S, "word that it has begun")

    def end(self) -> Series:
        """End the series and return it. A deadlock in it is to be asked for before."""
        self._agent.send("end")
        series = self._agent.receive(_ANSWER_TIMEOUT_S, "series of samples")
        while isinstance(series, Deadlock):
            series = self._agent.receive(_ANSWER_TIMEOUT_S, "series of samples")
        assert isinstance(series, Series)
        return series

    def verify_no_deadlock(self) -> None:
        """Raise EmulationError naming the ports if there is a deadlock in the series so far."""
        if self._agent.pipe.poll():
            raise EmulationError(self._agent.receive_a(Deadlock, _ANSWER_TIMEOUT_S, "word of a deadlock").text)


def sample(agent: Agent, setup: SamplerSetup) -> None:
    """Be the sampling process: a series from each "begin" to the next "end"."""
    sources = [(number, Netlink(path), QueueReader()) for number, path in enumerate(setup.namespaces)]
    inputs = InputQueues(setup.switch_pid) if setup.has_input_queues else None
    hosts = HostLateness()
    os.setpriority(os.PRIO_PROCESS, 0, SWITCH_NICENESS)
    agent.report("ready")
    try:
        while True:
            agent.expect("begin")
            agent.report(_series(agent, setup, sources, lambda: _machine_sample(setup.switch_pid, hosts, inputs)))
    finally:
        hosts.close()


class HostLateness:
    """How late programs wake: a forked process that has their priority and does nothing but wake."""

    def __init__(self) -> None:
        self._worst = mmap.mmap(-1, mmap.PAGESIZE)
        self._pid = os.fork()
        if self._pid == 0:
            self._wake_for_ever()

    def _wake_for_ever(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            due = time.monotonic() + _HOST_WAKE_S
            time.sleep(_HOST_WAKE_S)
            late = time.monotonic() - due
            if late > _LATENESS.unpack_from(self._worst)[0]:
                _LATENESS.pack_into(self._worst, 0, late)
        os._exit(0)

    def worst_s(self) -> float:
        """Return the worst lateness since the last call."""
        worst: float = _LATENESS.unpack_from(self._worst)[0]
        _LATENESS.pack_into(self._worst, 0, 0.0)
        return worst

    def close(self) -> None:
        """End the process."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _series(
    agent: Agent,
    setup: SamplerSetup,
    sources: Sequence[tuple[int, Netlink, QueueReader]],
    sample_machine: Callable[[], tuple[float | int, ...]],
) -> Series:
    taken = _Taken()
    watchdog = Watchdog(setup.watched, setup.longest_stall_s)
    machine: list[tuple[float | int, ...]] = []
    start = time.monotonic()
    while True:
        due = start + len(machine) * setup.period_s
        ended = bool(machine) and agent.pipe.poll(max(0.0, due - time.monotonic()))
        lateness_s = 0.0 if ended else time.monotonic() - due
        machine.append((time.monotonic(), lateness_s, *sample_machine()))
        dumps = [link.dump_qdiscs() for _, link, _ in sources]
        found = [(number, reader.sample(dump)) for (number, _, reader), dump in zip(sources, dumps, strict=True)]
        taken.add(machine[-1][0], found)
        if len(machine) == 1:
            agent.report("begun")
        if found and (first := found[0][1].lossless) and (deadlock := watchdog.look(first, dumps[0])):
            agent.report(Deadlock(deadlock))
        if ended:
            agent.receive(_ANSWER_TIMEOUT_S)
            return taken.series(np.array(machine, MACHINE))
        start += _skipped(start + len(machine) * setup.period_s, setup.period_s)


class _Taken:
    """The samples of a series so far."""

    def __init__(self) -> None:
        self._keys: list[QueueKey] = []
        self._counters: list[npt.NDArray[np.void]] = []
        self._stalls: list[npt.NDArray[np.void]] = []
        self._waits: list[npt.NDArray[np.void]] = []

    def add(self, at: float, found: Sequence[tuple[int, QueueSample]]) -> None:
        """Take a sample of all namespaces. Raises EmulationError if queues are not what they were."""
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

    def series(self, machine: npt.NDArray[np.void]) -> Series:
        """Return all of it."""
        stalls = np.stack(self._stalls) if self._stalls else None
        return Series(self._keys, np.stack(self._counters), machine, stalls, _joined(self._waits, SAMPLED_WAITS))


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
    """Return by how much to move the timetable when it cannot be caught up with: whole periods, 0 if it can."""
    behind = time.monotonic() - due
    return 0.0 if behind < period_s else (behind // period_s) * period_s


def _machine_sample(switch_pid: int, hosts: HostLateness, inputs: InputQueues | None) -> tuple[float | int, ...]:
    waiting = inputs.waiting_bytes() if inputs else 0
    return busy_seconds(), process_seconds(switch_pid), hosts.worst_s(), waiting, softnet_drops()


def busy_seconds() -> float:
    """Return the seconds that all cores together were not idle since boot; time a hypervisor took counts as busy."""
    with open("/proc/stat") as file:  # noqa: PTH123 - read twenty times a second
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def process_seconds(pid: int) -> float:
    """Return the CPU seconds a process has used; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def softnet_drops() -> int:
    """Return the frames that the kernel's per-core input queues have dropped since boot."""
    with open("/proc/net/softnet_stat") as file:  # noqa: PTH123
        return sum(int(line.split()[1], 16) for line in file)


def ports_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``ports`` table; ``ports`` maps (namespace number, interface index) to a port."""
    names = {lane.number: lane.name for lane in plan.lanes}
    columns = [place for place, (number, index, _) in enumerate(series.keys) if (number, index) in ports]
    keys = [series.keys[place] for place in columns]
    counters = series.counters[:, columns]
    samples = len(counters)
    port_names = [str(ports[number, index]) for number, index, _ in keys]
    lane_names = [names[lane] for _, _, lane in keys]
    flat = counters.reshape(-1)
    return pd.DataFrame(
        {
            "at_s": np.repeat(series.machine["at"] - origin, len(keys)),
            "port": _tiled(port_names, samples),
            "lane": _tiled(lane_names, samples),
            "sent_bytes": flat["sent_bytes"].astype(np.int64),
            "sent_packets": flat["sent_packets"].astype(np.int64),
            "drops_packets": flat["drops"].astype(np.int64),
            "backlog_bytes": flat["backlog_bytes"].astype(np.int64),
        }
    )


def stalls_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series of lossless queues as rows of the ``stalls`` table; no rows for others."""
    if series.stalls is None:
        return empty_table("stalls")
    names = {lane.number: lane.name for lane in plan.lanes}
    columns = [place for place, (number, index, _) in enumerate(series.keys) if (number, index) in ports]
    keys = [series.keys[place] for place in columns]
    flat = series.stalls[:, columns].reshape(-1)
    samples = len(series.stalls)
    return pd.DataFrame(
        {
            "at_s": np.repeat(series.machine["at"] - origin, len(keys)),
            "port": _tiled([str(ports[number, index]) for number, index, _ in keys], samples),
            "lane": _tiled([names[lane] for _, _, lane in keys], samples),
            **{name: flat[name] for name in STALLS.names or ()},
        }
    )


def waits_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``waits`` table."""
    waits = series.waits
    port_names = {key: str(port) for key, port in ports.items()}
    lane_names = {lane.number: lane.name for lane in plan.lanes}
    found = pd.DataFrame(
        {
            "at_s": waits["at"] - origin,
            "port": [port_names.get(key) for key in _places(waits, "index")],
            "lane": [lane_names.get(lane) for lane in waits["lane"].tolist()],
            "input_port": [port_names.get(key) for key in _places(waits, "input_index")],
            "input_lane": [lane_names.get(lane) for lane in waits["input_lane"].tolist()],
            "waiting_bytes": waits["bytes"].astype(np.int64),
        }
    )
    return found.astype(TABLES["waits"])


def _places(waits: npt.NDArray[np.void], index: str) -> list[tuple[int, int]]:
    return list(zip(waits["namespace"].tolist(), waits[index].tolist(), strict=True))


def _tiled(names: Sequence[str], times: int) -> pd.Categorical:
    categories = sorted(set(names))
    places = {name: place for place, name in enumerate(categories)}
    codes = np.tile([places[name] for name in names], times)
    return pd.Categorical.from_codes(codes, categories=pd.Index(categories))  # type: ignore[arg-type]


def machine_frame(series: Series, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``machine`` table; its first sample has no sample before it and is left out."""
    machine = series.machine
    elapsed = np.diff(machine["at"])
    return pd.DataFrame(
        {
            "at_s": machine["at"][1:] - origin,
            "cpu_busy_fraction": np.diff(machine["cpu_busy"]) / elapsed / _CORES,
            "switch_cpu_fraction": np.diff(machine["switch_cpu"]) / elapsed,
            "lateness_s": machine["lateness"][1:],
            "host_lateness_s": machine["host_lateness"][1:],
            "input_queue_bytes": machine["input_queue"][1:],
            "softnet_drops": machine["softnet_drops"][1:],
        }
    )
