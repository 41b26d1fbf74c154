"""Frames counted by service level as they leave."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter

import pytest

from fabric.measure.calibration import nobodys_frame
from fabric.measure.level_counter import _count, _tap
from fabric.model.lanes import ServiceLevel
from fabric.world import netlink
from fabric.world.netlink import LinkEnd, Netlink
from tests.links import wait_until_running


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
