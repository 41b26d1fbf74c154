"""Sockets of other guests, by a connection to them: what :class:`fabric.world.kernel_api.netlink.Netlink` needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.isolation import netns

Dial = Callable[[int], Connection]
"""Returns a new connection to a guest, by its number."""
SEND, RECEIVE = b"s", b"r"
_dial: Dial | None = None


def dial_by(dial: Dial) -> None:
    """Say how other guests are reached."""
    global _dial
    _dial = dial


class RelayedSocket:
    """A netlink socket in another guest."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def send(self, data: bytes) -> None:
        """Send a datagram. Raises OSError as a socket does."""
        self._asked(SEND + data)

    def recv(self, _: int) -> bytes:
        """Return the next datagram. Raises OSError as a socket does."""
        return self._asked(RECEIVE)

    def _asked(self, request: bytes) -> bytes:
        self._connection.send_bytes(request)
        if not self._connection.poll(2 * self._timeout_s):
            raise BlockingIOError
        answer = self._connection.recv()
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        assert isinstance(answer, bytes)
        return answer

    def close(self) -> None:
        """Close it, there, too."""
        self._connection.close()


def relayed_socket(namespace: Path, timeout_s: float) -> RelayedSocket:
    """Return a netlink socket in a namespace of another guest. Raises EmulationError."""
    if _dial is None:
        raise EmulationError(f"{namespace}: this process has no connection to other guests of the run")
    connection = _dial(netns.guest_of(namespace))
    connection.send(("netlink", netns.as_seen_there(namespace)))
    return RelayedSocket(connection, timeout_s)
