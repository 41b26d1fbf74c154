"""After a run: can the emulation itself be believed?

Each check compares something measured with two limits: up to the first the run is ``faithful`` in this respect, beyond
the second ``invalid``, between them ``degraded``. The verdict is the worst of all checks, with a reason for each that
is not faithful.

What the limits rest on. Conservation: a packet that vanishes without a queue dropping it is a loss that the network
emulated does not have. Rates: 2 % of a link and 5 % of a share are what this project promises. CPU: Mininet-HiFi asks
for idle time in every second, since a core that is always busy delays packets by queueing that no model has.
Switching: frames wait for the one thread of the userspace datapath in a queue that no switch has; a switch that stores
and forwards delays a frame by the frame's own time on the wire, and so may this queue. It is measured by the memory
that frames take, two to three times their size (9,024 bytes for one of 4,214, 768 for an acknowledgement of 66): hence
3 frame times. Lateness: 5 ms is three full frames at 20 Mbit/s; later switches blur what queues and round-trip times
show. Hosts may be later: their programs wait for whole chunks of data, and send and receive buffers bridge the gap.
Memory: data that arrived and that a host's TCP dropped for want of memory is no loss in the network emulated, and
hosts of the system emulated do not share their memory.

In virtual time no core is ever busy for long, since time stands still while anything computes: how busy they were says
nothing there and is not checked. All else can go wrong there, too, memory above all: all hosts share the guest's.
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
SHORT_OF_MEMORY = (0.0, 10.0)
BUSY_CHECK = "cpu_busy_fraction"
BUSY_CPU = (0.95, 0.99)
SWITCHING_FRAME_TIMES = (3.0, 15.0)
LATENESS_S = (0.005, 0.025)
HOST_LATENESS_S = (0.05, 0.25)
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


@dataclass(frozen=True)
class PhaseEvidence:
    """What a phase left: what became of its packets, the ``machine`` rows of its time, and how long it was."""

    name: str
    conservation: Conservation
    machine: pd.DataFrame
    seconds: float

    @property
    def switching_delay_s(self) -> float:
        """Return how long a frame waited to be switched, on average: what waits over what passes (Little's law)."""
        if self.machine.empty or not self.conservation.switched_bytes:
            return 0.0
        return float(self.machine["input_queue_bytes"].mean()) * self.seconds / self.conservation.switched_bytes


def judge(
    calibrations: Sequence[LinkCalibration],
    phases: Sequence[PhaseEvidence],
    frame_time_s: float,
    warnings: Iterable[str] = (),
    is_virtual: bool = False,
) -> Verdict:
    """Return the verdict on a run. ``frame_time_s``: how long the largest frame takes on the slowest link."""
    checks = [*calibration_checks(calibrations), *conservation_checks([phase.conservation for phase in phases])]
    checks += switching_checks(phases, frame_time_s)
    checks += [*sample_checks(phases), *memory_checks([phase.conservation for phase in phases])]
    on_machine = machine_checks(pd.concat([phase.machine for phase in phases]) if phases else pd.DataFrame())
    checks += [check for check in on_machine if not (is_virtual and check.name == BUSY_CHECK)]
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
    cut = sum(one.lost_in_cuts_packets for one in conservations)
    text += f", {cut} of them went with the carrier of links that were cut" if cut else ""
    return [Check("unaccounted_packets_fraction", lost / max(1, sent), *UNACCOUNTED, text)]


def switching_checks(phases: Sequence[PhaseEvidence], frame_time_s: float) -> list[Check]:
    """Return whether switches took frames up as they came, in the phase in which they did worst."""
    if not phases:
        return []
    worst = max(phases, key=lambda phase: phase.switching_delay_s)
    delay = worst.switching_delay_s
    text = (
        f"in phase {worst.name} a frame waits up to {delay * 1e3:.1f} ms to be switched, on average; "
        f"the largest takes {frame_time_s * 1e3:.2g} ms on the wire"
    )
    return [Check("switching_frame_times", delay / frame_time_s, *SWITCHING_FRAME_TIMES, text)]


def sample_checks(phases: Sequence[PhaseEvidence]) -> list[Check]:
    """Return whether the machine was sampled in every phase."""
    missing = [phase.name for phase in phases if phase.machine.empty]
    if phases and not missing:
        return [Check("machine_samples", 0, 0, 0, "the machine was sampled in every phase")]
    where = f" in {len(missing)} of {len(phases)} phases ({missing[0]} first)" if missing else ""
    return [Check("machine_samples", 1, 0, 0, f"no samples of the machine{where}: nothing says whether it kept up")]


def memory_checks(conservations: Sequence[Conservation]) -> list[Check]:
    """Return whether TCP had the memory to keep what arrived and to keep windows open."""
    short = sum(one.tcp_short_of_memory for one in conservations)
    text = f"TCP was short of memory {short} times: it dropped what had arrived, or windows shrank; give the guest more"
    return [Check("tcp_short_of_memory", short, *SHORT_OF_MEMORY, text)]


def machine_checks(machine: pd.DataFrame) -> list[Check]:
    """Return whether the machine kept up, second by second; nothing without samples."""
    if machine.empty:
        return []
    seconds = machine.groupby((machine["at_s"] // _WINDOW_S).astype(int))
    busy = float(np.quantile(seconds["cpu_busy_fraction"].mean(), _BUSY_QUANTILE))
    late = float(np.quantile(machine["lateness_s"], _LATE_QUANTILE))
    host_late = float(np.quantile(machine["host_lateness_s"], _LATE_QUANTILE))
    drops = int(machine["softnet_drops"].iloc[-1] - machine["softnet_drops"].iloc[0])
    return [
        Check(BUSY_CHECK, busy, *BUSY_CPU, f"all cores are {busy:.0%} busy in one second of ten"),
        Check("lateness_p99_s", late, *LATENESS_S, f"one wake-up of a hundred is {late * 1e3:.1f} ms late or more"),
        Check(
            "host_lateness_p99_s",
            host_late,
            *HOST_LATENESS_S,
            f"programs wake {host_late * 1e3:.1f} ms late or more in one sample of a hundred",
        ),
        Check("softnet_drops", drops, 0, float("inf"), f"the kernel's input queues dropped {drops} frames"),
    ]
