"""Sends what it is asked to, to test who is said to have sent it: ``listen``, or ``tcp`` or ``udp``, HOST and BYTES."""

from __future__ import annotations

import socket
import sys
import threading

PORT = 7777
DATAGRAM_BYTES = 20_000
"""More than a frame: a datagram goes in parts."""


def _read(connection: socket.socket) -> None:
    with connection:
        while connection.recv(1 << 16):
            pass


def _listen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.create_server(("", PORT)) as listener:
        datagrams.bind(("", PORT))
        while True:
            threading.Thread(target=_read, args=(listener.accept()[0],), daemon=True).start()


def _send(kind: str, host: str, size: int) -> None:
    kinds = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
    with socket.socket(socket.AF_INET, kinds[kind]) as connection:
        connection.connect((host, PORT))
        while size > 0:
            size -= connection.send(bytes(min(size, DATAGRAM_BYTES)))
        if kind == "tcp":
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        _listen()
    _send(sys.argv[1], sys.argv[2], int(sys.argv[3]))
