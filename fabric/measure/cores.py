"""The load of the machine's cores: how busy each is, the share of the run's programs and switches, and CPU quotas.

Only the cores that this process may run on count: the other cores of a large machine that hosts a container do not
matter. Time of niced programs is counted separately: those of others give way to ours at once, so that a core that they
fill is as good as idle. (If the run itself was started niced, so are its own programs, and theirs is busy time.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.isolation.places import CGROUPS

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL = 0, 1, 2, 5, 6, 7
_LARGEST_BYTES = 1 << 20


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class CoreTime:
    """Seconds since boot: not idle but for niced programs, in programs niced, and of the busy ones in softirqs, and
    those that a hypervisor took from the core."""

    busy_s: float
    niced_s: float
    softirq_s: float
    stolen_s: float = 0.0


class CoreReader:
    """Reads how long each core was busy. ``counts_niced``: the run is niced itself, and its time no stranger's."""

    def __init__(self, cores: Iterable[int], counts_niced: bool) -> None:
        self.cores = tuple(cores)
        self._counts_niced = counts_niced
        self._file = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> list[CoreTime]:
        """Return the times of each core, in order. Raises EmulationError if a core has gone."""
        return list(core_times(os.pread(self._file, _LARGEST_BYTES, 0), self.cores, self._counts_niced))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def core_times(stat: bytes, cores: Iterable[int], counts_niced: bool) -> Iterable[CoreTime]:
    """Yield the times of each of ``cores`` out of what /proc/stat says; time a hypervisor took counts as busy."""
    lines = dict(line.split(b" ", 1) for line in stat[: stat.find(b"intr")].splitlines())
    for core in cores:
        line = lines.get(b"cpu%d" % core)
        if line is None:
            raise EmulationError(
                f"core {core}: is no longer in /proc/stat; keep the machine's cores online during a run"
            )
        times = [int(ticks) / _TICKS_PER_S for ticks in line.split()]
        busy_s = sum(times[place] for place in (_USER, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL))
        ours_s, niced_s = (times[_NICE], 0.0) if counts_niced else (0.0, times[_NICE])
        yield CoreTime(busy_s + ours_s, niced_s, times[_SOFTIRQ], times[_STEAL])


@dataclass(frozen=True)
class ProcessTime:
    """CPU seconds of processes, in programs' own code and in the kernel on their behalf."""

    user_s: float = 0.0
    kernel_s: float = 0.0

    def __add__(self, other: ProcessTime) -> ProcessTime:
        return ProcessTime(self.user_s + other.user_s, self.kernel_s + other.kernel_s)

    def __sub__(self, other: ProcessTime) -> ProcessTime:
        return ProcessTime(self.user_s - other.user_s, self.kernel_s - other.kernel_s)


def process_time(stat: str, with_children: bool = False) -> ProcessTime:
    """Return the times in a process's stat file; ``with_children``: and those of children that ended."""
    values = [int(value) / _TICKS_PER_S for value in stat.rpartition(")")[2].split()[11:15]]
    own = ProcessTime(values[0], values[1])
    return own + ProcessTime(values[2], values[3]) if with_children else own


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds of a stretch of time: of the run's programs (the controller and what measures included) and of its
    switches, each in their own code and in the kernel; of all else on these cores; what a hypervisor took from them
    (stolen); and what the cores did not use.

    ``softirq_s`` is a part of the others: the kernel's work on packets, charged to whoever it interrupted.
    ``throttled_s`` is core time for which a quota of the control group kept programs from running.
    """

    programs_s: float
    programs_kernel_s: float
    switches_s: float
    switches_kernel_s: float
    others_s: float
    stolen_s: float
    niced_s: float
    idle_s: float
    softirq_s: float
    throttled_s: float
    cores: int

    @property
    def total_s(self) -> float:
        """What the cores had."""
        return self.used_s + self.niced_s + self.idle_s

    @property
    def used_s(self) -> float:
        """What was used or stolen, but for niced programs."""
        ours_s = self.programs_s + self.programs_kernel_s + self.switches_s + self.switches_kernel_s
        return ours_s + self.others_s + self.stolen_s

    def as_json(self) -> dict[str, float]:
        """Return it as a manifest holds it."""
        values = {one.name: round(getattr(self, one.name), 3) for one in fields(self)}
        return values | {"idle_fraction": round(self.idle_s / self.total_s, 4) if self.total_s else 0.0}


@dataclass(frozen=True)
class CpuSnapshot:
    """What :func:`cpu_use` takes the difference of. ``at_s`` is ``time.monotonic()``."""

    at_s: float
    cores: tuple[CoreTime, ...]
    all_processes: ProcessTime
    switches: ProcessTime
    throttled_s: float


def take_snapshot(at_s: float, reader: CoreReader, switch_pid: int) -> CpuSnapshot:
    """Return what the cores and the processes of this world have used so far."""
    stats = _stats()
    switches = process_time(stats[switch_pid]) if switch_pid in stats else ProcessTime()
    return CpuSnapshot(at_s, tuple(reader.read()), _all_together(stats), switches, throttled_s())


def world_time() -> ProcessTime:
    """Return what the processes of this world have used so far."""
    return _all_together(_stats())


def _all_together(stats: Mapping[int, str]) -> ProcessTime:
    return sum((process_time(text, with_children=True) for text in stats.values()), ProcessTime())


def _stats() -> dict[int, str]:
    """Return the stat file of every process of this world, by its id."""
    return {int(path.name): text for path in Path("/proc").glob("[0-9]*") if (text := _stat_of(path))}


def cpu_use(before: CpuSnapshot, after: CpuSnapshot) -> CpuUse:
    """Return what was used between two snapshots. Times of processes come in ticks of 10 ms: what is too little to tell
    may round to a little less than nothing, and counts as nothing."""
    switches = after.switches - before.switches
    programs = after.all_processes - before.all_processes - switches
    busy_s, niced_s, softirq_s, stolen_s = (
        sum(getattr(new, name) - getattr(old, name) for old, new in zip(before.cores, after.cores, strict=True))
        for name in ("busy_s", "niced_s", "softirq_s", "stolen_s")
    )
    ours_s = programs.user_s + programs.kernel_s + switches.user_s + switches.kernel_s
    return CpuUse(
        programs_s=programs.user_s,
        programs_kernel_s=programs.kernel_s,
        switches_s=switches.user_s,
        switches_kernel_s=switches.kernel_s,
        others_s=max(0.0, busy_s - stolen_s - ours_s),
        stolen_s=stolen_s,
        niced_s=niced_s,
        idle_s=max(0.0, (after.at_s - before.at_s) * len(after.cores) - busy_s - niced_s),
        softirq_s=softirq_s,
        throttled_s=after.throttled_s - before.throttled_s,
        cores=len(after.cores),
    )


def _stat_of(process: Path) -> str:
    try:
        return (process / "stat").read_text()
    except OSError:
        return ""  # It has ended since it was listed.


# Quotas of control groups ---------------------------------------------------------------------------------------------

_UNITS = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Of version 2 and 1."""


def throttled_s(root: Path = CGROUPS, membership: str | None = None) -> float:
    """Return the core seconds for which quotas kept programs of this process's control groups from running; 0 if there
    is not a quota. The most of any group from its own up to the root counts, for each has those below it."""
    text = Path("/proc/self/cgroup").read_text() if membership is None else membership
    return max((_throttled_in(path) for path in _groups(root, text)), default=0.0)


def _groups(root: Path, membership: str) -> Iterable[Path]:
    """Yield the directories that may hold this process's quota: its groups and what they are in."""
    for line in membership.splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for top in _mounts(root, controllers):
            group = top / name.lstrip("/")
            yield from (path for path in (group, *group.parents) if path.is_relative_to(top))


def _mounts(root: Path, controllers: str) -> Iterable[Path]:
    """Return where a hierarchy may be mounted: version 2 at the root or beside version 1, that by its controllers."""
    return (root, root / "unified") if not controllers else (root / "cpu", root / controllers)


def _throttled_in(group: Path) -> float:
    try:
        lines = (group / "cpu.stat").read_text().splitlines()
    except OSError:
        return 0.0  # No such group here: of a hierarchy that is not mounted, or beside a container's own root.
    values: Mapping[str, str] = dict(line.split() for line in lines)
    return sum(int(values[name]) * unit for name, unit in _UNITS.items() if name in values)
