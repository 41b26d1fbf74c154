"""A frame that waits behind a switch is charged to its sender's socket, unless its port lets it go."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.emulation import uncharging
from fabric.measure.packet_filter import see_arriving
from fabric.world.isolation import netns
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, link_state, veth_pair
from tests.links import wait_until_running

HOST, PORT, WIRE = "host0", "port0", "wire0"
HOST_INDEX, PORT_INDEX, WIRE_INDEX, FAR_INDEX = 200, 201, 202, 203
MESSAGES, FRAME = 20, b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x88\xb5" + bytes(1000)
_SIOCOUTQ = 0x5411
_SOL_PACKET, _PACKET_STATISTICS = 263, 6

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("private_network")]


@pytest.fixture
def sender(private_network: None) -> Iterator[Path]:
    """Another network namespace."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo there; read end"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield Path(f"/proc/{holder.pid}/ns/net")
        holder.kill()


def tc(*words: str) -> str:
    return subprocess.run(["tc", *words], check=True, capture_output=True, text=True).stdout


def charged_after_a_burst(sender: Path) -> int:
    """Return the bytes that a socket is charged with once it has sent; nothing of it is on its way by then."""
    with netns.inside(sender), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        for _ in range(MESSAGES):
            sock.sendto(FRAME, (HOST, 0x88B5))
        (charged,) = struct.unpack("i", fcntl.ioctl(sock, _SIOCOUTQ, bytes(4)))
        return int(charged)


def make_switch(link: Netlink, sender: Path) -> None:
    """What comes by PORT goes on by WIRE, which carries 1 kbit/s, so that all of it waits there."""
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    with netns.inside(sender):  # Or it announces itself, in frames that the test would count.
        write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)
    with sender.open("rb") as namespace:
        host = LinkEnd(HOST, HOST_INDEX, "02:00:00:00:00:02", namespace.fileno())
        link.send([veth_pair(host, LinkEnd(PORT, PORT_INDEX, "02:00:00:00:00:03"), 1500)])
    wire, far = LinkEnd(WIRE, WIRE_INDEX, "02:00:00:00:00:04"), LinkEnd("far0", FAR_INDEX, "02:00:00:00:00:05")
    link.send([veth_pair(wire, far, 1500)])
    names = {PORT_INDEX: PORT, WIRE_INDEX: WIRE, FAR_INDEX: "far0"}
    link.send([link_state(index, name, True) for index, name in names.items()])
    with Netlink(sender) as inside:
        inside.send([link_state(HOST_INDEX, HOST, True)])
        wait_until_running(inside, [HOST_INDEX])
    wait_until_running(link, names)
    tc("qdisc", "add", "dev", WIRE, "root", "tbf", "rate", "1kbit", "burst", "1600", "limit", "1m")
    tc("qdisc", "add", "dev", PORT, "clsact")
    everything = ["prio", "9", "u32", "match", "u32", "0", "0"]
    tc("filter", "add", "dev", PORT, "ingress", *everything, "action", "mirred", "egress", "redirect", "dev", WIRE)


def test_a_frame_behind_its_first_switch_is_no_longer_charged_to_its_sender(sender: Path) -> None:
    with Netlink() as link:
        make_switch(link, sender)
        before = charged_after_a_burst(sender)
        uncharging.install(link, {PORT_INDEX: PORT})
        let_go = charged_after_a_burst(sender)
        waiting = tc("-s", "qdisc", "show", "dev", WIRE)
        uncharging.remove(link, {PORT_INDEX: PORT})
        after = charged_after_a_burst(sender)
    print(before, let_go, after, waiting)
    assert let_go == 0
    assert min(before, after) > (MESSAGES - 2) * len(FRAME)
    frames = int(waiting.split("backlog ")[1].split()[1].removesuffix("p"))
    assert 2 * MESSAGES - 3 <= frames <= 2 * MESSAGES, "clones wait in the frames' place, none lost, none twice"


def test_a_frame_that_a_clone_replaces_arrives_once(sender: Path) -> None:
    with Netlink() as link, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as tap:
        make_switch(link, sender)
        see_arriving(tap, 0x88B5, seen_bytes=64)
        tap.bind((PORT, 0x0003))
        for install in (uncharging.install, uncharging.remove):
            install(link, {PORT_INDEX: PORT})
            charged_after_a_burst(sender)
            seen, _ = struct.unpack("II", tap.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            assert seen == MESSAGES
