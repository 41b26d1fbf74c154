"""Rank 0 reads from all others for a second; they send all they can and print how many segments are under way then."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

from fabric.model.lanes import ServiceLevel
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import accept, connect, listen

PORT = 5000
WINDOW_BYTES = 64 * 1024
OPTIONS = SocketOptions(ServiceLevel.HFREDUCE, receive_window_bytes=WINDOW_BYTES)
_UNACKED = 8 + 4 * 4  # struct tcp_info (linux/tcp.h): eight bytes of flags, then 32-bit fields.


def read_all(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def receive(address: str, senders: int) -> None:
    with listen(address, PORT, OPTIONS) as listener:
        sockets = [accept(listener, OPTIONS, 30)[0] for _ in range(senders)]
    for sock in sockets:
        threading.Thread(target=read_all, args=(sock,), daemon=True).start()
    time.sleep(2)


def send(address: str) -> None:
    sock = connect(address, PORT, OPTIONS, 30)
    threading.Thread(target=sock.sendall, args=(bytes(64 << 20),), daemon=True).start()
    time.sleep(1)
    information = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    print("unacknowledged", struct.unpack_from("=I", information, _UNACKED)[0], flush=True)


if __name__ == "__main__":
    if os.environ["RANK"] == "0":
        receive(os.environ["MASTER_ADDR"], int(os.environ["WORLD_SIZE"]) - 1)
    else:
        send(os.environ["MASTER_ADDR"])
    os._exit(0)
