"""Random loss by BPF on real interfaces: how much, which way, and that it is counted."""

from __future__ import annotations

import socket

import pytest

from fabric.failures.loss import LossProgram, remove_request
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, link_state, veth_pair
from tests.links import wait_until_running

FRAME = b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x88\xb5" + bytes(46)
COUNT = 4000
A, B = LinkEnd("lossy0", 100, "02:00:00:00:00:02"), LinkEnd("lossy1", 101, "02:00:00:00:00:01")

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("private_network")]


def send(interface: str, count: int = COUNT) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        for _ in range(count):
            sock.sendto(FRAME, (interface, 0x88B5))  # It never hears of a loss: no error is raised here.


def test_the_fraction_asked_for_is_lost_and_each_frame_is_counted() -> None:
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)  # Or IPv6 would send frames of its own.
    program = LossProgram()
    with Netlink() as link:
        link.send([veth_pair(A, B, 1500), link_state(100, "lossy0", True), link_state(101, "lossy1", True)])
        wait_until_running(link, (100, 101))
        program.set_fraction(0.1)
        link.send(program.install_requests(100, "lossy0"))
        before = link.link(101).rx_packets
        send("lossy0")
        send("lossy1")
        arrived = link.link(101).rx_packets - before
        lost, lost_bytes = program.lost()
        back = link.link(100).rx_packets
        print(lost, arrived)
        assert arrived == COUNT - lost
        assert lost == pytest.approx(0.1 * COUNT, rel=0.3)
        assert lost_bytes == lost * len(FRAME)
        assert back >= COUNT, "the other direction loses nothing"
        program.set_fraction(1.0)
        send("lossy0")
        assert program.lost()[0] == lost + COUNT
        link.send([remove_request(100, "lossy0")])
        send("lossy0")
        assert program.lost()[0] == lost + COUNT
        assert link.link(101).rx_packets - before == arrived + COUNT
    program.close()
