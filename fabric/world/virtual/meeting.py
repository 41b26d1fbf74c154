"""Where the machines of one run meet: a socket of the first one, and a key that proves who belongs to it.

Connections are :class:`multiprocessing.connection.Connection`, whose two ends have proved to each other that they have
the key, which itself is never sent.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from fabric.errors import EmulationError

KEY = "FABRIC_MEETING_KEY"
"""The environment's name of the key on the machines that are to join."""
JOIN_S = 300.0
"""How long machines may take to join: they load Python from shared disks, and compile it once."""
_PROVES_IN_S = 10.0
_UNANSWERED_MS = 30_000
"""How long what was sent may stay unacknowledged: a machine that has vanished does not close its connections."""
_POLL_S = 0.1
_BACKLOG = 64


@dataclass(frozen=True)
class Meeting:
    """A meeting of so many machines, as its first one has it: the descriptor of a socket that listens, and the key."""

    descriptor: int
    key: str
    machines: int

    def listener(self) -> socket.socket:
        """Return its socket, which the caller closes."""
        return socket.socket(fileno=os.dup(self.descriptor))


@contextmanager
def opened(address: str, machines: int) -> Iterator[Meeting]:
    """Open a meeting at an address of this machine, for the time of a block. Raises EmulationError if it is not one."""
    try:
        listener = socket.create_server((address, 0), backlog=_BACKLOG)
    except OSError as error:
        raise EmulationError(
            f"--address {address}: cannot listen there: {error.strerror or error}; name an address of this machine "
            "that the others reach"
        ) from error
    with listener:
        yield Meeting(listener.fileno(), secrets.token_hex(32), machines)


def dialled(address: str, port: int, key: str, timeout_s: float = JOIN_S) -> Connection:
    """Return a connection to a machine that has the key. Raises EmulationError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return _proved(socket.create_connection((address, port), timeout_s), key, timeout_s, asks_first=False)
        except (OSError, EOFError, AuthenticationError) as error:
            if time.monotonic() > deadline or isinstance(error, AuthenticationError):
                raise EmulationError(f"{address}:{port}: no connection within {timeout_s:g} s: {error}") from error
            time.sleep(_POLL_S)


def accepted(listener: socket.socket, key: str, timeout_s: float, what: str) -> Connection:
    """Return the next connection by who has the key; others are closed. Raises EmulationError naming ``what`` it
    awaited."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        listener.settimeout(left_s)
        try:
            return _proved(listener.accept()[0], key, _PROVES_IN_S, asks_first=True)
        except (OSError, EOFError, AuthenticationError):
            continue
    raise EmulationError(f"waited {timeout_s:g} s for {what}")


def _proved(sock: socket.socket, key: str, timeout_s: float, asks_first: bool) -> Connection:
    """Make a socket a connection whose other end has the key. Raises AuthenticationError, OSError, EOFError."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
    _time_reads(sock, timeout_s)
    connection = Connection(sock.detach())
    try:
        for ask in (deliver_challenge, answer_challenge) if asks_first else (answer_challenge, deliver_challenge):
            ask(connection, key.encode())
    except BaseException:
        connection.close()
        raise
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        _time_reads(same, 0)
    return connection


def _time_reads(sock: socket.socket, seconds: float) -> None:
    """Let reading end with an error after a time; 0: never."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), 0))
