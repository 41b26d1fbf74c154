"""One HTB tree per port: exact link rate, one class per lane with share, ceiling and byte limit, DSCP to lane.

::

    2:    netem                      only on links with a delay, or where hosts' jitter is; 1: is then below 2:1.
                                     In virtual time a frame waits for the jitter, in the queues, then for the delay
    1:    htb                        unclassified packets: the lane of service level "other"
    1:1   class  rate = the link's
    1:11  class  rate = share, ceiling    11: bfifo, limit in bytes      lane number 1
    1:12  class  ...                      12: red                        lane number 2, with marking; bfifo where the
                                                                         kernel has no RED and the filter marks

A filter (:mod:`fabric.queueing.classifier`) puts packets into lanes by their DSCP; TCP segments without data and ICMP
into the control lane, if the plan says so.
Rates count Ethernet frames without preamble, gap and FCS, as the kernel does.

Lossless queueing has a ``vl`` as its only qdisc in place of all this (:mod:`fabric.queueing.lossless`), with the delay
in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fabric.model.lanes import Lane, LanePlan, ServiceLevel
from fabric.model.network import ETHERNET_HEADER_BYTES
from fabric.queueing import marking_filter, red, vl
from fabric.queueing.classifier import classifier
from fabric.queueing.lossless import vl_port
from fabric.queueing.marking_filter import LaneEntry
from fabric.world.engines import current_engine
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import HtbRates, Request

_LINK_CLASS = 0x1
_FIRST_LANE = 0x10
_MAX_LANES = 0xEF
_HTB = 1
BURST_FRAMES = 2
"""A class may send this many frames back to back; fewer and a late timer costs rate, more and shares get coarse."""
OWN_QUEUE_BYTES = 2**31 - 1
"""What a lane holds at a host's own NIC: all that its sockets give it, which their send buffers and TCP's small queues
limit. A NIC does not drop what it has yet to send; with a switch's limit, a hundred connections with two frames each
overfilled it."""


@dataclass(frozen=True)
class ShapedPort:
    """What a port's tree is made from. ``slack_s``: how late timers may be without the link losing rate; ``is_host``:
    what it sends is a host's own; ``draws``: budgets that frames take of, in lossless queueing only; ``crosses``: its
    link leads to another guest of the run, and delays by itself; ``delays_on_arrival``: its frames are delayed at the
    other end (:mod:`fabric.emulation.arrivals`), unless queueing is lossless; ``is_paused``: that end has stopped all
    lanes of data, where queueing is lossless; ``to_switch``: that end is a switch's."""

    interface: str
    index: int
    rate_bps: int
    mtu_bytes: int
    slack_s: float = 0.0
    delay_ns: int = 0
    is_host: bool = False
    draws: tuple[vl.DrawOptions, ...] = ()
    crosses: bool = False
    delays_on_arrival: bool = False
    is_paused: bool = False
    to_switch: bool = False

    def jitter_ns(self, plan: LanePlan) -> int:
        """Return how long a frame waits here at most, at random, before it comes into a queue."""
        return round(plan.jitter_frames * self.frame_bytes * 8e9 / self.rate_bps) if self.is_host else 0

    @property
    def frame_bytes(self) -> int:
        """The largest frame."""
        return self.mtu_bytes + ETHERNET_HEADER_BYTES

    def at_fraction(self, fraction: float, is_paused: bool = False) -> ShapedPort:
        """Return the same port with a part of its rate, paused or not."""
        return replace(self, rate_bps=round(self.rate_bps * fraction), is_paused=is_paused)

    @property
    def burst_bytes(self) -> float:
        """The burst of every class."""
        return max(BURST_FRAMES * self.frame_bytes, self.slack_s * self.rate_bps / 8)


def install_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return what builds a port's tree from nothing."""
    if plan.queueing.is_of_vl:
        return [vl.install(port.index, port.interface, _lossless_port(port, plan), port.draws)]
    default = _minor(plan.lane_of(ServiceLevel.OTHER))
    fifos = [_queue(port, lane) for lane in plan.lanes]
    return [*_roots(port, plan, default), *rate_requests(port, plan), *fifos, *_filter_requests(port, plan)]


def _queue(port: ShapedPort, lane: Lane) -> Request:
    """Return what makes a lane's queue: one that marks, where a switch's lane has a marking."""
    if lane.marking is None or port.is_host or not red.is_there(current_engine()):
        limit_bytes = OWN_QUEUE_BYTES if port.is_host else lane.limit_bytes
        return netlink.byte_fifo(port.index, port.interface, _minor(lane), _minor(lane), limit_bytes)
    return red.queue(port.index, port.interface, _minor(lane), lane.limit_bytes, lane.marking)


def _lossless_port(port: ShapedPort, plan: LanePlan) -> vl.VlConfig:
    made = vl_port(plan, port.rate_bps, port.delay_ns, marks=not port.is_host, to_switch=port.to_switch)
    paused = (made.lanes - {vl.MANAGEMENT_LANE}) if port.is_paused else frozenset[int]()
    return replace(made, jitter_ns=port.jitter_ns(plan), crosses=port.crosses, paused=paused)


def _roots(port: ShapedPort, plan: LanePlan, default_minor: int) -> list[Request]:
    delays_elsewhere = port.crosses or port.delays_on_arrival
    jitter_ns, delay_ns = port.jitter_ns(plan), 0 if delays_elsewhere else port.delay_ns
    if not delay_ns and not jitter_ns:
        return [netlink.htb_root(port.index, port.interface, default_minor)]
    return [
        netlink.delay_root(port.index, port.interface, delay_ns, jitter_ns),
        netlink.htb_root(port.index, port.interface, default_minor, parent=netlink.DELAY_HANDLE | 1),
    ]


def rate_requests(port: ShapedPort, plan: LanePlan) -> list[Request]:
    """Return what gives a port's tree another rate; what waits in it stays, and what it holds of an input buffer."""
    if plan.queueing.is_of_vl:
        return [vl.change(port.index, port.interface, _lossless_port(port, plan), port.draws)]
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
    """Return the filter that puts packets into lanes, and may mark them; none where all go to the default."""
    if _filter_marks(plan) and not port.is_host:
        return [marking_filter.request(port.index, port.interface)]
    default = plan.lane_of(ServiceLevel.OTHER)
    classes = {level.tos: _class(lane) for lane in plan.lanes if lane != default for level in lane.levels}
    if not classes:
        return []
    ahead = plan.for_acknowledgements
    program = classifier(None if ahead is None else _class(ahead), classes)
    return [netlink.bpf_filter(port.index, port.interface, program)]


def _filter_marks(plan: LanePlan) -> bool:
    """Whether it is the filter of ports that marks, since the kernel has no queue that does."""
    marks = any(lane.marking is not None for lane in plan.lanes)
    return marks and not plan.queueing.is_of_vl and not red.is_there(current_engine())


def provide(plan: LanePlan) -> None:
    """Make known to the kernel what the trees of a plan need. Raises EmulationError."""
    if not _filter_marks(plan):
        return
    default = plan.lane_of(ServiceLevel.OTHER)
    lanes = {level.tos: lane for lane in plan.lanes for level in lane.levels}
    places = [*range(0, marking_filter.CONTROL, 4)]
    entries = {place: _entry(lanes.get(place, default)) for place in places}
    if (ahead := plan.for_acknowledgements) is not None:
        entries[marking_filter.CONTROL] = LaneEntry(_class(ahead))
    marking_filter.provide(entries)


def _entry(lane: Lane) -> LaneEntry:
    return LaneEntry(_class(lane), lane.marking)


def _class(lane: Lane) -> int:
    return _HTB << 16 | _minor(lane)
