"""Measurements of one link between two hosts, in a guest."""

from __future__ import annotations

import os
import socket
import time

from tests.vl import lab as labs
from tests.vl.lab import FRAME_BYTES, SEGMENT_BYTES


def rate(rate_bps: int, size_bytes: int) -> float:
    """Return the rate, in bit/s, at which frames of one TCP connection come."""
    lab = labs.two_hosts(labs.one_lane(rate_bps))
    with lab.inside("b"):
        listener = socket.create_server((lab.ip("b"), 5000))
    if os.fork() == 0:
        with lab.inside("a"), socket.create_connection((lab.ip("b"), 5000)) as connection:
            connection.sendall(bytes(size_bytes))
        os._exit(0)
    connection, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(262_144, size_bytes // 100))
    buffer, moments, got = bytearray(1 << 20), [], 0
    while part := connection.recv_into(buffer):
        got += part
        moments.append((time.monotonic_ns(), got))
    first_ns, first_bytes = next(moment for moment in moments if moment[1] > size_bytes / 5)
    last_ns, last_bytes = moments[-1]
    return (last_bytes - first_bytes) * 8e9 / (last_ns - first_ns) * FRAME_BYTES / SEGMENT_BYTES
