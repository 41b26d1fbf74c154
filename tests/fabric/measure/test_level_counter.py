"""Frames counted by service level as they leave."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.measure.calibration import nobodys_frame
from fabric.measure.level_counter import LevelCounter, _Counter
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from fabric.world.programs.agents import AgentPool
from tests.links import wait_until_running
from topologies.load import load_fabric

PAIR = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")


@pytest.fixture
def pair(private_network: None) -> None:
    """Two interfaces, left and right, joined by a link."""
    pair_up(*PAIR)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A network namespace that is not this one."""
    with subprocess.Popen(["unshare", "--net", "sleep", "60"]) as holder:
        path, own = Path(f"/proc/{holder.pid}/ns/net"), Path("/proc/thread-self/ns/net").readlink()
        deadline = time.monotonic() + 10
        while path.readlink() == own and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.readlink() != own, "unshare has not begun within 10 s"
        yield path
        holder.kill()


def pair_up(*ends: LinkEnd) -> None:
    one, other = ends
    with Netlink() as link:
        up = [netlink.link_state(end.index, end.interface, up=True) for end in ends]
        link.send([netlink.veth_pair(one, other, 1500), *up])
        wait_until_running(link, [end.index for end in ends])


@pytest.mark.root
def test_frames_are_counted_by_dscp_as_they_leave_and_not_as_they_come(pair: None) -> None:
    nccl, storage, hfreduce = ServiceLevel.NCCL, ServiceLevel.STORAGE, ServiceLevel.HFREDUCE
    arp = nobodys_frame(nccl, 60)[:12] + struct.pack(">H", 0x0806) + bytes(46)
    marked = bytearray(nobodys_frame(storage, 300))
    marked[15] |= 3  # Congestion experienced: of the same DSCP.
    with ExitStack() as ends, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        counter = _Counter("left", ends)
        for frame, interface in (
            (nobodys_frame(nccl, 1000), "left"),
            (nobodys_frame(nccl, 500), "left"),
            (bytes(marked), "left"),
            (nobodys_frame(hfreduce, 700), "right"),
        ):
            sock.sendto(frame, (interface, netlink.ETH_P_IP))
        sock.sendto(arp, ("left", 0x0806))
        found = {dscp: size for dscp, size in enumerate(counter.read()) if size}
    assert found == {nccl.dscp: 1000 + 14 + 500 + 14, storage.dscp: 300 + 14}


@pytest.mark.root
def test_an_interface_that_is_not_there_is_named(private_network: None) -> None:
    with ExitStack() as ends, pytest.raises(EmulationError, match=r"^nowhere: .*cannot be put there: No such device"):
        _Counter("nowhere", ends)


@pytest.mark.root
def test_a_counter_answers_what_has_left_since_it_was_asked_last(private_network: None) -> None:
    fabric = load_fabric("fire_flyer_2_tiny")
    port = fabric.ports_of[fabric.switches[0]][0]
    pair_up(LinkEnd(port.interface, 11, "02:00:0a:00:00:01"), PAIR[1])
    pool = AgentPool()
    try:
        counter = LevelCounter(pool, {port: None})
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            for size in (1000, 300):
                sock.sendto(nobodys_frame(ServiceLevel.STORAGE, size), (port.interface, netlink.ETH_P_IP))
                sent = dict.fromkeys(SERVICE_LEVELS, 0) | {ServiceLevel.STORAGE: size + 14}
                assert counter.read() == {port: sent}
    finally:
        pool.stop()


@pytest.mark.root
def test_ports_of_several_namespaces_are_each_counted_where_they_are(private_network: None, elsewhere: Path) -> None:
    fabric = load_fabric("fire_flyer_2_tiny")
    here, there = fabric.ports_of[fabric.switches[0]][0], fabric.ports_of[fabric.switches[1]][0]
    pair_up(LinkEnd(here.interface, 11, "02:00:0a:00:00:01"), PAIR[1])
    with netns.inside(elsewhere):
        pair_up(LinkEnd(there.interface, 11, "02:00:0a:00:00:01"), PAIR[1])
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    pool = AgentPool()
    try:
        counter = LevelCounter(pool, {here: None, there: elsewhere})
        sock.sendto(nobodys_frame(ServiceLevel.NCCL, 500), (there.interface, netlink.ETH_P_IP))
        found = counter.read()
    finally:
        sock.close()
        pool.stop()
    assert found[here] == dict.fromkeys(SERVICE_LEVELS, 0)
    assert found[there] == dict.fromkeys(SERVICE_LEVELS, 0) | {ServiceLevel.NCCL: 514}
