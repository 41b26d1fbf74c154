"""Captures: which port a text means, and counting frames by service level as they leave."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter

import pytest

from fabric.emulation.capture import parse_port
from fabric.errors import UsageError
from fabric.measure.calibration import nobodys_frame
from fabric.measure.level_counter import _count, _tap
from fabric.model.lanes import ServiceLevel
from fabric.world import netlink
from fabric.world.netlink import LinkEnd, Netlink
from tests.links import wait_until_running
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")


@pytest.mark.parametrize(
    ("text", "port"),
    [("z0l03:7", "z0l03:7"), ("z0l03-eth7", "z0l03:7"), ("z0h000:0", "z0h000:0"), ("st001-eth1", "st001:1")],
)
def test_a_port_is_named_as_here_or_as_in_mininet(text: str, port: str) -> None:
    assert str(parse_port(SMALL, text)) == port


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("z0l00:99", "z0l00 has ports 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("z0l00", "z0l00 has ports 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("st000:2", "st000 has ports 0, 1"),
        ("z9l00:1", "fire_flyer_2_small has no node 'z9l00'"),
        ("", "fire_flyer_2_small has no node ''"),
    ],
)
def test_a_port_that_is_none_is_refused_with_those_there_are(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_port(SMALL, text)
    assert str(refused.value) == f"{text!r} is no port; write it like z0l03:7; {hint}"


@pytest.mark.root
def test_frames_are_counted_by_dscp_as_they_leave_and_not_as_they_come(private_network: None) -> None:
    left, right = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")
    with Netlink() as link:
        up = [netlink.link_state(end.index, end.interface, up=True) for end in (left, right)]
        link.send([netlink.veth_pair(left, right, 1500), *up])
        wait_until_running(link, [left.index, right.index])
    arp = nobodys_frame(ServiceLevel.NCCL, 60)[:12] + struct.pack(">H", 0x0806) + bytes(46)
    with _tap("left") as tap, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        for level, size, interface in (
            (ServiceLevel.NCCL, 1000, "left"),
            (ServiceLevel.NCCL, 500, "left"),
            (ServiceLevel.STORAGE, 300, "left"),
            (ServiceLevel.HFREDUCE, 700, "right"),
        ):
            sock.sendto(nobodys_frame(level, size), (interface, netlink.ETH_P_IP))
        sock.sendto(arp, ("left", 0x0806))
        time.sleep(0.1)
        counts: Counter[tuple[str, int]] = Counter()
        _count(tap, "left", counts)
    assert counts == {
        ("left", ServiceLevel.NCCL.dscp): 1000 + 14 + 500 + 14,
        ("left", ServiceLevel.STORAGE.dscp): 300 + 14,
    }
