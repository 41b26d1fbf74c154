"""A wire between two network namespaces that takes a time: ``delayed_wire.py NAMESPACE NAMESPACE DELAY_US``.

Each gets an interface ``wire``; frames that are sent by one arrive at the other so much later. netem would do, but not
every kernel has it. Prints a line once the wire is there, and ends with its stdin."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

from fabric.world.isolation import netns

_TUNSETIFF = 0x400454CA
_TAP, _NO_INFORMATION = 0x0002, 0x1000
_FRAME_BYTES = 1 << 16
_MOST_AT_ONCE = 256
_SPINS_S = 100e-6
"""Timers are late by tens of microseconds: the last part of a delay is waited for without one."""


def end_of_wire(namespace: str) -> int:
    with netns.inside(netns.netns_path(namespace)):
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"wire", _TAP | _NO_INFORMATION))
    return tap


def main(one: str, other: str, delay_us: str) -> None:
    taps = [end_of_wire(one), end_of_wire(other)]
    print("there", flush=True)
    delay_s = float(delay_us) * 1e-6
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        rest_s = max(0.0, waiting[0][0] - time.monotonic() - _SPINS_S) if waiting else None
        ready = select.select([*taps, sys.stdin], [], [], rest_s)[0]
        if sys.stdin in ready:
            return
        for number, tap in enumerate(taps):
            for _ in range(_MOST_AT_ONCE if tap in ready else 0):
                try:
                    frame = os.read(tap, _FRAME_BYTES)
                except BlockingIOError:
                    break
                waiting.append((time.monotonic() + delay_s, taps[1 - number], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, frame = waiting.popleft()
            with suppress(OSError):  # Nobody is there: the interface is down.
                os.write(to, frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
