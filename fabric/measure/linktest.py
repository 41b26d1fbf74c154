"""Speed and loss of each direction of each link: frames go through the port's own queue and are counted on arrival.

Speed: a port is kept full of the largest frames for a window, and what arrives in it is compared with the rate. Loss:
enough of the smallest frames that a link which loses one in a hundred keeps none of them with a chance of 1 in 100,000;
every frame that the port took, small or large, must arrive or be counted as a drop by the port's queue.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.errors import EmulationError, UsageError
from fabric.measure.feeding import Feed, Feeder, window_for
from fabric.measure.wiring import SMALL_FRAME_BYTES, ArrivalCounter, measuring_frame
from fabric.model.lanes import LanePlan, ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import BURST_FRAMES
from fabric.units import format_rate
from fabric.world.datapath import SWITCH_NICENESS
from fabric.world.engine import Engine
from fabric.world.kernel_api.netlink import Netlink

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

FOUND_LOSS = 0.01
MISSED = 1e-5
"""A link that loses ``FOUND_LOSS`` of its frames may keep all of one test's with this chance."""
LOSS_FRAMES = math.ceil(math.log(MISSED) / math.log(1 - FOUND_LOSS))
_WINDOW_S, _FILL_S = 1.0, 0.2
_WINDOW_FRAMES, _FILL_FRAMES = 1000, 100
"""What is enough where time is exact."""
_PORTS_AT_ONCE = 256
_SMALL_PORTS_AT_ONCE = 5
"""Bursts of this many ports fit in the 1000 frames that the kernel queues for a core (net.core.netdev_max_backlog)."""
_FRAMES_TIMEOUT_S, _REST_TIMEOUT_S = 60.0, 20.0
_LOOK_S, _REST_S = 0.005, 0.02


@dataclass(frozen=True)
class DirectionMeasurement:
    """One direction of a link: what arrived at ``receiver`` in bit/s, while ``sender`` was kept full; frames that the
    sender's queue let go, in all, and those of them that did not arrive."""

    sender: Port
    receiver: Port
    rate_bps: float
    sent_frames: int
    lost_frames: int

    @property
    def loss(self) -> float:
        """The part of the frames that did not arrive."""
        return self.lost_frames / self.sent_frames


@dataclass(frozen=True)
class LinkTestPlan:
    """How long ports are filled and measured, and what a rate may fall short by without being a fault."""

    fill_s: float
    window_s: float
    queued_frames: int
    tolerance: float
    frames_s: float


def link_test_plan(fabric: Fabric, engine: Engine) -> LinkTestPlan:
    """Return how links of a fabric are measured. Raises UsageError if the engine cannot carry one of them.

    A window may miss, or hold, a burst and a frame at each of its ends. Where time is not exact, this process or the
    kernel's timers may also be late: 10 %, of which 1 % is seen on an idle machine.
    """
    timing, frame_s = engine.timing, fabric.frame_time_s
    fastest = max(link.rate_bps for link in fabric.links)
    carried_bps = timing.carried_frames_s * fabric.frame_bytes * 8
    if fastest > carried_bps:
        raise UsageError(
            f"{fabric.name}: has links of {format_rate(fastest)}; in {engine.clock} frames of {fabric.frame_bytes} B "
            f"are sure to pass at {format_rate(carried_bps)}; use --engine virtual or slower links (--set nic_rate=...)"
        )
    fill_s = engine.duration_s(_FILL_S, _FILL_FRAMES, frame_s)
    window_s = engine.duration_s(_WINDOW_S, _WINDOW_FRAMES, frame_s)
    ends = 2 * (BURST_FRAMES + 1)
    tolerance = max(timing.rate_noise, 2 * ends * frame_s / window_s)
    return LinkTestPlan(fill_s, window_s, timing.kept_frames, tolerance, timing.carried_frames_s)


def measure_links(
    emulation: Emulation, peers: Mapping[Port, Port], plan: LinkTestPlan
) -> Iterator[DirectionMeasurement]:
    """Yield a measurement of each direction: from each key of ``peers`` to where its frames arrive.

    As many are measured at once as the machine carries. Nothing else may be sent meanwhile. Raises EmulationError.
    """
    for ports in batches(emulation.fabric, list(peers), plan.frames_s):
        yield from _measure(emulation, {port: peers[port] for port in ports}, plan)


def batches(fabric: Fabric, ports: Sequence[Port], frames_s: float) -> Iterator[list[Port]]:
    """Yield the ports in groups that together send no more than ``frames_s`` full frames a second, one at least."""
    group: list[Port] = []
    total = 0.0
    for port in ports:
        rate = fabric.link_at[port].rate_bps / 8 / fabric.frame_bytes
        if group and (total + rate > frames_s or len(group) == _PORTS_AT_ONCE):
            yield group
            group, total = [], 0.0
        group.append(port)
        total += rate
    if group:
        yield group


def _measure(emulation: Emulation, peers: Mapping[Port, Port], plan: LinkTestPlan) -> list[DirectionMeasurement]:
    with ExitStack() as stack:
        bench = _Bench(emulation, peers, stack)
        stack.enter_context(_ahead_of_others())
        full = bench.feeder(list(peers), emulation.fabric.frame_bytes, plan.queued_frames)
        full.feed(plan.fill_s)
        before = bench.arrived()
        full.feed(plan.window_s)
        after = bench.arrived()
        bench.wait_until_empty()
        for start in range(0, len(peers), _SMALL_PORTS_AT_ONCE):
            some = list(peers)[start : start + _SMALL_PORTS_AT_ONCE]
            small = bench.feeder(some, SMALL_FRAME_BYTES, LOSS_FRAMES)
            small.feed_frames(LOSS_FRAMES, _FRAMES_TIMEOUT_S)
            bench.wait_until_empty()
        size_bits = emulation.fabric.frame_bytes * 8
        rates = {p: (after[p][1] - before[p][1]) * size_bits / (after[p][0] - before[p][0]) for p in peers}
        return bench.measurements(rates)


@contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Let this process go first: it is an instrument, and what it is late by is missing from a link's rate."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, SWITCH_NICENESS)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class _Bench:
    """Senders, counters and queues of some directions, with everything open that they need."""

    def __init__(self, emulation: Emulation, peers: Mapping[Port, Port], stack: ExitStack) -> None:
        self._emulation = emulation
        self._peers = peers
        self._stack = stack
        self._feeds: list[Feed] = []
        self._counters = {}
        for port, peer in peers.items():
            counter = self._counters[port] = ArrivalCounter(emulation.namespace_of_port(peer), peer)
            stack.callback(counter.close)
        namespaces = {emulation.namespace_of_port(port) for port in peers}
        self._netlinks: dict[Path | None, Netlink] = {
            namespace: stack.enter_context(Netlink(namespace)) for namespace in namespaces
        }
        self._dropped_before = {port: dropped for port, (_, dropped) in self._queues().items()}

    def feeder(self, ports: Sequence[Port], frame_bytes: int, window_frames: int) -> Feeder:
        """Return what feeds some ports with frames of a size, no more in a window than the port's queue takes."""
        feeder = Feeder(self._emulation.lane_plan.queueing)
        self._stack.callback(feeder.close)
        frame = measuring_frame(frame_bytes)
        queue_bytes = _limit_bytes(self._emulation.lane_plan)
        for port in ports:
            link = self._emulation.fabric.link_at[port]
            window = window_for(link, frame_bytes, window_frames, queue_bytes)
            namespace = self._emulation.namespace_of_port(port)
            self._feeds.append(feeder.add(namespace, port, link, frame, window))
        return feeder

    def arrived(self) -> dict[Port, tuple[float, int]]:
        """Return, by sender, the time and how many frames have arrived."""
        return {port: counter.read() for port, counter in self._counters.items()}

    def wait_until_empty(self) -> None:
        """Wait until all that was sent has left its queue, and had time to arrive. Raises EmulationError."""
        deadline = time.monotonic() + _REST_TIMEOUT_S
        while any(waiting for waiting, _ in self._queues().values()):
            if time.monotonic() > deadline:
                busy = [str(port) for port, (waiting, _) in self._queues().items() if waiting]
                raise EmulationError(f"{', '.join(busy)}: frames still wait after {_REST_TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)
        delay_s = max(self._emulation.fabric.link_at[port].delay_ns for port in self._peers) / 1e9
        time.sleep(_REST_S + delay_s)

    def _queues(self) -> dict[Port, tuple[int, int]]:
        """Return the frames that wait in each sender's queues, and those that they have dropped."""
        found = dict.fromkeys(self._peers, (0, 0))
        for namespace, netlink in self._netlinks.items():
            by_index = {
                self._emulation.indices[port]: port
                for port in self._peers
                if self._emulation.namespace_of_port(port) == namespace
            }
            keys, rows = QueueReader().read(netlink.dump_qdiscs())
            pairs = zip(keys, rows["backlog_packets"].tolist(), rows["drops_packets"].tolist(), strict=True)
            for (index, _), waiting, dropped in pairs:
                if (port := by_index.get(index)) is not None:
                    found[port] = (found[port][0] + waiting, found[port][1] + dropped)
        return found

    def measurements(self, rates: Mapping[Port, float]) -> list[DirectionMeasurement]:
        """Return what was found, once all has arrived."""
        arrived, queues = self.arrived(), self._queues()
        measured = []
        for port, peer in self._peers.items():
            dropped = queues[port][1] - self._dropped_before[port]
            sent = let_go([feed for feed in self._feeds if feed.port == port], dropped)
            measured.append(DirectionMeasurement(port, peer, rates[port], sent, sent - arrived[port][1]))
        return measured


def let_go(feeds: Sequence[Feed], dropped_frames: int) -> int:
    """Return how many frames a port's queue has let go, of all that it was given and those that it says it dropped:
    among the latter are the frames that it refused at once."""
    return sum(feed.sent + feed.refused for feed in feeds) - dropped_frames


def _limit_bytes(plan: LanePlan) -> int:
    """Return how much may wait in the lane of frames that are not IP."""
    return plan.lane_of(ServiceLevel.OTHER).limit_bytes
