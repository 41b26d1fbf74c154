"""When frames come over a row of switches: with framing, cut through, from a slow link into a fast one, in a guest."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tests.vl import lab as labs
from tests.vl.lab import Lab

HEADERS_BYTES = 14 + 20 + 8
DELAY_NS = 1000


def row(rates_bps: Sequence[int], framing_bytes: int, cut_through_bytes: int) -> Lab:
    """Return hosts a and b with a row of switches between them: a link for each rate, whose way is to b."""
    lab = Lab()
    lab.add_host("a")
    lab.add_host("b")
    nodes = ["a", *(f"s{number}" for number in range(1, len(rates_bps))), "b"]
    for rate_bps, (one, other) in zip(rates_bps, pairwise(nodes), strict=True):
        port = replace(labs.one_lane(rate_bps, delay_ns=DELAY_NS), framing_bytes=framing_bytes)
        lab.link(one, other, replace(port, cut_through_bytes=0 if other == "b" else cut_through_bytes), port)
    rules = {}
    for before, switch, after in zip(nodes, nodes[1:], nodes[2:], strict=False):
        out, back = f"{{{switch}-{after}}}", f"{{{switch}-{before}}}"
        to_b, to_a = lab.ip("b"), lab.ip("a")
        rules[switch] = [f"ip,nw_dst={to_b},actions=output:{out}", f"ip,nw_dst={to_a},actions=output:{back}"]
    lab.switch(rules)
    lab.give_addresses()
    return lab


def arrivals_ns(
    rates_bps: Sequence[int], frame_bytes: int, framing_bytes: int, cut_through_bytes: int, frames: int
) -> list[int]:
    """Send frames at once from a to b; return when each has come, from when the first was sent."""
    lab = row(rates_bps, framing_bytes, cut_through_bytes)
    with lab.inside("a"):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink, address = lab.udp("b"), (lab.ip("b"), 5000)
    payload = bytes(frame_bytes - HEADERS_BYTES)
    sender.sendto(payload, address)  # Switches learn the way.
    sink.settimeout(1.0)
    sink.recv(65536)
    time.sleep(0.01)
    sent_ns = time.monotonic_ns()
    for _ in range(frames):
        sender.sendto(payload, address)
    found = []
    for _ in range(frames):
        sink.recv(65536)
        found.append(time.monotonic_ns() - sent_ns)
    return found
