"""Timeouts as a kernel takes them for a socket: SO_RCVTIMEO and SO_SNDTIMEO.

A socket that has them blocks, and fails with BlockingIOError once they are over. With Python's own timeouts, every call
would ask first whether it must wait, which is a system call more.
"""

from __future__ import annotations

import struct

_TIMEVAL = struct.Struct("ll")


def timeval(seconds: float) -> bytes:
    """Return a time above 0 as a ``struct timeval``: at least a microsecond, for 0 would stand forever."""
    whole, fraction = divmod(seconds, 1)
    return _TIMEVAL.pack(int(whole), max(int(fraction * 1e6), 0 if whole else 1))
