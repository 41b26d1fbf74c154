"""Run in each guest of several, with links of DELAY_NS between every two: ``linked_guests.py WHAT``; guest 0 prints
what happened, and the run ends when it does."""

from __future__ import annotations

import ctypes
import hashlib
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from fabric.world.virtual import kernel
from fabric.world.virtual.guest import CONTROL
from fabric.world.virtual.joining import MODULE, Crossing, Together, guest_link, join, link_id

DELAY_NS = 5_000
FIRST_INDEX = 100
LINKS = 2
"""Between every two guests."""
MTU_BYTES = 4200
PORT = 5000
BEGIN_S = 20
IDLE_S = 50_000
"""So long a time takes hours if guests go through it a delay at a time."""

libc = ctypes.CDLL(None)


def address(guest: int, other: int, link: int) -> str:
    return f"10.{link}.{other}.{1 + guest}"


def mac(guest: int) -> str:
    return f"02:00:00:00:00:{1 + guest:02x}"


def make_links(together: Together) -> None:
    me = together.number
    with Netlink() as rtnetlink:
        for other in range(together.guests):
            for link in range(LINKS if other != me else 0):
                low, high = sorted((me, other))
                index = FIRST_INDEX + other * LINKS + link
                number = link_id((low * together.guests + high) * LINKS + link)
                crossing = Crossing(number, other, DELAY_NS, FIRST_INDEX + me * LINKS + link)
                name, here, there = f"x{other}n{link}", address(me, other, link), address(other, me, link)
                rtnetlink.send(
                    [
                        guest_link(LinkEnd(name, index, mac(me)), MTU_BYTES, crossing),
                        netlink.address(index, name, here, 32),
                        netlink.link_state(index, name, up=True),
                        netlink.neighbour(index, there, mac(other)),
                        netlink.route(index, name, there, here),
                    ]
                )
    wait_until(BEGIN_S)


def wait_until(seconds: float) -> None:
    moment = (ctypes.c_long * 2)(int(seconds), round(seconds % 1 * 1e9))
    libc.clock_nanosleep(time.CLOCK_MONOTONIC, 1, moment, None)


def datagrams(guest: int, other: int, link: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address(guest, other, link), PORT))
    return sock


def round_the_guests(together: Together) -> None:
    """Guest 0 sends to 1, which sends to the next, and the last to guest 0, which prints how long that took."""
    me, guests = together.number, together.guests
    following, before = (me + 1) % guests, (me - 1) % guests
    outgoing = datagrams(me, following, 0)
    incoming = outgoing if following == before else datagrams(me, before, 0)
    target = (address(following, me, 0), PORT)
    if me:
        while True:
            outgoing.sendto(incoming.recv(100), target)
    for turn in range(5):
        wait_until(BEGIN_S + 1 + turn * 0.001)
        sent_ns = time.monotonic_ns()
        outgoing.sendto(b"?", target)
        incoming.recv(100)
        print(time.monotonic_ns() - sent_ns)


def at_one_moment(together: Together) -> None:
    """Guest 1 sends by its second link and then by its first, at one moment; guest 0 prints what came first."""
    if together.number == 1:
        socks = [datagrams(1, 0, link) for link in range(LINKS)]
        for turn in range(5):
            wait_until(BEGIN_S + 1 + turn)
            for link in reversed(range(LINKS)):
                socks[link].sendto(str(link).encode(), (address(0, 1, link), PORT))
        return
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", PORT))
    print(" ".join(sock.recv(100).decode() for _ in range(5 * LINKS)))


def exchange(together: Together) -> None:
    """Guests 0 and 1 send each other as much as they can by a connection; guest 0 prints when what had come."""
    me = together.number
    if me == 1:
        connection, _ = socket.create_server((address(1, 0, 0), PORT)).accept()
    else:
        wait_until(BEGIN_S + 1)
        connection = socket.create_connection((address(1, 0, 0), PORT))
    connection.setblocking(False)
    content = hashlib.shake_128(b"linked").digest(1 << 20)
    sent = got = 0
    digest, moments = hashlib.sha256(), hashlib.sha256()
    while sent < len(content) or got < len(content):
        moved = False
        try:
            part = connection.recv(100_000)
            got += len(part)
            digest.update(part)
            moments.update(f"{time.monotonic_ns()} {got};".encode())
            moved = True
        except BlockingIOError:
            pass
        try:
            if sent < len(content):
                sent += connection.send(content[sent : sent + 10_000])
                moved = True
        except BlockingIOError:
            pass
        if not moved:
            time.sleep(1e-6)
    assert digest.digest() == hashlib.sha256(content).digest()
    print(time.monotonic_ns(), moments.hexdigest())


def idle(together: Together) -> None:
    """All sleep for long; guest 0 prints whether it woke on time."""
    before_ns = time.monotonic_ns()
    wait_until(BEGIN_S + IDLE_S)
    print((time.monotonic_ns() - before_ns) // 10**9)


def end_early(together: Together) -> None:
    """Guest 1 ends, and guest 0 waits for it."""
    if together.number == 1:
        raise SystemExit(3)
    wait_until(BEGIN_S + 80_000)


def end_late(together: Together) -> None:
    """Guest 0 computes for long."""
    while together.number == 0:
        time.sleep(1)
        sum(range(1_000_000))


def busy_together(together: Together) -> None:
    """Guest 1 computes for some time of the host's while guest 0 waits for its answer; guest 0 prints whether it slept
    meanwhile, and whether it slept for longer than it had to."""
    other = 1 - together.number
    mine = datagrams(together.number, other)
    target = (address(other, together.number, 0), PORT)
    if together.number == 1:
        asked = mine.recv(100)
        sum(range(20_000_000))
        mine.sendto(asked, target)
        return
    wait_until(BEGIN_S + 1)
    mine.sendto(b"?", target)
    mine.recv(100)
    print(*(Path("/sys/module/time/parameters", name).read_text().strip() for name in ("slept", "overslept")))


def main(what: str) -> None:
    together = Together.read(CONTROL)
    assert together is not None
    join(together, kernel.running().module(MODULE))
    make_links(together)
    parts: dict[str, Callable[[Together], None]] = {
        part.__name__: part
        for part in (round_the_guests, at_one_moment, exchange, idle, busy_together, end_early, end_late)
    }
    parts[what](together)
    if together.number:
        signal.pause()  # Which of two that end at one moment does so first on the host is chance.


if __name__ == "__main__":
    main(*sys.argv[1:])
