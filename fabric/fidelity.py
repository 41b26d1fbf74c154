"""After a run: can the emulation itself be believed?

Each check compares something measured with two limits: up to the first the run is ``faithful`` in this respect, beyond
the second ``invalid``, between them ``degraded``. The verdict is the worst of all checks, with a reason for each that
is not faithful.

What the limits rest on. Conservation: a packet that vanishes without a queue dropping it is a loss that the network
emulated does not have. Rates: 2 % of a link and 5 % of a share are what this project promises. CPU: Mininet-HiFi asks
for idle time in every second, since a core that is always busy delays packets by queueing that no model has. Lateness:
5 ms is three full frames at 20 Mbit/s; later timers blur what queues and round-trip times show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from fabric.calibration import LinkCalibration
from fabric.census import Conservation
from fabric.openvswitch import Datapath


class Status(str, Enum):
    """How far a run can be believed."""

    FAITHFUL = "faithful"
    DEGRADED = "degraded"
    INVALID = "invalid"


_ORDER = list(Status)
EXIT_CODE_INVALID = 3

RATE_ERROR = (0.02, 0.05)
SHARE_ERROR = (0.05, 0.10)
UNACCOUNTED = (0.0, 1e-4)
BUSY_CPU = (0.95, 0.99)
BUSY_SWITCH = (0.90, 0.97)
LATENESS_S = (0.005, 0.025)
_BUSY_QUANTILE = 0.9
"""A machine may be busy for moments; what counts is the second that is busier than nine of ten."""
_LATE_QUANTILE = 0.99
_WINDOW_S = 1.0


@dataclass(frozen=True)
class Check:
    """Something measured against two limits."""

    name: str
    value: float
    faithful_up_to: float
    invalid_beyond: float
    text: str

    @property
    def status(self) -> Status:
        """What this check says."""
        if self.value <= self.faithful_up_to:
            return Status.FAITHFUL
        return Status.INVALID if self.value > self.invalid_beyond else Status.DEGRADED


@dataclass(frozen=True)
class Verdict:
    """The worst of all checks."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """How far the run can be believed."""
        return max((check.status for check in self.checks), key=_ORDER.index, default=Status.FAITHFUL)

    @property
    def reasons(self) -> list[str]:
        """Why it is not faithful: the invalid checks first."""
        failed = [check for check in self.checks if check.status is not Status.FAITHFUL]
        failed.sort(key=lambda check: -_ORDER.index(check.status))
        return [f"{check.status.value}: {check.text}" for check in failed]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a manifest holds it."""
        checks = [
            {
                "name": check.name,
                "status": check.status.value,
                "value": check.value,
                "faithful_up_to": check.faithful_up_to,
                "invalid_beyond": None if math.isinf(check.invalid_beyond) else check.invalid_beyond,
                "text": check.text,
            }
            for check in self.checks
        ]
        return {"status": self.status.value, "reasons": self.reasons, "checks": checks}


def judge(
    calibrations: Sequence[LinkCalibration],
    conservations: Sequence[Conservation],
    machine: pd.DataFrame,
    datapath: Datapath,
    warnings: Iterable[str] = (),
) -> Verdict:
    """Return the verdict on a run from its calibrations, its conservation by phase, and its ``machine`` table."""
    checks = [*calibration_checks(calibrations), *conservation_checks(conservations)]
    checks += machine_checks(machine, datapath)
    checks += [Check("warning", 1, 0, 1, warning) for warning in warnings]
    return Verdict(tuple(checks))


def calibration_checks(calibrations: Sequence[LinkCalibration]) -> list[Check]:
    """Return whether links carry their rate and lanes get their shares: the worst of each."""
    if not calibrations:
        return []
    rate = max(calibrations, key=lambda one: abs(one.rate_error))
    share = max(calibrations, key=lambda one: one.worst_share_error)
    return [
        Check(
            "link_rate_error",
            abs(rate.rate_error),
            *RATE_ERROR,
            f"a lane alone gets {rate.lane_alone_bps / rate.rate_bps:.1%} of the link ({rate.kind}, port {rate.port})",
        ),
        Check(
            "lane_share_error",
            share.worst_share_error,
            *SHARE_ERROR,
            f"a full lane is {share.worst_share_error:.1%} of the link off its share ({share.kind}, port {share.port})",
        ),
    ]


def conservation_checks(conservations: Sequence[Conservation]) -> list[Check]:
    """Return whether every packet is accounted for."""
    lost = sum(one.unaccounted_packets for one in conservations)
    sent = sum(one.sent_packets for one in conservations)
    places = [f"{place} ({packets})" for one in conservations for place, packets in one.unaccounted.items()]
    shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    text = f"{lost} of {sent} packets are in no counter: {shown}" if lost else f"all {sent} packets are accounted for"
    return [Check("unaccounted_packets_fraction", lost / max(1, sent), *UNACCOUNTED, text)]


def machine_checks(machine: pd.DataFrame, datapath: Datapath) -> list[Check]:
    """Return whether the machine kept up, second by second."""
    if machine.empty:
        return [Check("machine_samples", 1, 0, 0, "no samples of the machine: nothing says whether it kept up")]
    seconds = machine.groupby((machine["at_s"] // _WINDOW_S).astype(int))
    busy = float(np.quantile(seconds["cpu_busy_fraction"].mean(), _BUSY_QUANTILE))
    late = float(np.quantile(machine["lateness_s"], _LATE_QUANTILE))
    drops = int(machine["softnet_drops"].iloc[-1] - machine["softnet_drops"].iloc[0])
    checks = [
        Check("cpu_busy_fraction", busy, *BUSY_CPU, f"all cores are {busy:.0%} busy in one second of ten"),
        Check("lateness_p99_s", late, *LATENESS_S, f"one wake-up of a hundred is {late * 1e3:.1f} ms late or more"),
        Check("softnet_drops", drops, 0, float("inf"), f"the kernel's input queues dropped {drops} frames"),
    ]
    if datapath is Datapath.USERSPACE:
        switch = float(np.quantile(seconds["switch_cpu_fraction"].mean(), _BUSY_QUANTILE))
        text = f"the one thread that switches all packets is {switch:.0%} busy in one second of ten"
        checks.append(Check("switch_cpu_fraction", switch, *BUSY_SWITCH, text))
    return checks
