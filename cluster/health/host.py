"""What a host says of its NICs and of its GPUs: carrier, rate and drops by netlink, errors by the kernel's log."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cluster.health.xids import GpuError, errors_in
from fabric.world.kernel_api.netlink import Netlink


@dataclass(frozen=True)
class NicState:
    """What the kernel says of an interface: whether it has carrier, its port's rate in bit/s (None: its queues do not
    say one), frames that came and went, and those that were dropped."""

    name: str
    carrier: bool
    rate_bps: int | None
    frames: int
    dropped: int


class Host(Protocol):
    """What can be read of a host."""

    def nics(self) -> tuple[NicState, ...]:
        """Return its NICs, by number."""

    def gpu_errors(self) -> tuple[GpuError, ...]:
        """Return all errors of GPUs that its kernel's log has, the oldest first."""

    def wrong_gpus(self) -> frozenset[int]:
        """Return the GPUs that compute wrong values, and do not know it, since the last repair."""

    @property
    def repaired_s(self) -> float:
        """When it was repaired last, by the clock of its log; negative: never."""

    @repaired_s.setter
    def repaired_s(self, at_s: float) -> None:
        """It is repaired; that outlives the agent."""


class KernelHost:
    """The host that this program is in. ``interfaces``: those of its NICs, by number; ``log``: its kernel's log, which
    need not be there. Beside it a file has when the host was repaired."""

    def __init__(self, interfaces: tuple[str, ...], log: Path) -> None:
        self._interfaces, self._log = interfaces, log
        self._repaired = log.with_name(f"{log.name}.repaired")
        self._netlink = Netlink()

    def nics(self) -> tuple[NicState, ...]:
        """Return its NICs, by number. Raises EmulationError if the kernel does not answer."""
        counters = self._netlink.link_counters()
        found = []
        for name in self._interfaces:
            one = counters[name]
            rate = self._netlink.htb_rate(socket.if_nametoindex(name))
            frames, dropped = one.rx_packets + one.tx_packets, one.rx_dropped + one.tx_dropped
            found.append(NicState(name, one.carrier, None if rate is None else 8 * rate, frames, dropped))
        return tuple(found)

    def gpu_errors(self) -> tuple[GpuError, ...]:
        """Return all errors of GPUs that its kernel's log has."""
        try:
            return tuple(errors_in(self._log.read_text()))
        except FileNotFoundError:
            return ()

    def wrong_gpus(self) -> frozenset[int]:
        """Return the GPUs that compute wrong values since the last repair."""
        return wrong_gpus(self._log, self.repaired_s)

    @property
    def repaired_s(self) -> float:
        """When it was repaired last."""
        try:
            return float(self._repaired.read_text())
        except FileNotFoundError:
            return -1.0

    @repaired_s.setter
    def repaired_s(self, at_s: float) -> None:
        """Write it down."""
        self._repaired.write_text(f"{at_s:.6f}")

    def close(self) -> None:
        """Close what it reads by."""
        self._netlink.close()


def _wrong_file(log: Path) -> Path:
    return log.with_name("wrong_gpus")


def make_wrong(log: Path, gpu: int) -> None:
    """Let a GPU compute wrong values from now on, beside a node's log: no log tells of it."""
    with _wrong_file(log).open("a") as file:
        file.write(f"{time.monotonic():.6f} {gpu}\n")


def wrong_gpus(log: Path, since_s: float) -> frozenset[int]:
    """Return the GPUs of a node that began to compute wrong values after a time."""
    try:
        lines = [line.split() for line in _wrong_file(log).read_text().splitlines()]
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(gpu) for at_s, gpu in lines if float(at_s) >= since_s)
