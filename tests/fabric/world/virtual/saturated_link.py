"""Run in a guest: ``saturated_link.py RATE_BPS SIZE_BYTES`` prints the rate, in bit/s, at which frames of one TCP
connection leave a link of that rate; ``saturated_link.py delay NS`` prints round trips over a link with that delay;
``saturated_link.py jitter RATE_BPS SIZE_BYTES`` how late lone frames of a host with jitter are, in ns, that rate of it,
and how many segments TCP sent again."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from pathlib import Path

from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.htb import ShapedPort, install_requests
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import HtbRates, LinkEnd, Netlink, Request

MTU_BYTES = 4200
FRAME_BYTES = MTU_BYTES + 14
SEGMENT_BYTES = MTU_BYTES - 20 - 20 - 12  # Of IP, TCP and its timestamps.
INDEX = {"a": 1001, "b": 1002}
ADDRESS = {"a": "10.0.0.1", "b": "10.0.0.2"}
MAC = {"a": "02:00:00:00:00:01", "b": "02:00:00:00:00:02"}
PORT = 5000
PEER = {"a": "b", "b": "a"}
LINK_WATCH_S = 2.0
"""The kernel lets links send at most a second after they are up; what is sent before is lost. It is not a wall time."""


def shaped(name: str, rate_bps: int) -> list[Request]:
    index, rate = INDEX[name], rate_bps / 8
    return [
        netlink.htb_root(index, name, 1),
        netlink.htb_class(index, name, 1, 0, HtbRates(rate, rate, 2 * FRAME_BYTES, FRAME_BYTES, 0)),
        netlink.byte_fifo(index, name, 2, 1, 1_000_000),
    ]


def delayed(name: str, delay_ns: int) -> list[Request]:
    """TCA_NETEM_LATENCY64, in ns: what ``tc`` writes is in steps of 64 ns."""
    options = struct.pack("=IIIIII", 0, 1000, 0, 0, 0, 0) + netlink.attribute(10, struct.pack("=q", delay_ns))
    body = netlink.traffic_control(INDEX[name], 1 << 16, netlink.TC_H_ROOT, 0, "netem", options)
    return [Request(netlink.RTM_NEWQDISC, netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE, body, "adding a delay")]


def make_link(requests: dict[str, list[Request]]) -> None:
    for name in "ab":
        with netns.created(name):
            pass
    ends = [LinkEnd(name, INDEX[name], MAC[name], os.open(netns.netns_path(name), os.O_RDONLY)) for name in "ab"]
    with Netlink() as link:
        link.send([netlink.veth_pair(ends[0], ends[1], MTU_BYTES)])
    for name in "ab":
        path = netns.netns_path(name)
        with Netlink(path) as link:
            link.send(
                [
                    netlink.address(INDEX[name], name, ADDRESS[name], 24),
                    netlink.link_state(INDEX[name], name, up=True),
                    netlink.neighbour(INDEX[name], ADDRESS[PEER[name]], MAC[PEER[name]]),
                    *requests[name],
                ]
            )
    time.sleep(LINK_WATCH_S)


def receive(listener: socket.socket, size_bytes: int) -> float:
    """Return the rate of frames over the last four fifths of what comes."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(262_144, size_bytes // 100))
    buffer, moments, got = bytearray(1 << 20), [], 0
    while part := connection.recv_into(buffer):
        got += part
        moments.append((time.monotonic_ns(), got))
    first_ns, first_bytes = next(moment for moment in moments if moment[1] > size_bytes / 5)
    last_ns, last_bytes = moments[-1]
    return (last_bytes - first_bytes) * 8e9 / (last_ns - first_ns) * FRAME_BYTES / SEGMENT_BYTES


def saturate(rate_bps: int, size_bytes: int) -> None:
    make_link({name: shaped(name, rate_bps) for name in "ab"})
    saturate_link(size_bytes)


def saturate_link(size_bytes: int) -> None:
    netns.enter(netns.netns_path("b"))
    listener = socket.create_server((ADDRESS["b"], PORT))
    if os.fork() == 0:
        netns.enter(netns.netns_path("a"))
        with socket.create_connection((ADDRESS["b"], PORT)) as connection:
            connection.sendall(bytes(size_bytes))
        os._exit(0)
    print(receive(listener, size_bytes))


def jittered(rate_bps: int, size_bytes: int) -> None:
    plan = plan_lanes(QueueConfig(jitter=1), Queueing.SHARED)
    port = ShapedPort("a", INDEX["a"], rate_bps, MTU_BYTES, is_host=True)
    make_link({"a": install_requests(port, plan), "b": shaped("b", rate_bps)})
    ends = datagram_sockets()
    for _ in range(50):
        time.sleep(0.001)
        sent_ns = time.monotonic_ns()
        ends["a"].sendto(b"?", (ADDRESS["b"], PORT))
        ends["b"].recv(100)
        print(time.monotonic_ns() - sent_ns, end=" ")
    saturate_link(size_bytes)
    with netns.inside(netns.netns_path("a")):
        names, values = (
            line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if "Tcp:" in line
        )
    print(values[names.index("RetransSegs")])


def datagram_sockets() -> dict[str, socket.socket]:
    ends = {}
    for name in "ab":
        with netns.inside(netns.netns_path(name)):
            ends[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            ends[name].bind((ADDRESS[name], PORT))
    return ends


def round_trips(delay_ns: int) -> None:
    make_link({name: delayed(name, delay_ns) for name in "ab"})
    ends = datagram_sockets()
    if os.fork() == 0:
        for _ in range(5):
            ends["b"].sendto(*ends["b"].recvfrom(100))
        return
    for _ in range(5):
        sent_ns = time.monotonic_ns()
        ends["a"].sendto(b"?", (ADDRESS["b"], PORT))
        ends["a"].recv(100)
        print(time.monotonic_ns() - sent_ns)


if __name__ == "__main__":
    Path("/run/netns").mkdir(exist_ok=True)
    if sys.argv[1] == "delay":
        round_trips(int(sys.argv[2]))
    elif sys.argv[1] == "jitter":
        jittered(int(sys.argv[2]), int(sys.argv[3]))
    else:
        saturate(int(sys.argv[1]), int(sys.argv[2]))
