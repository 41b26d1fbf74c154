"""Run in a guest: ``own_nic.py WHERE DELAY_NS`` has host ``a`` send into its own NIC as fast as it may, over a link of
1 Gbit/s with a delay, which is made ``at_sender`` (the project's netem) or ``at_arrival`` (a stock kernel's).

Prints JSON: how long a lone datagram takes in ns; of a flood of datagrams how long sending took, how many the queue of
the NIC dropped and how many arrived; of a TCP connection its rate, the most that waited at its NIC, and drops."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from fabric.emulation import arrivals
from fabric.emulation.arrivals import Arrival
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.counters import COUNTERS, QueueReader
from fabric.queueing.htb import ShapedPort, install_requests
from fabric.world.isolation import netns
from fabric.world.kernel_api.netlink import Netlink
from tests.fabric.world.virtual.saturated_link import (
    ADDRESS,
    FRAME_BYTES,
    INDEX,
    MTU_BYTES,
    PORT,
    SEGMENT_BYTES,
    datagram_sockets,
    make_link,
)

RATE_BPS = 1_000_000_000
DATAGRAMS, DATAGRAM_BYTES = 1_000, 4148
STREAM_BYTES = 20_000_000
LOOK_S = 0.0005


def prepare(where: str, delay_ns: int) -> None:
    plan = plan_lanes(QueueConfig(), Queueing.SHARED)
    at_arrival = where == "at_arrival"
    port = ShapedPort("a", INDEX["a"], RATE_BPS, MTU_BYTES, 0.0, delay_ns, is_host=True, delays_on_arrival=at_arrival)
    far = ShapedPort("b", INDEX["b"], RATE_BPS, MTU_BYTES)
    make_link({"a": install_requests(port, plan), "b": install_requests(far, plan)})
    if at_arrival and delay_ns:
        with Netlink(netns.netns_path("b")) as link:
            arrivals.install(link, [Arrival("b", INDEX["b"], delay_ns)], MTU_BYTES)
        time.sleep(1)


class Nic:
    """The queue of a's NIC: what it has dropped, and the most that was seen to wait in it."""

    def __init__(self) -> None:
        self._link = Netlink(netns.netns_path("a"))
        self._reader = QueueReader()
        self.most_bytes = 0

    def look(self) -> int:
        (dump,) = [self._link.dump_qdiscs()]
        _, counters = self._reader.read(dump)
        self.most_bytes = max(self.most_bytes, int(counters["backlog_bytes"].sum()))
        assert counters.dtype == COUNTERS
        return int(counters["drops_packets"].sum())

    def watch(self, end: threading.Event) -> None:
        while not end.wait(LOOK_S):
            self.look()


def lone(ends: dict[str, socket.socket]) -> int:
    sent_ns = time.monotonic_ns()
    ends["a"].sendto(b"?", (ADDRESS["b"], PORT))
    ends["b"].recv(100)
    return time.monotonic_ns() - sent_ns


def flood(ends: dict[str, socket.socket], nic: Nic) -> dict[str, float]:
    ends["b"].setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
    began, before = time.monotonic(), nic.look()
    for _ in range(DATAGRAMS):
        ends["a"].sendto(bytes(DATAGRAM_BYTES), (ADDRESS["b"], PORT))
    took_s = time.monotonic() - began
    time.sleep(0.5)
    ends["b"].setblocking(False)
    arrived = 0
    while True:
        try:
            ends["b"].recv(DATAGRAM_BYTES)
        except BlockingIOError:
            break
        arrived += 1
    return {"took_s": took_s, "dropped": nic.look() - before, "arrived": arrived}


def stream(nic: Nic) -> dict[str, float]:
    before, ended = nic.look(), threading.Event()
    nic.most_bytes = 0
    with netns.inside(netns.netns_path("b")):
        listener = socket.create_server((ADDRESS["b"], PORT))
    if os.fork() == 0:
        netns.enter(netns.netns_path("a"))
        with socket.create_connection((ADDRESS["b"], PORT)) as connection:
            connection.sendall(bytes(STREAM_BYTES))
        os._exit(0)
    watcher = threading.Thread(target=nic.watch, args=(ended,))
    watcher.start()
    connection, _ = listener.accept()
    began, got = time.monotonic(), 0
    while part := connection.recv(1 << 20):
        got += len(part)
    took_s = time.monotonic() - began
    ended.set()
    watcher.join()
    rate = got * 8 / took_s * FRAME_BYTES / SEGMENT_BYTES
    return {"rate_bps": rate, "most_bytes": nic.most_bytes, "dropped": nic.look() - before}


if __name__ == "__main__":
    Path("/run/netns").mkdir(exist_ok=True)
    prepare(sys.argv[1], int(sys.argv[2]))
    sockets, own_nic = datagram_sockets(), Nic()
    print(json.dumps({"lone_ns": lone(sockets), "flood": flood(sockets, own_nic), "stream": stream(own_nic)}))
