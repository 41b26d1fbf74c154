"""A port whose other end pauses it, with and without a watchdog, in a guest."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from dataclasses import replace

from fabric.queueing import vl
from tests.vl import lab as labs

_RATE_BPS = 10_000_000_000
_APART_S = 50e-6
_MARK = struct.Struct("=dI")


def paused(at_s: float, for_s: float, watchdog_s: float, datagrams: int, lifetime_s: float = 0.0) -> dict[str, object]:
    """Send a datagram every 50 us, and let the other end pause the port meanwhile; return when each that came was sent
    and when it came, from the first's start, and what the port tells then."""
    port = replace(labs.one_lane(_RATE_BPS), watchdog_ns=round(watchdog_s * 1e9), lifetime_ns=round(lifetime_s * 1e9))
    lab = labs.two_hosts(port)
    with lab.inside("a"):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink, address = lab.udp("b"), (lab.ip("b"), 5000)
    begins = time.monotonic() + 0.001
    if os.fork() == 0:
        for number in range(datagrams):
            time.sleep(max(0.0, begins + number * _APART_S - time.monotonic()))
            sender.sendto(_MARK.pack(time.monotonic() - begins, number) + bytes(1000), address)
        os._exit(0)
    if os.fork() == 0:
        time.sleep(max(0.0, begins + at_s - time.monotonic()))
        lab.change("a-b", replace(port, paused=frozenset({0})))
        time.sleep(for_s)
        lab.change("a-b", port)
        os._exit(0)
    came = []
    sink.settimeout(0.05)
    with suppress(TimeoutError):
        while True:
            sent_s, number = _MARK.unpack_from(sink.recv(65536))
            came.append((number, sent_s, time.monotonic() - begins))
    lane = lab.stats()["a-b"].lanes[0]
    dropped = lane.dropped_packets[vl.DropCause.LIFETIME if lifetime_s else vl.DropCause.WATCHDOG]
    return {"came": came, "stalls": lane.stalls, "stalled_s": lane.stalled_ns / 1e9, "dropped": dropped}
