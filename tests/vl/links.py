"""Measurements of one link between two hosts, in a guest."""

from __future__ import annotations

import os
import socket
import time

from fabric import vl

from tests.vl import lab as labs


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
    entries = [vl.Entry(lane, weight) for lane, weight in zip(lanes, weights, strict=True)]
    port = vl.Port(
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
    return {"sent": list(sent.values()), "rate": sum(sent.values()) * 8e9 / elapsed_ns, "dropped": after.dropped_bytes()}
