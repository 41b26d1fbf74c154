"""After a run: can the emulation itself be believed?

Each check compares something measured with two limits: up to the first the run is ``faithful`` in this respect, beyond
the second ``invalid``, between them ``degraded``. Every phase is judged for itself, and the worst counts; a phase that
is too short for a quantile is judged by its maximum. The verdict is the worst of all checks, with a reason for each
that is not faithful. What was not measured does not pass.

Reasons for the limits. Conservation: a packet that vanishes without a queue dropping it is a loss that the network
emulated does not have. Rates: 2 % of a link and 5 % of a share are what this project promises, idle before a run
(calibration) and in every port that was full during it (:mod:`fabric.measure.port_rates`). CPU: Mininet-HiFi asks for
idle time in every second, since a core that is always busy delays packets by queueing that no model has.

Switching: frames wait for the one thread of the userspace datapath in a queue that no switch has; a switch that stores
and forwards delays a frame by the frame's own time on the wire, and so may this queue. It is measured by the memory
that frames take, two to three times their size (9,024 bytes for one of 4,214, 768 for an acknowledgement of 66): hence
3 frame times. The mean hides bursts: one sample in a hundred may find frames that wait for 15. Where the kernel
switches, frames wait in its cores' queues (softnet), which are counted in frames.

Lateness: the switches' timers may be three of the largest frames late, because later switches blur queues and
round-trip times. Hosts may be ten times later: their programs wait for whole chunks of data, and send and receive
buffers bridge the gap. All of these are in frame times of the fabric's slowest link, because a millisecond is little
at 20 Mbit/s and much at 1 Gbit/s.

Stalls: one that lasts 200 ms, TCP's minimum retransmission timeout, makes senders retransmit what was not lost, however
rarely it happens. One of a second takes a tenth of a phase of ten, as much as ``faithful`` allows metrics to be off
(:mod:`fabric.report.promise`).

Memory and sockets: data that a host dropped for lack of memory, of room in a UDP socket, or of a place in a listener's
queue is not a loss in the emulated network, and hosts of the emulated system do not share their memory. Data that a
connection drops because the config gave it a small window is only reported.

Own NICs: a socket is charged for what waits in its host's own NIC, so a real host lets the socket wait when that queue
is full, and drops nothing. TCP takes such a drop for congestion and sends again within a round trip, which costs it
little up to one frame in a hundred; datagrams are lost, which a real host would not have sent.

Load: figures name what plays. A load that is told to play and does not, by itself at its end or late at its begin,
changes bandwidths by that part of the time: 10 % is as much as ``faithful`` allows them to be off, half of that is left
to everything else. An operation that fails is among the figures as one that never completes; the verdict asks whether
there is a reason for it: a failure that was asked for and could touch it, or that others took about as long that
completed. From one in a hundred on that has none the 99th percentile is not known.

Failures: one excuses what it could touch, while it lasted and until all that it stopped has been tried again
(:mod:`runs.excuses`). Everything else is judged as if there were none: a slow disk is no reason for a flow to fail.

Attempts: in real time a phase of loads without an end, in which nothing fails on purpose, is played again if the
machine did not keep up (:func:`disturbance_checks`). The verdict is of the attempts that count; the others are listed
beside it.

In virtual time nothing computes while time passes: cores, switches and programs are on time by construction, which is
no measurement, and the verdict says so. Programs that spin are the exception: they make time pass, lest they stand
still, and whoever is ready to run meanwhile is late. 1 % of a phase may pass so, as a quota may take of real time.
Everything else can go wrong there, too, memory above all: all hosts share the guest's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pandas as pd

from fabric.measure.cores import CpuUse
from fabric.measure.load_checks import (
    FailedOperations,
    PlayedLoad,
    asked_words,
    failed_checks,
    load_checks,
    own_nic_checks,
)
from fabric.measure.machine_checks import (
    core_checks,
    input_queue_checks,
    machine_checks,
    quota_checks,
    softnet_backlog_checks,
    softnet_drop_checks,
    spinning_checks,
)
from fabric.measure.port_rates import FullQueue
from fabric.measure.verdict import Check, Verdict, worst_of_phases
from fabric.model.lanes import PortLane
from fabric.records.calibration import LinkCalibration
from fabric.records.conservation import Conservation
from fabric.tables import TABLES
from fabric.world.datapath import Datapath
from fabric.world.engine import Engine, Spun

RATE_ERROR = (0.02, 0.05)
SHARE_ERROR = (0.05, 0.10)
UNACCOUNTED = (0.0, 1e-4)
SHORT_OF_MEMORY = (0.0, 10.0)
DROPPED_AT_SOCKETS = (0.0, 10.0)
DISCARDED = (10.0, math.inf)
"""Some, since TCP discards an RST out of place likewise: where programs end, or links are cut."""


@dataclass(frozen=True)
class PhaseEvidence:
    """What a phase left: what became of its packets, the ``machine`` and ``cores`` rows of its time, how long it was,
    its ports and lanes that were full, what the run used of the CPU (None: not measured, as in virtual time), the time
    that passed because programs spun (None: as in real time, it passes anyway), what its jobs did, what became of their
    operations, and the hosts on which failures stopped or slowed programs, with what they did in words."""

    name: str
    conservation: Conservation
    machine: pd.DataFrame
    seconds: float
    cores: pd.DataFrame = field(default_factory=lambda: TABLES["cores"].empty())
    full_queues: Sequence[FullQueue] = ()
    cpu: CpuUse | None = None
    spun: Spun | None = None
    loads: Sequence[PlayedLoad] = ()
    failed: Sequence[FailedOperations] = ()
    stopped: Mapping[str, Sequence[str]] = field(default_factory=dict)


def judge(
    calibrations: Sequence[LinkCalibration],
    phases: Sequence[PhaseEvidence],
    frame_time_s: float,
    warnings: Iterable[str] = (),
    *,
    engine: Engine,
    datapath: Datapath = Datapath.USERSPACE,
) -> Verdict:
    """Return the verdict on a run in an engine. ``frame_time_s``: how long the largest frame takes on the slowest
    link, in seconds."""
    checks = [*calibration_checks(calibrations), *_conservation_of(phases), *sample_checks(phases, engine)]
    checks += worst_of_phases(_phase_checks(phase, frame_time_s, engine, datapath) for phase in phases)
    checks += _never_full({check.name for check in checks})
    checks += [Check("virtual_time", 0, 0, 0, _BY_CONSTRUCTION)] if engine.is_exact else []
    checks += [Check("warning", 1, 0, 1, warning) for warning in warnings]
    return Verdict(tuple(checks))


_BY_CONSTRUCTION = (
    "nothing computes while virtual time passes: cores, switches and programs are on time by construction, not by "
    "measurement; the verdict rests on conservation, rates, memory and sockets"
)


def disturbance_checks(phase: PhaseEvidence, frame_time_s: float, engine: Engine, datapath: Datapath) -> list[Check]:
    """Return whether the machine kept up during a phase: what other programs take of it can fail these."""
    machine, counted = phase.machine, phase.conservation
    checks = [*machine_checks(machine, frame_time_s, engine), *softnet_drop_checks(machine, counted)]
    if not engine.is_exact:
        checks += [*core_checks(phase.cores, datapath), *quota_checks(phase.cpu)]
        if datapath is Datapath.USERSPACE:
            checks += input_queue_checks(machine, counted.switched_bytes, phase.seconds, frame_time_s)
        else:
            checks += softnet_backlog_checks(machine, counted.switched_packets, phase.seconds, frame_time_s)
    return checks


def _phase_checks(phase: PhaseEvidence, frame_time_s: float, engine: Engine, datapath: Datapath) -> list[Check]:
    counted = phase.conservation
    checks = disturbance_checks(phase, frame_time_s, engine, datapath)
    checks += spinning_checks(phase.spun, phase.seconds)
    checks += [*full_queue_checks(phase.full_queues), *memory_checks([counted])]
    checks += [*socket_checks(counted, phase.stopped), *own_nic_checks(counted)]
    checks += [*failed_checks(phase.failed), *load_checks(phase.loads)]
    return [replace(check, phase=phase.name) for check in checks]


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


def _lost_fraction(conservation: Conservation) -> float:
    return conservation.unaccounted_packets / max(1, conservation.sent_packets)


def _conservation_of(phases: Sequence[PhaseEvidence]) -> list[Check]:
    """Return :func:`conservation_checks` with the values of all phases."""
    by_phase = {phase.name: _lost_fraction(phase.conservation) for phase in phases}
    worst = max(by_phase, key=lambda name: by_phase[name], default="")
    checks = conservation_checks([phase.conservation for phase in phases])
    return [replace(check, phase=worst, by_phase=by_phase) for check in checks]


def conservation_checks(conservations: Sequence[Conservation]) -> list[Check]:
    """Return whether every packet is accounted for: judged by the phase that lost most, told of all together."""
    lost = sum(one.unaccounted_packets for one in conservations)
    sent = sum(one.sent_packets for one in conservations)
    places = [f"{place} ({packets})" for one in conservations for place, packets in one.unaccounted.items()]
    shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    text = f"{lost} of {sent} packets are in no counter: {shown}" if lost else f"all {sent} packets are accounted for"
    cut = sum(one.lost_in_cuts_packets for one in conservations)
    text += f", {cut} of them were lost in cuts" if cut else ""
    worst = max((_lost_fraction(one) for one in conservations), default=0.0)
    return [Check("unaccounted_packets_fraction", worst, *UNACCOUNTED, text)]


def sample_checks(phases: Sequence[PhaseEvidence], engine: Engine) -> list[Check]:
    """Return whether the machine, and in real time each of its cores, was sampled in every phase."""
    missing = [phase.name for phase in phases if phase.machine.empty or (phase.cores.empty and not engine.is_exact)]
    if phases and not missing:
        return [Check("machine_samples", 0, 0, 0, "the machine was sampled in every phase")]
    where = f" in {len(missing)} of {len(phases)} phases ({missing[0]} first)" if missing else ""
    return [Check("machine_samples", 1, 0, 0, f"no samples of the machine{where}: whether it kept up is unknown")]


_FULL_PORT, _FULL_LANE = "full_port_rate_error", "full_lane_share_error"


def full_queue_checks(full: Sequence[FullQueue]) -> list[Check]:
    """Return whether ports that were full for long sent at their links' rates, and such lanes at their shares; nothing
    where none was."""
    ports = [one for one in full if not one.lane]
    lanes = [one for one in full if one.lane]
    checks = [_worst_full(_FULL_PORT, RATE_ERROR, ports, "its link's rate")] if ports else []
    return [*checks, _worst_full(_FULL_LANE, SHARE_ERROR, lanes, "its share")] if lanes else checks


def _worst_full(name: str, limits: tuple[float, float], full: Sequence[FullQueue], of: str) -> Check:
    worst = max(full, key=lambda one: one.error)
    place = str(PortLane(str(worst.port), worst.lane)) if worst.lane else f"port {worst.port}"
    text = f"{place}, full for {worst.seconds:.3g} s, sent at {worst.rate:.1%} of {of}; the worst of {len(full)}"
    return Check(name, worst.error, *limits, text)


def _never_full(judged: set[str]) -> list[Check]:
    """Return the word that no port, or no lane, was full in any phase: then it was not asked for its rate either."""
    kinds = ((_FULL_PORT, RATE_ERROR, "port", "its link's rate"), (_FULL_LANE, SHARE_ERROR, "lane", "its share"))
    return [
        Check(name, 0.0, *limits, f"no {what} was full for long enough to be compared with {of}")
        for name, limits, what, of in kinds
        if name not in judged
    ]


def memory_checks(conservations: Sequence[Conservation]) -> list[Check]:
    """Return whether TCP had the memory to keep what arrived and to keep windows open."""
    short = sum(one.tcp_short_of_memory for one in conservations)
    text = f"TCP was short of memory {short} times: it dropped data that had arrived, or windows shrank; add memory"
    pruned = sum(one.tcp_pruned for one in conservations)
    text += f"; it dropped {pruned} segments for which receive_window left no room" if pruned else ""
    return [Check("tcp_short_of_memory", short, *SHORT_OF_MEMORY, text)]


def socket_checks(counted: Conservation, stopped: Mapping[str, Sequence[str]] = MappingProxyType({})) -> list[Check]:
    """Return whether hosts took up what arrived at their sockets, and whether the kernel counts it all. ``stopped``:
    what failures did to programs on purpose, in words, by host: what found no room there is theirs."""
    missing = counted.not_counted
    names = ", ".join(missing)
    late = f"TCP discarded {counted.discarded} segments that had arrived, their acknowledgement older than a window"
    if counted.discarded > DISCARDED[0]:
        late += ": others overtook them; let acknowledgements wait with data (queues.acknowledgements)"
    udp, of_udp = _unasked(counted.udp_dropped, counted.udp_dropped_at, stopped)
    listen, of_listen = _unasked(counted.connections_dropped, counted.connections_dropped_at, stopped)
    rooms = f"{counted.udp_dropped} datagrams found no room in their sockets{of_udp}"
    queues = f"listeners' queues were full {counted.connections_dropped} times{of_listen}"
    return [
        Check("udp_dropped", udp, *DROPPED_AT_SOCKETS, rooms),
        Check("connections_dropped", listen, *DROPPED_AT_SOCKETS, queues),
        Check("tcp_discarded", counted.discarded, *DISCARDED, late),
        Check(
            "not_counted",
            len(missing),
            0,
            math.inf,
            f"not measured: this kernel does not count {names}"
            if missing
            else "the kernel counts everything that is judged",
        ),
    ]


def _unasked(dropped: int, by_host: Mapping[str, int], stopped: Mapping[str, Sequence[str]]) -> tuple[int, str]:
    """Return how many of ``dropped`` were not on hosts whose programs failures had stopped, and words of the others."""
    excused = {host: count for host, count in by_host.items() if host in stopped}
    if not excused:
        return dropped, ""
    asked = asked_words(word for host in excused for word in stopped[host])
    return dropped - sum(excused.values()), f", {sum(excused.values())} of them as asked for: {asked}"
