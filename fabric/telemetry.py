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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.agents import Agent, AgentHandle, AgentPool
from fabric.errors import EmulationError
from fabric.lanes import LanePlan
from fabric.model import Port
from fabric.netlink import Netlink
from fabric.openvswitch import SWITCH_NICENESS, InputQueues
from fabric.queues import COUNTERS, QueueReader

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


@dataclass(frozen=True)
class Series:
    """What was sampled between begin and end: counters of each queue (samples x keys) and of the machine (samples)."""

    keys: list[QueueKey]
    counters: npt.NDArray[np.void]
    machine: npt.NDArray[np.void]


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
        """End the series and return it."""
        self._agent.send("end")
        series = self._agent.receive(_ANSWER_TIMEOUT_S, "series of samples")
        assert isinstance(series, Series)
        return series


def sample(agent: Agent, setup: SamplerSetup) -> None:
    """Be the sampling process: a series from each "begin" to the next "end"."""
    sources = [(number, Netlink(path), QueueReader()) for number, path in enumerate(setup.namespaces)]
    inputs = InputQueues(setup.switch_pid) if setup.has_input_queues else None
    hosts = HostLateness()
    os.setpriority(os.PRIO_PROCESS, 0, SWITCH_NICENESS)
    agent.report("ready")
    try:
        while True:
            assert agent.receive() == "begin"
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
    keys: list[QueueKey] = []
    rows: list[npt.NDArray[np.void]] = []
    machine = []
    start = time.monotonic()
    while True:
        due = start + len(rows) * setup.period_s
        ended = bool(rows) and agent.pipe.poll(max(0.0, due - time.monotonic()))
        lateness_s = 0.0 if ended else time.monotonic() - due
        machine.append((time.monotonic(), lateness_s, *sample_machine()))
        found, counters = _queue_sample(sources)
        if not rows:
            keys = found
        if found != keys:
            raise EmulationError("queues changed during a series of samples; end the series before set_lanes()")
        rows.append(counters)
        if len(rows) == 1:
            agent.report("begun")
        if ended:
            agent.receive(_ANSWER_TIMEOUT_S)
            return Series(keys, np.stack(rows), np.array(machine, MACHINE))
        start += _skipped(start + len(rows) * setup.period_s, setup.period_s)


def _skipped(due: float, period_s: float) -> float:
    """Return by how much to move the timetable when it cannot be caught up with: whole periods, 0 if it can."""
    behind = time.monotonic() - due
    return 0.0 if behind < period_s else (behind // period_s) * period_s


def _queue_sample(
    sources: Sequence[tuple[int, Netlink, QueueReader]],
) -> tuple[list[QueueKey], npt.NDArray[np.void]]:
    keys: list[QueueKey] = []
    parts = []
    for number, link, reader in sources:
        found, counters = reader.read(link.dump_qdiscs())
        keys += [(number, index, lane) for index, lane in found]
        parts.append(counters)
    return keys, np.concatenate(parts) if parts else np.zeros(0, COUNTERS)


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
