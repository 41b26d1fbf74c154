"""Measurements of one link between two hosts, in a guest."""

from __future__ import annotations

import os
import random
import socket
import statistics
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

from fabric.queueing import vl
from fabric.world.kernel_api import netlink
from tests.vl import lab as labs
from tests.vl.lab import Lab

_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_POISSON_PAYLOAD_BYTES = 958
"""A frame of 1,000 bytes: 8 us at 1 Gbit/s."""


def rate(rate_bps: int, size_bytes: int) -> float:
    """Return the rate, in bit/s, at which frames of one TCP connection come."""
    return labs.goodput_bps(labs.two_hosts(labs.one_lane(rate_bps)), "a", "b", size_bytes)


def latency(rate_bps: int, delay_ns: int, payload_bytes: int) -> list[int]:
    """Return, in ns, how long datagrams that are alone take there and back again."""
    lab = labs.two_hosts(labs.one_lane(rate_bps, delay_ns=delay_ns))
    a, b = lab.udp("a"), lab.udp("b")
    if os.fork() == 0:
        for _ in range(5):
            data, address = b.recvfrom(65536)
            b.sendto(data, address)
        os._exit(0)
    found = []
    for _ in range(5):
        time.sleep(0.01)
        sent_ns = time.monotonic_ns()
        a.sendto(bytes(payload_bytes), (lab.ip("b"), 5000))
        a.recv(65536)
        found.append(time.monotonic_ns() - sent_ns)
    return found


def shares(rate_bps: int, weights: list[int], sizes: list[int], high: bool) -> dict[str, object]:
    """Flood a link from one socket a lane, by datagrams of ``sizes`` bytes; return what each lane had of it.

    Lane i has weight i and DSCP 8 (i + 1). With ``high``, lane 0 is of high priority instead, limited to 4 KB.
    """
    lanes = range(len(weights))
    entries = [vl.ArbitrationEntry(lane, weight) for lane, weight in zip(lanes, weights, strict=True)]
    port = vl.VlConfig(
        rate_bps,
        {lane: vl.LaneBuffer(credit_bytes=labs.CREDIT_BYTES) for lane in lanes},
        low=entries[1:] if high else entries,
        high=entries[:1] if high else (),
        high_limit=1,
        lane_of_dscp={8 * (lane + 1): lane for lane in lanes},
    )
    lab = labs.two_hosts(port)
    sink = lab.udp("b")
    stop_s = time.monotonic() + 0.02 * 10**10 / rate_bps
    for lane, size in zip(lanes, sizes, strict=True):
        if os.fork() == 0:
            with lab.inside("a"):
                flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            flood.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 32 * (lane + 1))
            while time.monotonic() < stop_s:
                flood.sendto(bytes(size), (lab.ip("b"), 5000))
            os._exit(0)
    half_s = (stop_s + time.monotonic()) / 2
    time.sleep(half_s - time.monotonic())
    before = lab.stats()["a-b"]
    time.sleep(stop_s - time.monotonic() - 1e-6)
    after = lab.stats()["a-b"]
    sink.close()
    sent = {lane: after.lanes[lane].sent_bytes - before.lanes[lane].sent_bytes for lane in lanes}
    elapsed_ns = after.now_ns - before.now_ns
    return {
        "sent": list(sent.values()),
        "rate": sum(sent.values()) * 8e9 / elapsed_ns,
        "dropped": after.dropped_bytes(),
    }


def blocked_sender(datagrams: int) -> dict[str, float]:
    """Flood through a slow link; return how long the sender was kept, in s, and what was lost on the way."""
    lab = labs.two_hosts(labs.one_lane(1_000_000_000, credit_bytes=32 * 1024))
    sink = lab.udp("b")
    sink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**30)
    started_s = time.monotonic()
    os.waitpid(labs.flood(lab, "a", "b", datagrams), 0)
    kept_s = time.monotonic() - started_s
    time.sleep(0.1)
    sink.setblocking(False)
    got = 0
    with suppress(BlockingIOError):
        while sink.recv(65536):
            got += 1
    return {"kept_s": kept_s, "received": got, "dropped_bytes": sum(p.dropped_bytes() for p in lab.stats().values())}


def large_frames() -> dict[str, object]:
    """Send super-packets of TCP over a link with little credit, then datagrams that no credit is enough for."""
    lab = labs.two_hosts(labs.one_lane(10_000_000_000, credit_bytes=2 * labs.FRAME_BYTES))
    for name in ("a-b", "b-a"):
        end = lab.interfaces[name]
        body = netlink._IFINFO.pack(0, 0, end.index, 0, 0) + netlink._u32(40, 65535)
        lab.socket_of(end.node).send([netlink.Request(netlink.RTM_NEWLINK, 0, body, "letting segments be large")])
    rate_bps = labs.goodput_bps(lab, "a", "b", 10_000_000)
    unhurt = lab.stats()["a-b"].dropped_bytes()
    lab.change("a-b", labs.one_lane(10_000_000_000, credit_bytes=1000))
    os.waitpid(labs.flood(lab, "a", "b", 10), 0)
    after = lab.stats()["a-b"].lanes[0]
    return {
        "rate": rate_bps,
        "unhurt": unhurt,
        "too_big": after.dropped_packets[vl.DropCause.TOO_BIG],
        "backlog": after.backlog_bytes,
    }


def credits_bound(credit_bytes: int, delay_ns: int, return_ns: int) -> float:
    """Return the rate of a link whose credits, not its rate, are the limit."""
    port = labs.one_lane(10_000_000_000, credit_bytes=credit_bytes, delay_ns=delay_ns, return_ns=return_ns)
    return labs.goodput_bps(labs.two_hosts(port), "a", "b", 20_000_000)


def both_ways(goes_ahead: bool) -> dict[str, int]:
    """Send data both ways on one connection, with frames of others ahead of it one way; return how many segments the
    far end took for too old, and how many the near end sent again.

    ``goes_ahead``: acknowledgements have a lane of their own.
    """
    lane = vl.LaneBuffer(credit_bytes=labs.CREDIT_BYTES)
    low = (vl.ArbitrationEntry(0, 64), vl.ArbitrationEntry(1, 64))
    lab = labs.two_hosts(vl.VlConfig(10**9, {0: lane, 1: lane}, low=low, control_lane=1 if goes_ahead else None))
    with lab.inside("b"):
        listener = socket.create_server((lab.ip("b"), 5001))
    ahead = [_connected(lab, listener) for _ in range(4)]
    near, far = _connected(lab, listener, receive_bytes=32 * 1024)
    stop_s = time.monotonic() + 0.5  # More than the least timeout after which TCP sends again.
    for sender, receiver in (*ahead, (near, far), (far, near)):
        _until(stop_s, partial(sender.send, bytes(1 << 16)))
        _until(stop_s, partial(receiver.recv, 1 << 16))
    time.sleep(stop_s - time.monotonic())
    return {"too_old": lab.count("b", "TcpExt", "TCPChallengeACK"), "sent_again": lab.count("a", "Tcp", "RetransSegs")}


def _connected(
    lab: Lab, listener: socket.socket, receive_bytes: int | None = None
) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection from host a, whose receive buffer may be given."""
    with lab.inside("a"):
        near = socket.socket()
    if receive_bytes is not None:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    near.connect(listener.getsockname())
    return near, listener.accept()[0]


def _until(stop_s: float, step: Callable[[], object]) -> None:
    """Fork a process that does something again and again."""
    if os.fork() == 0:
        while time.monotonic() < stop_s:
            step()
        os._exit(0)


def poisson_waits(rate_bps: int, loads: list[float], frames: list[int], batches: int) -> list[dict[str, float]]:
    """Send ``frames`` datagrams of one size as a Poisson process, for each load (a fraction of the link's rate).

    Return, in ns, a frame's time on the wire, the mean of how long frames waited for it and that mean's standard error,
    from ``batches`` stretches; and the most that any of them was off what it had to wait by those before it.
    """
    lab = labs.two_hosts(labs.one_lane(rate_bps))
    wire_ns = (_POISSON_PAYLOAD_BYTES + 42) * 8 * 10**9 // rate_bps
    found = []
    for seed, (load, count) in enumerate(zip(loads, frames, strict=True)):
        drawn = random.Random(seed)
        sent, came = _poisson(lab, [drawn.expovariate(load / wire_ns) for _ in range(count)])
        waits = [there - here - wire_ns for here, there in zip(sent, came, strict=True)]
        size = count // batches
        means = [statistics.fmean(waits[start : start + size]) for start in range(0, count, size)]
        found.append(
            {
                "wire_ns": wire_ns,
                "mean_ns": statistics.fmean(waits),
                "error_ns": statistics.stdev(means) / batches**0.5,
                "most_off_ns": max(abs(a - b) for a, b in zip(waits, _lindley(sent, wire_ns), strict=True)),
            }
        )
    return found


def _lindley(sent: list[int], wire_ns: int) -> list[int]:
    """Return how long each frame has to wait for the one before it: W' = max(0, W + S - gap) (Lindley, 1952)."""
    waits = [0]
    for here, there in pairwise(sent):
        waits.append(max(0, waits[-1] + wire_ns - (there - here)))
    return waits


def _poisson(lab: Lab, gaps_ns: list[float]) -> tuple[list[int], list[int]]:
    """Send a datagram after each gap; return when each was sent and when it came, by the same clock."""
    source, sink = lab.udp("a"), lab.udp("b")
    sink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**30)
    sink.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    data, address = bytes(_POISSON_PAYLOAD_BYTES), (lab.ip("b"), 5000)
    sent, begun_ns, due_ns = [], time.clock_gettime_ns(time.CLOCK_REALTIME), 10.0**6
    for gap_ns in gaps_ns:
        due_ns += gap_ns
        left_ns = due_ns - (time.clock_gettime_ns(time.CLOCK_REALTIME) - begun_ns)
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        sent.append(time.clock_gettime_ns(time.CLOCK_REALTIME))
        source.sendto(data, address)
    time.sleep(0.01)
    came = [_came_ns(sink) for _ in gaps_ns]
    for sock in (source, sink):
        sock.close()
    return sent, came


def _came_ns(sink: socket.socket) -> int:
    _, ancillary, _, _ = sink.recvmsg(2048, 64, socket.MSG_DONTWAIT)
    seconds, ns = struct.unpack("=qq", ancillary[0][2][:16])
    return int(seconds) * 10**9 + int(ns)
