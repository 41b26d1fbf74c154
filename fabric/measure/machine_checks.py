"""Whether the emulating machine kept up in a phase: its cores, its switches, its hosts' programs, its clock.

The reasons for the limits are in :mod:`fabric.measure.fidelity`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.measure.cores import CpuUse
from fabric.measure.verdict import Check
from fabric.records.conservation import Conservation
from fabric.world.datapath import Datapath
from fabric.world.engine import Engine, LatenessLimits, Spun

BUSY_CHECK = "cpu_busy_fraction"
BUSY_CPU = (0.95, 0.99)
THROTTLED = (0.01, 0.10)
SPUN = THROTTLED
SWITCHING_FRAME_TIMES = (3.0, 15.0)
INPUT_WAIT_FRAME_TIMES = (15.0, 75.0)
STALL_S = (0.2, 1.0)
CLOCK_STEP_S = 0.001
BUSY_QUANTILE = 0.9
"""A machine may be busy for moments; what counts is the second that is busier than nine of ten."""
LATE_QUANTILE = 0.99
_WINDOW_S = 1.0

Values = npt.NDArray[np.float64]


def quantile(values: Values, fraction: float) -> float:
    """Return a value that all but ``1 - fraction`` of ``values`` do not exceed; the largest of too few to tell one."""
    told = len(values) >= math.ceil(1 / (1 - fraction) - 1e-9)
    return float(np.quantile(values, fraction, method="higher") if told else values.max())


def machine_checks(machine: pd.DataFrame, frame_time_s: float, engine: Engine) -> list[Check]:
    """Return whether the machine kept up with a phase whose largest frame takes ``frame_time_s`` on the slowest link;
    nothing without samples."""
    if machine.empty:
        return []
    checks = [] if engine.is_exact else [_busy_check(machine)]
    return [
        *checks,
        _lateness_check(machine, frame_time_s, engine.lateness),
        _host_lateness_check(machine, frame_time_s, engine.lateness),
        *_stall_checks(machine),
        _clock_check(machine),
    ]


def _busy_check(machine: pd.DataFrame) -> Check:
    busy = quantile(_by_window(machine, "cpu_busy_fraction"), BUSY_QUANTILE)
    return Check(BUSY_CHECK, busy, *BUSY_CPU, f"all cores are {busy:.0%} busy in one second of ten")


def _by_window(frame: pd.DataFrame, column: str) -> Values:
    """Return the mean of a fraction in each second of a phase; less than half a second at its end joins the last.

    Rows count by the time since the one before: a sample that comes late is followed by a short one, and in a few
    milliseconds a core is busy for a whole tick or for none. The first is taken to be as long as most.
    """
    at_s, fraction = (frame[name].to_numpy(np.float64) for name in ("at_s", column))
    between_s = np.diff(at_s)
    length_s = np.concatenate([[np.median(between_s) if len(between_s) else 1.0], between_s])
    since_s = at_s - at_s[0]
    whole = max(1, math.floor(float(since_s[-1]) / _WINDOW_S + 0.5))
    window = np.minimum((since_s // _WINDOW_S).astype(int), whole - 1)
    seconds = np.bincount(window, length_s)
    sampled = seconds > 0  # A machine that stood still has whole seconds without a sample.
    means: Values = np.bincount(window, length_s * fraction)[sampled] / seconds[sampled]
    return means.clip(max=1.0)  # The kernel counts in ticks of 10 ms, and a second may seem to have had 101.


def _limits(frame_times: tuple[float, float], frame_time_s: float) -> tuple[float, float]:
    return frame_times[0] * frame_time_s, frame_times[1] * frame_time_s


def _lateness_check(machine: pd.DataFrame, frame_time_s: float, limits: LatenessLimits) -> Check:
    late = quantile(machine["lateness_s"].to_numpy(), LATE_QUANTILE)
    text = f"one wake-up in a hundred is {late * 1e3:.1f} ms late or more, {late / frame_time_s:.3g} frame times"
    text += _stolen_meanwhile(machine, "lateness_s", limits.switches_s(frame_time_s)[0])
    return Check("lateness_p99_s", late, *limits.switches_s(frame_time_s), text)


def _stolen_meanwhile(machine: pd.DataFrame, column: str, limit_s: float) -> str:
    """Return in how many of the samples beyond a limit a hypervisor had taken time from the cores; nothing if in none.
    It counts in ticks, and books them late: the next sample's count, too."""
    late = machine[column].to_numpy() > limit_s
    stolen = machine["stolen_s"].to_numpy() > 0
    meanwhile = late & (stolen | np.append(stolen[1:], False))
    if not meanwhile.any():
        return ""
    return f"; a hypervisor took time from the cores in {meanwhile.sum()} of the {late.sum()} samples beyond the limit"


def _host_lateness_check(machine: pd.DataFrame, frame_time_s: float, limits: LatenessLimits) -> Check:
    late = quantile(machine["host_lateness_s"].to_numpy(), LATE_QUANTILE)
    text = (
        f"programs wake {late * 1e3:.1f} ms late or more, {late / frame_time_s:.3g} frame times, "
        "in one sample of a hundred"
    )
    text += _stolen_meanwhile(machine, "host_lateness_s", limits.hosts_s(frame_time_s)[0])
    return Check("host_lateness_p99_s", late, *limits.hosts_s(frame_time_s), text)


def _stall_checks(machine: pd.DataFrame) -> list[Check]:
    """Return whether switches or hosts ever stood still for long, once being enough."""
    switches = float(np.maximum(machine["lateness_s"], machine["input_wait_s"]).max())
    hosts = float(machine["host_lateness_s"].max())
    return [
        Check("switch_stall_s", switches, *STALL_S, f"the switches once stalled for {switches * 1e3:.0f} ms"),
        Check("host_stall_s", hosts, *STALL_S, f"programs on one core once waited for {hosts * 1e3:.0f} ms"),
    ]


def _clock_check(machine: pd.DataFrame) -> Check:
    steps = np.abs(np.diff(machine["clock_offset_s"].to_numpy()))
    step = float(steps.max()) if len(steps) else 0.0
    text = f"the machine's date was set, by {step * 1e3:.1f} ms: times taken from it are wrong by as much"
    if step <= CLOCK_STEP_S:
        text = "the machine's date was not set"
    return Check("clock_step_s", step, CLOCK_STEP_S, math.inf, text)


def core_checks(cores: pd.DataFrame, datapath: Datapath) -> list[Check]:
    """Return whether each core had time to spare, the worst counts; nothing without readings.

    Userspace switches poll: their time says nothing of how much they could carry, and what waits for them does.
    """
    if cores.empty:
        return []
    polled = cores["switch_fraction"] if datapath is Datapath.USERSPACE else 0.0
    busy = cores.assign(busy=np.maximum(cores["busy_fraction"] - polled, 0.0))
    numbers = sorted({int(number) for number in busy["core"]})
    by_core = {number: quantile(_by_window(busy[busy["core"] == number], "busy"), BUSY_QUANTILE) for number in numbers}
    core = max(by_core, key=lambda number: by_core[number])
    niced = float(cores["niced_fraction"].mean())
    text = f"core {core} is {by_core[core]:.0%} busy in one second of ten"
    text += ", without polling by the switches" if datapath is Datapath.USERSPACE else ""
    text += f" and without niced programs, which used {niced:.0%} of all cores" if niced >= 0.005 else ""
    return [Check("core_busy_fraction", by_core[core], *BUSY_CPU, text)]


def quota_checks(cpu: CpuUse | None) -> list[Check]:
    """Return whether a quota of CPU time stopped the run's programs."""
    if cpu is None:
        return []
    stopped = cpu.throttled_s / cpu.total_s if cpu.total_s else 0.0
    text = f"a quota of CPU time (cgroup) kept programs waiting for {stopped:.1%} of the cores' time; raise cpu.max"
    if not stopped:
        text = "no quota of CPU time (cgroup) kept programs waiting"
    return [Check("cpu_throttled_fraction", stopped, *THROTTLED, text)]


def spinning_checks(spun: Spun | None, seconds: float) -> list[Check]:
    """Return whether programs that spun made virtual time pass in a phase of ``seconds`` while others were ready."""
    if spun is None:
        return []
    fraction = spun.seconds / seconds
    text = (
        f"{fraction:.1%} of the time passed while programs spun, {spun.program} last, and kept others waiting: let "
        "them sleep, or poll, instead of trying again at once"
    )
    if not spun.seconds:
        text = "no program spun and kept others waiting"
    return [Check("spun_fraction", fraction, *SPUN, text)]


def switching_delay_s(machine: pd.DataFrame, switched_bytes: int, seconds: float) -> float:
    """Return how long a frame waited for userspace switches, on average: what waits over what passes (Little's law)."""
    if machine.empty or not switched_bytes:
        return 0.0
    return float(machine["input_queue_bytes"].mean()) * seconds / switched_bytes


def input_queue_checks(machine: pd.DataFrame, switched_bytes: int, seconds: float, frame_time_s: float) -> list[Check]:
    """Return whether userspace switches took frames up as they came: on average, and the worst of a hundred samples."""
    if machine.empty:
        return []
    delay = switching_delay_s(machine, switched_bytes, seconds)
    text = (
        f"a frame waits up to {delay * 1e3:.1f} ms to be switched, on average; "
        f"the largest takes {frame_time_s * 1e3:.2g} ms on the wire"
    )
    mean = Check("switching_frame_times", delay / frame_time_s, *SWITCHING_FRAME_TIMES, text)
    return [mean, _input_wait_check(machine, frame_time_s)]


def _input_wait_check(machine: pd.DataFrame, frame_time_s: float) -> Check:
    late = quantile(machine["input_wait_s"].to_numpy(), LATE_QUANTILE)
    text = f"in one sample of a hundred, frames wait {late * 1e3:.0f} ms or more to be switched"
    return Check("input_wait_p99_s", late, *_limits(INPUT_WAIT_FRAME_TIMES, frame_time_s), text)


def softnet_backlog_checks(
    machine: pd.DataFrame, switched_packets: int, seconds: float, frame_time_s: float
) -> list[Check]:
    """Return whether the kernel took frames up as they came, where it switches, by what waits in the cores' queues: on
    average, and the worst of a hundred samples."""
    if machine.empty:
        return []
    backlog = machine["softnet_backlog"]
    if (backlog < 0).any():
        text = "not measured: this kernel does not report how many frames wait to be switched (Linux 5.10 and later do)"
        return [Check("switching_measured", 1, 0, math.inf, text)]
    delay = float(backlog.mean()) * seconds / switched_packets if switched_packets else 0.0
    squeezed = int(machine["softnet_squeezed"].iloc[-1] - machine["softnet_squeezed"].iloc[0])
    text = (
        f"a frame waits up to {delay * 1e3:.2f} ms in the kernel's queues to be switched, on average (cores deferred "
        f"work {squeezed} times); the largest takes {frame_time_s * 1e3:.2g} ms on the wire"
    )
    mean = Check("switching_frame_times", delay / frame_time_s, *SWITCHING_FRAME_TIMES, text)
    return [mean, _input_wait_check(machine, frame_time_s)]


def softnet_drop_checks(machine: pd.DataFrame, conservation: Conservation) -> list[Check]:
    """Return whether the kernel's input queues dropped frames of this run.

    They are the whole machine's. A frame of ours that they drop is missing on its wire; where none is, strangers lost
    theirs. What cuts took cannot be told from it.
    """
    if machine.empty:
        return []
    drops = int(machine["softnet_drops"].iloc[-1] - machine["softnet_drops"].iloc[0])
    missing = conservation.unaccounted_packets + conservation.lost_in_cuts_packets
    text = f"the kernel's input queues dropped {drops} frames"
    if drops and not missing:
        return [
            Check(
                "softnet_drops", 0, 0, math.inf, f"{text}, none of them this run's: all of its frames are accounted for"
            )
        ]
    return [Check("softnet_drops", drops, 0, math.inf, text)]
