"""A socket waits for as long as it was told to."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from fabric.world.kernel_api.timeval import timeval


@pytest.mark.parametrize(
    ("seconds", "packed"), [(10.0, (10, 0)), (1.25, (1, 250_000)), (0.05, (0, 50_000)), (1e-9, (0, 1))]
)
def test_times_are_seconds_and_microseconds_and_never_none(seconds: float, packed: tuple[int, int]) -> None:
    assert struct.unpack("ll", timeval(seconds)) == packed


def test_a_socket_blocks_for_that_long_and_then_says_that_it_would() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(0.05))
        started = time.monotonic()
        with pytest.raises(BlockingIOError):
            one.recv(1)
        assert time.monotonic() - started >= 0.045
