"""Addresses of this machine for what listens on a port that is given: other tests may run on it at the same time."""

from __future__ import annotations

import os
from ipaddress import IPv4Address


def own_address(number: int) -> str:
    """Return one of four loopback addresses that no other process's tests use."""
    assert number in range(4)
    return str(IPv4Address("127.0.0.0") + (os.getpid() << 2) + number)  # A process's number has 22 bits.
