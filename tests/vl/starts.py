"""Measurements of when frames of a busy port start, as those tell who look at the port, wait for its room or bring it a
frame, in a guest."""

from __future__ import annotations

import socket
import struct
import time
from itertools import pairwise

from fabric.queueing import vl
from tests.vl import lab as labs
from tests.vl.lab import Lab
from tests.vl.leaks import redirect

PAYLOAD_BYTES = 958
"""A frame of 1,000 bytes: 8 us at 1 Gbit/s."""
_RATE_BPS = 10**9
_FRAME_NS = 8000
_SO_SNDBUFFORCE = 32


def _sender(lab: Lab) -> socket.socket:
    sender = lab.udp("a")
    sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 24)
    return sender


def _send(lab: Lab, sender: socket.socket, number: int = 0) -> int:
    """Send a datagram; return when."""
    at_ns = time.monotonic_ns()
    sender.sendto(struct.pack("=I", number).ljust(PAYLOAD_BYTES, b"\0"), (lab.ip("b"), 5000))
    return at_ns


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def backlogs(frames: int, delay_ns: int, offset_ns: int) -> list[int]:
    """Send frames at once on a link with a delay; return how many wait, as the port says, so long after each start."""
    lab = labs.two_hosts(labs.one_lane(_RATE_BPS, delay_ns=delay_ns))
    sender, sink = _sender(lab), lab.udp("b")
    start_ns = _send(lab, sender)
    for _ in range(frames - 1):
        _send(lab, sender)
    found = []
    for number in range(frames):
        _sleep_until(start_ns + number * _FRAME_NS + offset_ns)
        found.append(lab.stats()["a-b"].lanes[0].backlog_packets)
    sink.close()
    return found


def dropped_where_one_fits(frames: int, delay_ns: int, offset_ns: int) -> int:
    """Fill the queue of a lossy port with a delay, then send a frame so long after each start, which makes room for
    one; return how many were dropped."""
    lane = vl.LaneBuffer(limit_bytes=3 * (PAYLOAD_BYTES + 42))
    lab = labs.two_hosts(vl.VlConfig(_RATE_BPS, {0: lane}, vl.FlowControlMode.LOSSY, delay_ns=delay_ns))
    sender, sink = _sender(lab), lab.udp("b")
    start_ns = _send(lab, sender)
    for _ in range(3):
        _send(lab, sender)
    for number in range(1, frames):
        _sleep_until(start_ns + number * _FRAME_NS + offset_ns)
        _send(lab, sender)
    sink.close()
    return lab.stats()["a-b"].lanes[0].dropped_packets[vl.DropCause.LIMIT]


def gaps_behind_a_slow_port(frames: int, delay_ns: int) -> list[int]:
    """Send frames over a link of 20 us, with credits for two of them, through a switch whose port to the receiver is
    half as fast and has a delay; return the time in ns between frames as they arrive."""
    lab = Lab()
    for host in "ab":
        lab.add_host(host)
    lab.link("a", "s", labs.one_lane(_RATE_BPS, credit_bytes=2 * (PAYLOAD_BYTES + 42), delay_ns=20_000))
    lab.link("b", "s", labs.one_lane(_RATE_BPS), labs.one_lane(_RATE_BPS // 2, delay_ns=delay_ns))
    lab.give_addresses()
    redirect(lab, "s-a", "s-b")
    redirect(lab, "s-b", "s-a")
    sender, sink = _sender(lab), lab.udp("b")
    sink.settimeout(10)
    for number in range(frames):
        _send(lab, sender, number)
    came_ns = []
    for number in range(frames):
        assert struct.unpack_from("=I", sink.recv(65536)) == (number,)
        came_ns.append(time.monotonic_ns())
    return [after - before for before, after in pairwise(came_ns)]
