"""Qdisc dumps of lossless ports, made up as the kernel's are."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from fabric.queueing import vl
from fabric.queueing.vl import DropCause, LaneStats, PortStats, Wait
from fabric.queueing.vl_abi import LANE_STATS, PORT_STATS, WAIT, PortHead
from fabric.world.kernel_api import netlink


def lane(number: int, **values: int) -> LaneStats:
    """Return a lane that has done nothing but what is given; ``drops`` are of the cause LIMIT."""
    drops = values.pop("drops", 0)
    fields = dict.fromkeys(("backlog_packets", "backlog_bytes", "sent_bytes", "sent_packets"), 0)
    fields |= dict.fromkeys(("stalls", "stalled_ns", "stalled_since_ns", "buffer_bytes", "used_bytes"), 0)
    fields |= (
        dict.fromkeys(
            (
                "buffered_bytes",
                "most_buffered_bytes",
                "marked_bytes",
                "marked_packets",
                "trimmed_bytes",
                "trimmed_packets",
            ),
            0,
        )
        | values
    )
    packets = tuple(drops if cause is DropCause.LIMIT else 0 for cause in DropCause)
    dropped_bytes = tuple(1000 * count for count in packets)
    return LaneStats(lane=number, dropped_packets=packets, dropped_bytes=dropped_bytes, **fields)


def port(
    index: int, lanes: Sequence[LaneStats], waits: Sequence[Wait] = (), peer: int = 1, now_ns: int = 10**9
) -> PortStats:
    """Return a port with nothing under way."""
    by_number: Mapping[int, LaneStats] = {one.lane: one for one in lanes}
    return PortStats(index, peer, vl.FlowControlMode.CREDIT, 0, 0, now_ns, by_number, tuple(waits))


def message(found: PortStats, *, version: int = vl.VERSION, missing_waits: int = 0, options: int = 300) -> bytes:
    """Return what the kernel tells of a port, with options of that many bytes before the statistics."""
    head = PortHead(
        version=version,
        index=found.index,
        peer_index=found.peer_index,
        lanes=len(found.lanes),
        waits=len(found.waits),
        all_waits=len(found.waits) + missing_waits,
        mode=found.flow_control.value,
        link_packets=found.link_packets,
        link_bytes=found.link_bytes,
        now_ns=found.now_ns,
    )
    parts = [PORT_STATS.pack(head), *map(LANE_STATS.pack, found.lanes.values()), *map(WAIT.pack, found.waits)]
    stats = netlink.attribute(1, bytes(12)) + netlink.attribute(3, bytes(20)) + netlink.attribute(4, b"".join(parts))
    body = netlink.traffic_control(found.index, vl.HANDLE, netlink.TC_H_ROOT, 0, "vl", bytes(options))
    body += netlink.attribute(7, stats)
    return netlink.HEADER.pack(netlink.HEADER.size + len(body), netlink.RTM_NEWQDISC, 0, 1, 0) + body


def other_qdisc(index: int) -> bytes:
    """Return what the kernel tells of an interface without queues."""
    body = netlink.traffic_control(index, 0, netlink.TC_H_ROOT, 0, "noqueue", b"") + netlink.attribute(7, bytes(40))
    return struct.pack("=IHHII", netlink.HEADER.size + len(body), netlink.RTM_NEWQDISC, 0, 1, 0) + body
