"""The qdisc ``vl`` of :mod:`fabric.world.kernel_api.modules`: its options as an rtnetlink message, its statistics
from qdisc dumps.

It is a port and the link behind it: virtual lanes, InfiniBand's arbitration, exact rate and delay, and flow control by
credits or PFC towards the input buffer at the other end. :mod:`fabric.queueing.vl_abi` has the layout of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fabric.errors import EmulationError, UsageError
from fabric.queueing import vl_abi
from fabric.queueing.vl_abi import (
    HIGH_LIMIT_BYTES,
    HIGH_UNLIMITED,
    MANAGEMENT_LANE,
    VERSION,
    WEIGHT_BYTES,
    ArbitrationEntry,
    DrawOptions,
    DropCause,
    FlowControlMode,
    LaneBuffer,
    LaneStats,
    Option,
    PortHead,
    PortOptions,
    Wait,
)
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Request

__all__ = [
    "HIGH_LIMIT_BYTES",
    "HIGH_UNLIMITED",
    "MANAGEMENT_LANE",
    "VERSION",
    "WEIGHT_BYTES",
    "DropCause",
    "DrawOptions",
    "ArbitrationEntry",
    "FlowControlMode",
    "LaneBuffer",
    "LaneStats",
    "VlConfig",
    "PortStats",
    "Wait",
    "change",
    "install",
    "options",
    "parse",
    "read",
    "verify",
]

DATA_LANES = vl_abi.LANES - 1
HANDLE = 1 << 16
_MOST_WEIGHT = 255
_MOST_DELAY_NS = 10**9
_MOST_BYTES = 2**31 - 1

_TCMSG_BYTES = 20
_KIND, _STATS2, _APP = 1, 7, 4


@dataclass(frozen=True)
class VlConfig:
    """The options of a ``vl``.

    ``lane_of_dscp`` names the lane of a DSCP; every other DSCP, and what is not IP, has ``default_lane``. ICMP and TCP
    segments without data go to ``control_lane`` if one is given. Lane 15 goes before all others and is never subject
    to flow control. ``return_ns`` is how long the news of a frame that left the other end's buffer takes back here.
    ``jitter_ns``: each frame waits up to so long, at random, before it may be sent; the order of a lane stays.
    ``crosses``: the link leads to another guest of the run and delays by itself.
    ``watchdog_ns``: a lane that has stood still for so long drops what it has and what comes, until there has been room
    for as long again; 0: it never does. ``paused``: lanes that the other end has stopped, whatever room it has.
    ``lifetime_ns``: a frame that has been the first of its lane for so long, without room at the other end, is dropped;
    0: never. ``framing_bytes``: of the wire that each frame takes beside its own. ``cut_through_bytes``: once so much
    of a frame has come, the other end has it (not LOSSY); 0: once all has.
    ``trim_bytes``: a UDP datagram that finds its lane full (LOSSY) is cut to so many bytes of its IP packet, and goes
    on with ``trim_dscp``, in the lane of that; 0: it is dropped.
    """

    rate_bps: int
    buffers: Mapping[int, LaneBuffer]
    flow_control: FlowControlMode = FlowControlMode.CREDIT
    low: Sequence[ArbitrationEntry] = (ArbitrationEntry(0, 64),)
    high: Sequence[ArbitrationEntry] = ()
    high_limit: int = HIGH_UNLIMITED
    lane_of_dscp: Mapping[int, int] = field(default_factory=dict)
    default_lane: int = 0
    control_lane: int | None = None
    delay_ns: int = 0
    return_ns: int = 0
    jitter_ns: int = 0
    crosses: bool = False
    watchdog_ns: int = 0
    paused: frozenset[int] = frozenset()
    trim_bytes: int = 0
    trim_dscp: int = 0
    lifetime_ns: int = 0
    framing_bytes: int = 0
    cut_through_bytes: int = 0

    @property
    def lanes(self) -> frozenset[int]:
        """The lanes that frames can come into."""
        control = [] if self.control_lane is None else [self.control_lane]
        return frozenset([self.default_lane, *self.lane_of_dscp.values(), *control])


def install(index: int, interface: str, port: VlConfig, draws: Sequence[DrawOptions] = ()) -> Request:
    """Make ``vl`` the root qdisc of an interface in place of what is there. Raises UsageError naming what is wrong.

    ``draws``: the budgets that frames take of before they are sent (:mod:`fabric.queueing.budgets`).
    """
    flags = netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE
    body = netlink.traffic_control(index, HANDLE, netlink.TC_H_ROOT, 0, "vl", options(port, draws))
    return Request(netlink.RTM_NEWQDISC, flags, body, f"making {interface} a port with virtual lanes (module sch_vl)")


def change(index: int, interface: str, port: VlConfig, draws: Sequence[DrawOptions] = ()) -> Request:
    """Change the options of an interface's ``vl``; what waits goes on waiting if it still can."""
    body = netlink.traffic_control(index, HANDLE, netlink.TC_H_ROOT, 0, "vl", options(port, draws))
    return Request(netlink.RTM_NEWQDISC, 0, body, f"changing the virtual lanes of {interface}")


def options(port: VlConfig, draws: Sequence[DrawOptions] = ()) -> bytes:
    """Return TCA_OPTIONS' payload. Raises UsageError naming what is wrong."""
    if faults := [*_faults(port), *_draw_faults(draws)]:
        raise UsageError(f"virtual lanes: {'; '.join(faults)}")
    payloads = {
        Option.PORT: vl_abi.PORT_OPTIONS.pack(_port_options(port)),
        Option.DSCP: bytes(port.lane_of_dscp.get(dscp, port.default_lane) for dscp in range(vl_abi.DSCPS)),
        Option.HIGH: _table(port.high),
        Option.LOW: _table(port.low),
        Option.LANES: _buffers(port.buffers),
        Option.DRAWS: b"".join(map(vl_abi.DRAW_OPTIONS.pack, draws)),
    }
    return b"".join(netlink.attribute(option, payload) for option, payload in payloads.items())


def _port_options(port: VlConfig) -> PortOptions:
    return PortOptions(
        version=VERSION,
        mode=port.flow_control.value,
        control_lane=vl_abi.NO_LANE if port.control_lane is None else port.control_lane,
        high_limit=port.high_limit,
        rate_bps=port.rate_bps,
        delay_ns=port.delay_ns,
        return_ns=port.return_ns,
        jitter_ns=port.jitter_ns,
        crosses=int(port.crosses),
        watchdog_ns=port.watchdog_ns,
        paused=sum(1 << lane for lane in port.paused),
        trim_bytes=port.trim_bytes,
        trim_dscp=port.trim_dscp,
        lifetime_ns=port.lifetime_ns,
        framing_bytes=port.framing_bytes,
        cut_through_bytes=port.cut_through_bytes,
    )


def _table(entries: Sequence[ArbitrationEntry]) -> bytes:
    return b"".join(map(vl_abi.ENTRY.pack, entries))


def _buffers(buffers: Mapping[int, LaneBuffer]) -> bytes:
    return b"".join(vl_abi.LANE_OPTIONS.pack(buffers.get(lane, LaneBuffer())) for lane in range(vl_abi.LANES))


def _faults(port: VlConfig) -> Iterator[str]:
    if port.rate_bps <= 0:
        yield f"rate {port.rate_bps} bit/s must be above 0"
    times = {
        "delay": port.delay_ns,
        "return time": port.return_ns,
        "jitter": port.jitter_ns,
        "watchdog": port.watchdog_ns,
        "lifetime": port.lifetime_ns,
    }
    for name, value in times.items():
        if not 0 <= value <= _MOST_DELAY_NS:
            yield f"{name} {value} ns must be between 0 and {_MOST_DELAY_NS}"
    parts = {"trimming to": port.trim_bytes, "framing": port.framing_bytes, "cut-through": port.cut_through_bytes}
    for name, size in parts.items():
        if not 0 <= size < 2**16:
            yield f"{name} {size} B must be between 0 and 65535"
    if port.cut_through_bytes and port.flow_control is FlowControlMode.LOSSY:
        yield "cut-through needs flow control by credits or PFC"
    if not 0 <= port.high_limit <= HIGH_UNLIMITED:
        yield f"limit of high priority {port.high_limit} must be between 0 and {HIGH_UNLIMITED} (unlimited)"
    for dscp in [*port.lane_of_dscp, port.trim_dscp]:
        if not 0 <= dscp < vl_abi.DSCPS:
            yield f"DSCP {dscp} must be between 0 and {vl_abi.DSCPS - 1}"
    yield from _table_faults(port)
    for lane in sorted(port.lanes):
        yield from _lane_faults(port, lane)


def _table_faults(port: VlConfig) -> Iterator[str]:
    for name, table in (("high", port.high), ("low", port.low)):
        if len(table) > vl_abi.MOST_ENTRIES:
            yield f"{name} priority table has {len(table)} entries, more than {vl_abi.MOST_ENTRIES}"
        for entry in table:
            if not 0 <= entry.lane < DATA_LANES:
                yield f"{name} priority table has lane {entry.lane}; arbitrated lanes are 0 to {DATA_LANES - 1}"
            if not 1 <= entry.weight <= _MOST_WEIGHT:
                yield f"lane {entry.lane} has weight {entry.weight}; weights are 1 to {_MOST_WEIGHT}"


def _draw_faults(draws: Sequence[DrawOptions]) -> Iterator[str]:
    if len(draws) > vl_abi.MOST_DRAWS:
        yield f"{len(draws)} draws exceed {vl_abi.MOST_DRAWS}, the most of a port"
    for draw in draws:
        if not 0 < draw.rate <= vl_abi.MOST_BUDGET:
            yield f"budget {draw.budget}: rate {draw.rate} B/s must be between 1 and {vl_abi.MOST_BUDGET}"
        if not 0 < draw.weight <= vl_abi.MOST_DRAW_WEIGHT:
            most = vl_abi.MOST_DRAW_WEIGHT
            yield f"budget {draw.budget}: weight {draw.weight} must be between 1 and {most} thousandths"


def _lane_faults(port: VlConfig, lane: int) -> Iterator[str]:
    if not 0 <= lane <= MANAGEMENT_LANE:
        yield f"lane {lane} does not exist; lanes are 0 to {MANAGEMENT_LANE}"
        return
    buffer = port.buffers.get(lane, LaneBuffer())
    sizes = (buffer.limit_bytes, buffer.credit_bytes, buffer.xoff_bytes, buffer.xon_bytes, buffer.headroom_bytes)
    if not all(0 <= size <= _MOST_BYTES for size in sizes):
        yield f"lane {lane}: sizes must be between 0 and {_MOST_BYTES} bytes, not {sizes}"
    if not 0 <= buffer.mark_min_bytes <= buffer.mark_max_bytes <= _MOST_BYTES:
        yield f"lane {lane}: marking from {buffer.mark_min_bytes} to {buffer.mark_max_bytes} B must be a rising range"
    if not 0 <= buffer.mark_probability < 2**32:
        yield f"lane {lane}: mark_probability {buffer.mark_probability} must be between 0 and 2^32 - 1"
    if port.flow_control is FlowControlMode.LOSSY and not buffer.limit_bytes:
        yield f"lane {lane}: limit_bytes must be above 0"
    if lane == MANAGEMENT_LANE:
        return
    if lane not in {entry.lane for table in (port.high, port.low) for entry in table}:
        yield f"lane {lane} is in no arbitration table and would never send; give it an entry"
    if port.flow_control is FlowControlMode.CREDIT and not buffer.credit_bytes:
        yield f"lane {lane}: credit_bytes must be above 0"
    if port.flow_control is FlowControlMode.PFC and not 0 <= buffer.xon_bytes <= buffer.xoff_bytes > 0:
        yield f"lane {lane}: xon_bytes {buffer.xon_bytes} must not be above xoff_bytes {buffer.xoff_bytes}, which not 0"


@dataclass(frozen=True)
class PortStats:
    """A port at ``now_ns``. ``index`` and ``peer_index`` are of the two ends of its link, each in its own namespace;
    ``link_packets`` and ``link_bytes`` are being sent or under way and in no lane's backlog any more."""

    index: int
    peer_index: int
    flow_control: FlowControlMode
    link_packets: int
    link_bytes: int
    now_ns: int
    lanes: Mapping[int, LaneStats]
    waits: tuple[Wait, ...]

    def dropped_bytes(self, *causes: DropCause) -> int:
        """Return what all lanes dropped, for these causes or for any."""
        return sum(lane.dropped_bytes[cause] for lane in self.lanes.values() for cause in causes or DropCause)


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
    head = vl_abi.PORT_STATS.unpack(payload)
    verify(head)
    lanes_at = vl_abi.PORT_STATS.size_bytes
    waits_at = lanes_at + head.lanes * vl_abi.LANE_STATS.size_bytes
    rows = [vl_abi.LANE_STATS.unpack(payload, lanes_at + i * vl_abi.LANE_STATS.size_bytes) for i in range(head.lanes)]
    waits = tuple(vl_abi.WAIT.unpack(payload, waits_at + i * vl_abi.WAIT.size_bytes) for i in range(head.waits))
    return PortStats(
        index=head.index,
        peer_index=head.peer_index,
        flow_control=FlowControlMode(head.mode),
        link_packets=head.link_packets,
        link_bytes=head.link_bytes,
        now_ns=head.now_ns,
        lanes={row.lane: row for row in rows},
        waits=waits,
    )


def verify(head: PortHead) -> None:
    """Raise EmulationError if an answer is of another version of the module, or was too short for all that it had."""
    if head.version != VERSION:
        raise EmulationError(
            f"the module sch_vl speaks version {head.version}, this program {VERSION}; load the matching one"
        )
    if head.waits < head.all_waits:
        raise EmulationError(
            f"interface {head.index}: only {head.waits} of {head.all_waits} waits fitted into the kernel's answer"
        )
