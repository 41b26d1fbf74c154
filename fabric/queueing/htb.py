"""One HTB tree per port: exact link rate, one class per lane with share, ceiling and byte limit, DSCP to lane.

::

    2:    netem                      only on links with a delay, or where hosts' jitter is; 1: is then below 2:1
    1:    htb                        unclassified packets: the lane of service level "other"
    1:1   class  rate = the link's
    1:11  class  rate = share, ceiling    11: bfifo, limit in bytes      lane number 1
    1:12  class  ...                      12: bfifo                      lane number 2

A filter (:mod:`fabric.queueing.classifier`) puts packets into lanes: with a control lane, TCP segments without data and
ICMP go there first, so that the data of one lane cannot starve the acknowledgements of another; then the DSCP decides.
Rates count Ethernet frames without preamble, gap and FCS, as the kernel does.

Lossless queueing has a ``vl`` as its only qdisc in place of all this (:mod:`fabric.queueing.lossless`), with the delay
in it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fabric.model.lanes import Lane, LanePlan, ServiceLevel
from fabric.model.network import ETHERNET_HEADER_BYTES
from fabric.queueing import vl
from fabric.queueing.classifier import classifier
from fabric.queueing.lossless import vl_port
from fabric.queueing.vl_samples import VlReader, VlSample
from fabric.world import netlink
from fabric.world.netlink import HtbRates, Request

_LINK_CLASS = 0x1
_FIRST_LANE = 0x10
_MAX_LANES = 0xEF
_HTB = 1
BURST_FRAMES = 2
"""A class may send this many frames back to back; fewer and a late timer costs rate, more and shares get coarse."""


@dataclass(frozen=True)
class ShapedPort:
    """What a port's tree is made from. ``slack_s``: how late timers may be without the link losing rate; ``is_host``:
    what it sends is a host's own."""

    interface: str
    index: int
    rate_bps: int
    mtu_bytes: int
    slack_s: float = 0.0
    delay_ns: int = 0
    is_host: bool = False

    def jitter_ns(self, plan: LanePlan) -> int:
        """Return how long a frame waits here at most, at random, before it comes into a queue."""
        return round(plan.jitter_frames * self.frame_bytes * 8e9 / self.rate_bps) if self.is_host else 0

    @property
    def frame_bytes(self) -> int:
        """The largest frame."""
        return self.mtu_bytes + ETHERNET_HEADER_BYTES

    def at_fraction(self, fraction: float) -> ShapedPort:
        """Return the same port with a part of its rate."""
        return replace(self, rate_bps=round(self.rate_bps * fraction))

    @property
    def burst_bytes(self) -> float:
        """The burst of every class."""
        return max(BURST_FRAMES * self.frame_bytes, self.slack_s * self.rate_bps / 8)


def install_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return what builds a port's tree from nothing."""
    if plan.queueing.is_lossless:
        return [vl.install(port.index, port.interface, _lossless_port(port, plan))]
    default = _minor(plan.lane_of(ServiceLevel.OTHER))
    fifos = [
        netlink.byte_fifo(port.index, port.interface, _minor(lane), _minor(lane), lane.limit_bytes)
        for lane in plan.lanes
    ]
    return [*_roots(port, plan, default), *rate_requests(port, plan), *fifos, *_filter_requests(port, plan)]


def _lossless_port(port: ShapedPort, plan: LanePlan) -> vl.Port:
    return replace(vl_port(plan, port.rate_bps, port.delay_ns), jitter_ns=port.jitter_ns(plan))


def _roots(port: ShapedPort, plan: LanePlan, default_minor: int) -> list[Request]:
    jitter_ns = port.jitter_ns(plan)
    if not port.delay_ns and not jitter_ns:
        return [netlink.htb_root(port.index, port.interface, default_minor)]
    return [
        netlink.delay_root(port.index, port.interface, port.delay_ns, jitter_ns),
        netlink.htb_root(port.index, port.interface, default_minor, parent=netlink.DELAY_HANDLE | 1),
    ]


def rate_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return what gives a port's tree another rate; what waits in it stays, and what it holds of an input buffer."""
    if plan.queueing.is_lossless:
        return [vl.change(port.index, port.interface, _lossless_port(port, plan))]
    rate = port.rate_bps / 8
    link = HtbRates(rate, rate, port.burst_bytes, port.frame_bytes, 0)
    classes = [netlink.htb_class(port.index, port.interface, _LINK_CLASS, 0, link)]
    return classes + [_lane_class(port, lane, plan) for lane in plan.lanes]


def replace_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return what puts another plan's tree in place of the one a port has; what waits in it is lost."""
    return [netlink.delete_root_qdisc(port.index, port.interface), *install_requests(port, plan)]


def _minor(lane: Lane) -> int:
    return _FIRST_LANE + lane.number


def _lane_class(port: ShapedPort, lane: Lane, plan: LanePlan) -> Request:
    rate = port.rate_bps / 8
    smallest = min(other.share for other in plan.lanes)
    rates = HtbRates(
        rate=rate * lane.share,
        ceiling=rate * lane.ceiling,
        burst_bytes=port.burst_bytes,
        # What is idle is lent in proportion to the quanta, so they follow the shares; HTB wants at least a frame.
        quantum_bytes=round(port.frame_bytes * lane.share / smallest),
        priority=0 if lane.is_control else 1,
    )
    return netlink.htb_class(port.index, port.interface, _minor(lane), _LINK_CLASS, rates)


def _filter_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return the filter that puts packets into lanes; none where all go to the default."""
    default = plan.lane_of(ServiceLevel.OTHER)
    classes = {level.tos: _class(lane) for lane in plan.lanes if lane != default for level in lane.levels}
    control = None if plan.control is None else _class(plan.control)
    if not classes and control is None:
        return []
    return [netlink.bpf_filter(port.index, port.interface, classifier(control, classes))]


def _class(lane: Lane) -> int:
    return _HTB << 16 | _minor(lane)


# Where the fields of a queue's counters are within its message, found once a layout.
_TCMSG_START = netlink.HEADER.size
_ATTRIBUTES_START = _TCMSG_START + 20
_STATS2, _BASIC, _QUEUE = 7, 1, 3

COUNTERS = np.dtype(
    [("sent_bytes", "<u8"), ("sent_packets", "<u4"), ("qlen", "<u4"), ("backlog_bytes", "<u4"), ("drops", "<u4")]
)
"""Counters of a lane's queue: cumulative bytes and packets sent, packets and bytes waiting, cumulative drops."""


@dataclass(frozen=True)
class _Layout:
    """Where, in a dump of one length, each lane queue's message begins and where in it the counters are."""

    keys: list[tuple[int, int]]
    identities: npt.NDArray[np.intp]
    expected: npt.NDArray[np.uint8]
    fields: dict[str, npt.NDArray[np.intp]]


@dataclass(frozen=True)
class QueueSample:
    """The (interface index, lane number) of each lane queue, their COUNTERS, and what else lossless ports tell."""

    keys: list[tuple[int, int]]
    counters: npt.NDArray[np.void]
    lossless: VlSample | None = None


class QueueReader:
    """Reads lane counters out of qdisc dumps.

    A namespace's dumps all look alike while its queues stay the same, so the places of the counters are found once and
    then gathered by index: a sample of a thousand queues costs microseconds, not milliseconds.
    """

    def __init__(self) -> None:
        self._layout: _Layout | None = None
        self._length = -1
        self._vl = VlReader()

    def read(self, dump: bytes) -> tuple[list[tuple[int, int]], npt.NDArray[np.void]]:
        """Return the (interface index, lane number) of each lane queue in a dump, and their COUNTERS."""
        sample = self.sample(dump)
        return sample.keys, sample.counters

    def sample(self, dump: bytes) -> QueueSample:
        """Return all that the ports of a dump tell. Raises EmulationError as :mod:`fabric.queueing.vl` does."""
        data = np.frombuffer(dump, dtype=np.uint8)
        layout = self._layout
        if layout is None or len(dump) != self._length or not np.array_equal(data[layout.identities], layout.expected):
            if (found := self._vl.read(dump)) is not None:
                self._layout = None
                return QueueSample(found.keys, _counters(found), found)
            layout = self._layout = _find_layout(dump)
            self._length = len(dump)
        counters = np.zeros(len(layout.keys), COUNTERS)
        for name, places in layout.fields.items():
            counters[name] = data[places].view(COUNTERS[name])[:, 0]
        return QueueSample(layout.keys, counters)


def _counters(sample: VlSample) -> npt.NDArray[np.void]:
    counters = np.zeros(len(sample.keys), COUNTERS)
    for name in ("sent_bytes", "sent_packets", "backlog_bytes"):
        counters[name] = sample.lanes[name]
    counters["qlen"] = sample.lanes["backlog_packets"]
    counters["drops"] = sample.lanes["dropped_packets"].sum(axis=1)
    return counters


def _find_layout(dump: bytes) -> _Layout:
    keys = []
    starts = []
    fields: dict[str, list[int]] = {name: [] for name in COUNTERS.names or ()}
    offset = 0
    while offset + netlink.HEADER.size <= len(dump):
        (length,) = struct.unpack_from("=I", dump, offset)
        index, handle = struct.unpack_from("=iI", dump, offset + _TCMSG_START + 4)
        lane = (handle >> 16) - _FIRST_LANE
        if 1 <= lane <= _MAX_LANES and handle & 0xFFFF == 0:
            keys.append((index, lane))
            starts.append(offset)
            for name, place in _counter_places(dump, offset, length).items():
                fields[name].append(place)
        offset += (length + 3) & ~3
    # Length, interface and handle of each message: if these bytes are as before, so is everything's place.
    identity = np.array([0, 1, 2, 3, *range(_TCMSG_START + 4, _TCMSG_START + 12)], dtype=np.intp)
    identities = (np.array(starts, dtype=np.intp)[:, None] + identity).ravel()
    places = {
        name: np.array(found, dtype=np.intp)[:, None] + np.arange(COUNTERS[name].itemsize)
        for name, found in fields.items()
    }
    return _Layout(keys, identities, np.frombuffer(dump, dtype=np.uint8)[identities], places)


def _counter_places(dump: bytes, start: int, length: int) -> dict[str, int]:
    stats = netlink.attribute_at(dump, start + _ATTRIBUTES_START, start + length, _STATS2)
    end = stats + struct.unpack_from("=H", dump, stats - 4)[0] - 4
    basic = netlink.attribute_at(dump, stats, end, _BASIC)
    queue = netlink.attribute_at(dump, stats, end, _QUEUE)
    return {
        "sent_bytes": basic,
        "sent_packets": basic + 8,
        "qlen": queue,
        "backlog_bytes": queue + 4,
        "drops": queue + 8,
    }
