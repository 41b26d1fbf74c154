"""Frames counted by service level as they leave."""

from __future__ import annotations

import socket
import struct
from collections import Counter

import pytest

from fabric.errors import EmulationError
from fabric.measure.calibration import nobodys_frame
from fabric.measure.level_counter import LevelCounter, _count, _tap, look_period_s
from fabric.model.lanes import ServiceLevel
from fabric.world import netlink
from fabric.world.agents import AgentPool
from fabric.world.netlink import LinkEnd, Netlink
from tests.links import wait_until_running
from topologies.load import load_fabric

PAIR = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")


@pytest.fixture
def pair(private_network: None) -> None:
    """Two interfaces, left and right, joined by a link."""
    pair_up(*PAIR)


def pair_up(*ends: LinkEnd) -> None:
    one, other = ends
    with Netlink() as link:
        up = [netlink.link_state(end.index, end.interface, up=True) for end in ends]
        link.send([netlink.veth_pair(one, other, 1500), *up])
        wait_until_running(link, [end.index for end in ends])


@pytest.mark.root
def test_frames_are_counted_by_dscp_as_they_leave_and_not_as_they_come(pair: None) -> None:
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
        counts: Counter[tuple[str, int]] = Counter()
        _count(tap, "left", counts)
    assert counts == {
        ("left", ServiceLevel.NCCL.dscp): 1000 + 14 + 500 + 14,
        ("left", ServiceLevel.STORAGE.dscp): 300 + 14,
    }


@pytest.mark.root
def test_frames_without_room_are_told_and_not_left_out(pair: None) -> None:
    with _tap("left") as tap, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(100):
            sock.sendto(nobodys_frame(ServiceLevel.NCCL, 1000), ("left", netlink.ETH_P_IP))
        with pytest.raises(EmulationError, match=r"^left: \d+ frames came faster than they could be counted"):
            _count(tap, "left", Counter())


@pytest.mark.parametrize("rate_bps", [8e6, 20e6, 200e9])
def test_small_frames_at_a_links_rate_fill_half_of_the_buffer_between_two_looks(rate_bps: float) -> None:
    held_bytes = rate_bps / (66 * 8) * look_period_s(rate_bps) * 768
    assert held_bytes <= 17 * 2**20
    assert held_bytes > 15 * 2**20 or look_period_s(rate_bps) == 1.0


@pytest.mark.root
def test_a_counter_answers_what_has_left_since_it_was_asked_last(private_network: None) -> None:
    fabric = load_fabric("fire_flyer_2_tiny")
    port = fabric.ports_of[fabric.switches[0]][0]
    pair_up(LinkEnd(port.interface, 11, "02:00:0a:00:00:01"), PAIR[1])
    pool = AgentPool()
    try:
        counter = LevelCounter(pool, {port: 8_000_000})
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            for size in (1000, 300):
                sock.sendto(nobodys_frame(ServiceLevel.STORAGE, size), (port.interface, netlink.ETH_P_IP))
                sent = dict.fromkeys(ServiceLevel, 0) | {ServiceLevel.STORAGE: size + 14}
                assert counter.read() == {port: sent}
    finally:
        pool.stop()
