"""Qdisc dumps of lossless ports, made up as the kernel's are."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from fabric.queueing import vl
from fabric.queueing.vl import Cause, LaneStats, PortStats, Wait
from fabric.world import netlink


def lane(number: int, **values: int) -> LaneStats:
    """Return a lane that has done nothing but what is given; ``drops`` are of the cause LIMIT."""
    drops = values.pop("drops", 0)
    fields = dict.fromkeys(("backlog_packets", "backlog_bytes", "sent_bytes", "sent_packets"), 0)
    fields |= dict.fromkeys(("stalls", "stalled_ns", "stalled_since_ns", "buffer_bytes", "used_bytes"), 0)
    fields |= {"buffered_bytes": 0, "most_buffered_bytes": 0} | values
    none = dict.fromkeys(Cause, 0)
    dropped_packets, dropped_bytes = none | {Cause.LIMIT: drops}, none | {Cause.LIMIT: 1000 * drops}
    return LaneStats(lane=number, dropped_packets=dropped_packets, dropped_bytes=dropped_bytes, **fields)


def port(
    index: int, lanes: Sequence[LaneStats], waits: Sequence[Wait] = (), peer: int = 1, now_ns: int = 10**9
) -> PortStats:
    """Return a port with nothing under way."""
    by_number: Mapping[int, LaneStats] = {one.lane: one for one in lanes}
    return PortStats(index, peer, vl.FlowControl.CREDIT, 0, 0, now_ns, by_number, tuple(waits))


def message(found: PortStats, *, version: int = vl.VERSION, missing_waits: int = 0, options: int = 300) -> bytes:
    """Return what the kernel tells of a port, with options of that many bytes before the statistics."""
    count = len(found.waits)
    head = (version, found.index, found.peer_index, len(found.lanes), count, count + missing_waits, 1)
    parts = [vl._PORT_STATS.pack(*head, found.link_packets, found.link_bytes, found.now_ns)]
    parts += [_lane(one) for one in found.lanes.values()]
    parts += [vl._WAIT.pack(wait.input_index, wait.input_lane, wait.lane, wait.bytes) for wait in found.waits]
    stats = netlink.attribute(1, bytes(12)) + netlink.attribute(3, bytes(20)) + netlink.attribute(4, b"".join(parts))
    body = netlink.traffic_control(found.index, vl.HANDLE, netlink.TC_H_ROOT, 0, "vl", bytes(options))
    body += netlink.attribute(7, stats)
    return netlink.HEADER.pack(netlink.HEADER.size + len(body), netlink.RTM_NEWQDISC, 0, 1, 0) + body


def other_qdisc(index: int) -> bytes:
    """Return what the kernel tells of an interface without queues."""
    body = netlink.traffic_control(index, 0, netlink.TC_H_ROOT, 0, "noqueue", b"") + netlink.attribute(7, bytes(40))
    return struct.pack("=IHHII", netlink.HEADER.size + len(body), netlink.RTM_NEWQDISC, 0, 1, 0) + body


def _lane(one: LaneStats) -> bytes:
    head = (one.lane, one.backlog_packets, one.backlog_bytes, one.sent_bytes, one.sent_packets)
    buffers = (one.buffer_bytes, one.used_bytes, one.buffered_bytes, one.most_buffered_bytes)
    stalls = (one.stalls, one.stalled_ns, one.stalled_since_ns)
    return vl._LANE_STATS.pack(*head, *one.dropped_bytes.values(), *one.dropped_packets.values(), *stalls, *buffers)
