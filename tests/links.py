"""Waiting for links that tests have made: the kernel lets them send a moment after their carrier has come."""

from __future__ import annotations

import time
from collections.abc import Iterable

from fabric.world.kernel_api.netlink import Netlink

_TIMEOUT_S = 60.0


def wait_until_running(link: Netlink, indices: Iterable[int]) -> None:
    """Wait until interfaces of a namespace send what they are given; before, they drop it without a count."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    for index in indices:
        while not link.link(index).running:
            assert time.monotonic() < deadline_s, f"interface {index} does not send {_TIMEOUT_S:g} s after it came up"
            time.sleep(0.001)
