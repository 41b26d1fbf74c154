"""The rates that this machine was measured to carry, cached until the machine changes."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from fabric.errors import ResultError
from fabric.world import cache
from fabric.world.datapath import find_datapath

_FILE = "carried_rates.json"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Machine:
    """What decides how much a machine carries."""

    kernel: str
    cpu: str
    cores: int
    datapath: str

    def __str__(self) -> str:
        return f"{self.cores} cores of {self.cpu}, kernel {self.kernel}, {self.datapath} switching"


@dataclass(frozen=True)
class CarriedRate:
    """The rate of NICs that a machine carries on a topology of a shape, and when that was measured."""

    shape: str
    machine: Machine
    nic_rate_bps: int
    measured_at: str


def this_machine() -> Machine:
    """Return the machine that this runs on; ``cores`` are those that this process may use."""
    return Machine(platform.release(), _cpu(), len(os.sched_getaffinity(0)), find_datapath().value)


def _cpu() -> str:
    fields = [line.partition(":") for line in _CPUINFO.read_text().splitlines()]
    names = [value.strip() for key, _, value in fields if key.strip() == "model name"]
    return names[0] if names else platform.machine()


def keep(rate: CarriedRate) -> Path:
    """Keep a rate in place of what was measured before for its shape and machine; return the file."""
    others = [one for one in kept() if (one.shape, one.machine) != (rate.shape, rate.machine)]
    path = cache.own() / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps([asdict(one) for one in (*others, rate)], indent=1))
    partial.replace(path)
    return path


def kept() -> list[CarriedRate]:
    """Return all rates kept, of this machine and of what it was before. Raises ResultError for a broken file."""
    path = cache.own() / _FILE
    if not path.exists():
        return []
    try:
        return [CarriedRate(**{**row, "machine": Machine(**row["machine"])}) for row in json.loads(path.read_text())]
    except (ValueError, TypeError, KeyError) as error:
        raise ResultError(
            f"{path}: is not a file of fabric calibrate: {error}; remove it and calibrate again"
        ) from error


def carried_rate(shape: str, machine: Machine) -> CarriedRate | None:
    """Return what a machine was measured to carry on a topology of that shape; None if it was not."""
    return next((one for one in kept() if (one.shape, one.machine) == (shape, machine)), None)
