"""Run in a guest: prints in which order segments (S) and acknowledgements (a) of what a program sends pass its link in
that moment, beside another program that does nothing then, unmaps memory, or closes a file."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from fabric.world.engines import VIRTUAL
from fabric.world.isolation import netns
from tests.fabric.world.virtual.saturated_link import ADDRESS, PORT, SEGMENT_BYTES, make_link, shaped

RATE_BPS = 1_000_000_000
SEGMENTS = 4
_PACKETS_OF_ALL = socket.htons(3)
_HEADERS_BYTES = 14 + 20 + 32


def started(work: Callable[[], object]) -> int:
    process = os.fork()
    if process == 0:
        work()
        os._exit(0)
    return process


def take_all() -> None:
    listener = socket.create_server((ADDRESS["b"], PORT))
    while True:
        connection, _ = listener.accept()
        while connection.recv(1 << 16):
            pass


def act_in_the_moment(act: Callable[[], object]) -> None:
    VIRTUAL.settle()
    act()
    VIRTUAL.settle()


def order_beside(act: Callable[[], object]) -> str:
    """Send at a whole second, in which another program acts just before."""
    with socket.create_connection((ADDRESS["b"], PORT)) as connection:
        connection.sendall(bytes(10 * SEGMENT_BYTES))  # The window has room for all that follows.
        VIRTUAL.settle()
        other = started(lambda: act_in_the_moment(act))
        for _ in range(40):  # To the scheduler, who slept has then run for as long as any other, however young.
            os.waitpid(started(lambda: None), 0)
        time.sleep(0.1)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, _PACKETS_OF_ALL) as link:
            link.bind(("a", 0))
            VIRTUAL.settle()
            connection.sendall(bytes(SEGMENTS * SEGMENT_BYTES))
            time.sleep(1e-6)
            link.setblocking(False)
            seen = passed(link)
    os.waitpid(other, 0)
    return seen


def passed(link: socket.socket) -> str:
    found = ""
    while True:
        try:
            frame = link.recv(1 << 16)
        except BlockingIOError:
            return found
        found += "S" if len(frame) > _HEADERS_BYTES else "a"


def close_a_file() -> None:
    os.close(os.open("/etc/hosts", os.O_RDONLY))


def main() -> None:
    Path("/run/netns").mkdir(exist_ok=True)
    make_link({name: shaped(name, RATE_BPS) for name in "ab"})
    with netns.inside(netns.netns_path("b")):
        started(take_all)
    netns.enter(netns.netns_path("a"))
    time.sleep(0.1)
    memory = mmap.mmap(-1, 1 << 20)
    for act in (lambda: None, memory.close, close_a_file):
        print(order_beside(act))


if __name__ == "__main__":
    main()
