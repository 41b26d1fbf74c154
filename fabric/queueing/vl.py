"""The qdisc ``vl`` of :mod:`fabric.world.modules`: its options as an rtnetlink message, its statistics from qdisc
dumps.

It is a port and the link behind it: virtual lanes, InfiniBand's arbitration, exact rate and delay, and flow control by
credits or PFC towards the input buffer at the other end. ``fabric/kernel/sch_vl.h`` is the kernel's side of this file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum

from fabric.errors import EmulationError, UsageError
from fabric.world import netlink
from fabric.world.netlink import Request

VERSION = 2
MANAGEMENT_LANE = 15
DATA_LANES = 15
WEIGHT_BYTES = 64
HIGH_LIMIT_BYTES = 4096
HIGH_UNLIMITED = 255
HANDLE = 1 << 16
_NO_LANE = 255
_DSCPS = 64
_MOST_ENTRIES = 64
_MOST_WEIGHT = 255
_MOST_DELAY_NS = 10**9
_MOST_BYTES = 2**31 - 1

_PORT_OPTIONS = struct.Struct("=IBBBxQQQQ")
_LANE_OPTIONS = struct.Struct("=IIIIIxxxx")
_PORT_STATS = struct.Struct("=8IQQ")
_LANE_STATS = struct.Struct("=II3Q6Q6Q7Q")
_WAIT = struct.Struct("=IBBxxQ")
_TCMSG_BYTES = 20
_KIND, _STATS2, _APP = 1, 7, 4


class FlowControl(Enum):
    """How the end of a link keeps frames that it has no room for from being sent."""

    LOSSY = 0
    CREDIT = 1
    PFC = 2


class Cause(IntEnum):
    """Why ``vl`` dropped a frame."""

    LIMIT = 0
    HEADROOM = 1
    TOO_BIG = 2
    LINK_DOWN = 3
    RESET = 4
    NO_MEMORY = 5


@dataclass(frozen=True)
class Entry:
    """A turn in an arbitration table: ``lane`` may send ``weight`` times 64 bytes."""

    lane: int
    weight: int


@dataclass(frozen=True)
class LaneBuffer:
    """A lane's room. ``limit_bytes``: what may wait in the port (LOSSY). The rest is of the other end's input buffer:
    its size (CREDIT), or when the lane is stopped, goes on, and how much fits in after it was stopped (PFC)."""

    limit_bytes: int = 0
    credit_bytes: int = 0
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0


@dataclass(frozen=True)
class Port:
    """The options of a ``vl``.

    ``lane_of_dscp`` names the lane of a DSCP; every other DSCP, and what is not IP, has ``default_lane``. ICMP and TCP
    segments without data go to ``control_lane`` if one is given. Lane 15 goes before all others and is never subject
    to flow control. ``return_ns`` is how long the news of a frame that left the other end's buffer takes back here.
    ``jitter_ns``: each frame waits up to so long, at random, before it may be sent; the order of a lane stays.
    """

    rate_bps: int
    buffers: Mapping[int, LaneBuffer]
    flow_control: FlowControl = FlowControl.CREDIT
    low: Sequence[Entry] = (Entry(0, 64),)
    high: Sequence[Entry] = ()
    high_limit: int = HIGH_UNLIMITED
    lane_of_dscp: Mapping[int, int] = field(default_factory=dict)
    default_lane: int = 0
    control_lane: int | None = None
    delay_ns: int = 0
    return_ns: int = 0
    jitter_ns: int = 0

    @property
    def lanes(self) -> frozenset[int]:
        """The lanes that frames can come into."""
        control = [] if self.control_lane is None else [self.control_lane]
        return frozenset([self.default_lane, *self.lane_of_dscp.values(), *control])


def install(index: int, interface: str, port: Port) -> Request:
    """Make ``vl`` the root qdisc of an interface in place of what is there. Raises UsageError naming what is wrong."""
    flags = netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE
    body = netlink.traffic_control(index, HANDLE, netlink.TC_H_ROOT, 0, "vl", options(port))
    return Request(netlink.RTM_NEWQDISC, flags, body, f"making {interface} a port with virtual lanes (module sch_vl)")


def change(index: int, interface: str, port: Port) -> Request:
    """Change the options of an interface's ``vl``; what waits goes on waiting if it still can."""
    body = netlink.traffic_control(index, HANDLE, netlink.TC_H_ROOT, 0, "vl", options(port))
    return Request(netlink.RTM_NEWQDISC, 0, body, f"changing the virtual lanes of {interface}")


def options(port: Port) -> bytes:
    """Return TCA_OPTIONS' payload. Raises UsageError naming what is wrong."""
    if faults := list(_faults(port)):
        raise UsageError(f"virtual lanes: {'; '.join(faults)}")
    control = _NO_LANE if port.control_lane is None else port.control_lane
    times_ns = (port.delay_ns, port.return_ns, port.jitter_ns)
    head = _PORT_OPTIONS.pack(VERSION, port.flow_control.value, control, port.high_limit, port.rate_bps, *times_ns)
    dscps = bytes(port.lane_of_dscp.get(dscp, port.default_lane) for dscp in range(_DSCPS))
    parts = [head, dscps, _table(port.high), _table(port.low), _buffers(port.buffers)]
    return b"".join(netlink.attribute(kind, payload) for kind, payload in enumerate(parts, start=1))


def _table(entries: Sequence[Entry]) -> bytes:
    return b"".join(bytes((entry.lane, entry.weight)) for entry in entries)


def _buffers(buffers: Mapping[int, LaneBuffer]) -> bytes:
    rows = (buffers.get(lane, LaneBuffer()) for lane in range(MANAGEMENT_LANE + 1))
    return b"".join(
        _LANE_OPTIONS.pack(row.limit_bytes, row.credit_bytes, row.xoff_bytes, row.xon_bytes, row.headroom_bytes)
        for row in rows
    )


def _faults(port: Port) -> Iterator[str]:
    if port.rate_bps <= 0:
        yield f"rate {port.rate_bps} bit/s must be above 0"
    for name, value in (("delay", port.delay_ns), ("return time", port.return_ns), ("jitter", port.jitter_ns)):
        if not 0 <= value <= _MOST_DELAY_NS:
            yield f"{name} {value} ns must be between 0 and {_MOST_DELAY_NS}"
    if not 0 <= port.high_limit <= HIGH_UNLIMITED:
        yield f"limit of high priority {port.high_limit} must be between 0 and {HIGH_UNLIMITED} (unlimited)"
    for dscp in port.lane_of_dscp:
        if not 0 <= dscp < _DSCPS:
            yield f"DSCP {dscp} must be between 0 and {_DSCPS - 1}"
    yield from _table_faults(port)
    for lane in sorted(port.lanes):
        yield from _lane_faults(port, lane)


def _table_faults(port: Port) -> Iterator[str]:
    for name, table in (("high", port.high), ("low", port.low)):
        if len(table) > _MOST_ENTRIES:
            yield f"{name} priority table has {len(table)} entries, more than {_MOST_ENTRIES}"
        for entry in table:
            if not 0 <= entry.lane < DATA_LANES:
                yield f"{name} priority table has lane {entry.lane}; arbitrated lanes are 0 to {DATA_LANES - 1}"
            if not 1 <= entry.weight <= _MOST_WEIGHT:
                yield f"lane {entry.lane} has weight {entry.weight}; weights are 1 to {_MOST_WEIGHT}"


def _lane_faults(port: Port, lane: int) -> Iterator[str]:
    if not 0 <= lane <= MANAGEMENT_LANE:
        yield f"lane {lane} does not exist; lanes are 0 to {MANAGEMENT_LANE}"
        return
    buffer = port.buffers.get(lane, LaneBuffer())
    sizes = (buffer.limit_bytes, buffer.credit_bytes, buffer.xoff_bytes, buffer.xon_bytes, buffer.headroom_bytes)
    if not all(0 <= size <= _MOST_BYTES for size in sizes):
        yield f"lane {lane}: sizes must be between 0 and {_MOST_BYTES} bytes, not {sizes}"
    if port.flow_control is FlowControl.LOSSY and not buffer.limit_bytes:
        yield f"lane {lane}: limit_bytes must be above 0"
    if lane == MANAGEMENT_LANE:
        return
    if lane not in {entry.lane for table in (port.high, port.low) for entry in table}:
        yield f"lane {lane} is in no arbitration table and would never send; give it an entry"
    if port.flow_control is FlowControl.CREDIT and not buffer.credit_bytes:
        yield f"lane {lane}: credit_bytes must be above 0"
    if port.flow_control is FlowControl.PFC and not 0 <= buffer.xon_bytes <= buffer.xoff_bytes > 0:
        yield f"lane {lane}: xon_bytes {buffer.xon_bytes} must not be above xoff_bytes {buffer.xoff_bytes}, which not 0"


@dataclass(frozen=True)
class LaneStats:
    """A lane of a port. Counters are cumulative, in bytes, packets, ns (CLOCK_MONOTONIC).

    ``sent``: delivered to the other end. ``stalls``: how often the frame in front found no room at the other end;
    ``stalled_ns``: how long the link was free, a frame waited and there was no room; ``stalled_since_ns``: since when
    there has been none, 0 if there is. Of the other end's input buffer: ``buffer_bytes`` is its size, ``used_bytes``
    what of it is taken as far as this end knows, ``buffered_bytes`` what is in it.
    """

    lane: int
    backlog_packets: int
    backlog_bytes: int
    sent_bytes: int
    sent_packets: int
    dropped_bytes: Mapping[Cause, int]
    dropped_packets: Mapping[Cause, int]
    stalls: int
    stalled_ns: int
    stalled_since_ns: int
    buffer_bytes: int
    used_bytes: int
    buffered_bytes: int
    most_buffered_bytes: int


@dataclass(frozen=True)
class Wait:
    """``bytes`` in the input buffer of ``input_lane`` of the interface ``input_index`` wait in ``lane`` of a port."""

    input_index: int
    input_lane: int
    lane: int
    bytes: int


@dataclass(frozen=True)
class PortStats:
    """A port at ``now_ns``. ``index`` and ``peer_index`` are of the two ends of its link, each in its own namespace;
    ``link_packets`` and ``link_bytes`` are being sent or under way and in no lane's backlog any more."""

    index: int
    peer_index: int
    flow_control: FlowControl
    link_packets: int
    link_bytes: int
    now_ns: int
    lanes: Mapping[int, LaneStats]
    waits: tuple[Wait, ...]

    def dropped_bytes(self, *causes: Cause) -> int:
        """Return what all lanes dropped, for these causes or for any."""
        return sum(lane.dropped_bytes[cause] for lane in self.lanes.values() for cause in causes or Cause)


def read(dump: bytes) -> dict[int, PortStats]:
    """Return the ports in a qdisc dump (:meth:`Netlink.dump_qdiscs`) by interface index; other qdiscs are passed over.

    Raises EmulationError if an answer is of another version of the module, or was too short for all that it had.
    """
    found = (_read_message(body) for _, _, body in netlink.messages(dump))
    return {port.index: port for port in found if port is not None}


def _read_message(body: bytes) -> PortStats | None:
    attributes = dict(netlink.attributes_of(body, _TCMSG_BYTES))
    if attributes.get(_KIND) != b"vl\0":
        return None
    return parse(dict(netlink.attributes_of(attributes[_STATS2], 0))[_APP])


def parse(payload: bytes) -> PortStats:
    """Return the port of a TCA_STATS_APP payload. Raises EmulationError as :func:`read`."""
    version, index, peer, lanes, waits, all_waits, mode, packets, link_bytes, now_ns = _PORT_STATS.unpack_from(payload)
    if version != VERSION:
        raise EmulationError(
            f"the module sch_vl speaks version {version}, this program {VERSION}; load the matching one"
        )
    if waits < all_waits:
        raise EmulationError(f"interface {index}: only {waits} of {all_waits} waits fitted into the kernel's answer")
    starts_at = _PORT_STATS.size + lanes * _LANE_STATS.size
    rows = (_lane(_LANE_STATS.unpack_from(payload, _PORT_STATS.size + i * _LANE_STATS.size)) for i in range(lanes))
    held = tuple(Wait(*_WAIT.unpack_from(payload, starts_at + i * _WAIT.size)) for i in range(waits))
    by_number = {row.lane: row for row in rows}
    return PortStats(index, peer, FlowControl(mode), packets, link_bytes, now_ns, by_number, held)


def _lane(values: tuple[int, ...]) -> LaneStats:
    dropped_bytes = dict(zip(Cause, values[5:11], strict=True))
    dropped_packets = dict(zip(Cause, values[11:17], strict=True))
    names = [field.name for field in fields(LaneStats)]
    before, after = zip(names[:5], values[:5], strict=True), zip(names[7:], values[17:], strict=True)
    return LaneStats(dropped_bytes=dropped_bytes, dropped_packets=dropped_packets, **dict(before), **dict(after))
