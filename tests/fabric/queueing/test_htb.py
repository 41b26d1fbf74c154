"""Queues of a port: how trees are made up, and which packets wait where."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import ValidationError

from fabric.measure.calibration import nobodys_frame
from fabric.model.lanes import (
    SERVICE_LEVELS,
    Acknowledgements,
    LaneConfig,
    LanePlan,
    QueueConfig,
    Queueing,
    ServiceLevel,
    plan_lanes,
)
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import OWN_QUEUE_BYTES, ShapedPort, install_requests, replace_requests
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, attributes_of
from tests.links import wait_until_running

INDICES = {"left": 11, "right": 12}
LANES = plan_lanes(QueueConfig(), Queueing.LANES)
AHEAD = QueueConfig(acknowledgements=Acknowledgements.CONTROL)


# Making ---------------------------------------------------------------------------------------------------------------


def port(
    interface: str = "left", rate_bps: int = 20_000_000, mtu_bytes: int = 4200, slack_s: float = 0.0
) -> ShapedPort:
    return ShapedPort(interface, INDICES[interface], rate_bps, mtu_bytes, slack_s)


@pytest.mark.parametrize(
    ("rate_bps", "slack_s", "burst_bytes"),
    [(20_000_000, 0.0, 2 * 4214), (20_000_000, 100e-6, 2 * 4214), (10**10, 100e-6, 125_000)],
)
def test_a_burst_is_two_frames_or_what_late_timers_need(rate_bps: int, slack_s: float, burst_bytes: float) -> None:
    assert port(rate_bps=rate_bps, slack_s=slack_s).burst_bytes == pytest.approx(burst_bytes)


def test_a_tree_is_made_from_the_root() -> None:
    what = [request.what for request in install_requests(port(), plan_lanes(QueueConfig(), Queueing.SHARED))]
    assert what == [
        "putting HTB on left",
        "making class 1:1 on left",
        "making class 1:11 on left",
        "making queue 11: on left",
    ]  # All packets go to the default class: no filter has to be asked.


@pytest.mark.parametrize("queueing", [Queueing.SHARED, Queueing.LANES])
def test_a_hosts_own_queues_hold_all_that_its_sockets_send_and_a_switchs_what_the_plan_says(queueing: Queueing) -> None:
    plan = plan_lanes(QueueConfig(), queueing)
    limits = {lane.limit_bytes for lane in plan.lanes}
    assert limits_of(port(), plan) == limits
    assert limits_of(replace(port(), is_host=True), plan) == {OWN_QUEUE_BYTES}


def limits_of(shaped: ShapedPort, plan: LanePlan) -> set[int]:
    """Return the limits of a port's queues."""
    bodies = [dict(attributes_of(request.body, 20)) for request in install_requests(shaped, plan)]
    return {struct.unpack("=I", body[2])[0] for body in bodies if body.get(1) == b"bfifo\0"}


def test_a_tree_is_replaced_by_taking_the_old_one_away_first() -> None:
    installed, replaced = install_requests(port(), LANES), replace_requests(port(), LANES)
    assert replaced[0].what == "taking the queues off left"
    assert replaced[1:] == installed


# With packets, in a private network -----------------------------------------------------------------------------------


class Wire:
    """A pair of interfaces; the left one with lanes of 100 Mbit/s."""

    def __init__(self, link: Netlink) -> None:
        self.link = link
        ends = [LinkEnd(name, index, f"02:00:0a:00:00:{index:02x}") for name, index in INDICES.items()]
        up = [netlink.link_state(end.index, end.interface, up=True) for end in ends]
        write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)  # It would send packets of its own.
        link.send([netlink.veth_pair(ends[0], ends[1], 1500), *up])
        wait_until_running(link, INDICES.values())

    def shape(self, config: QueueConfig, queueing: Queueing) -> None:
        self.plan = plan_lanes(config, queueing)
        self.link.send(install_requests(port(rate_bps=100_000_000, mtu_bytes=1500), self.plan))

    def counters(self) -> dict[str, tuple[int, ...]]:
        names = {lane.number: lane.name for lane in self.plan.lanes}
        keys, counters = QueueReader().read(self.link.dump_qdiscs())
        return {names[lane]: row for (_, lane), row in zip(keys, counters.tolist(), strict=True)}

    def lane_of(self, frame: bytes, protocol: int = netlink.ETH_P_IP) -> str:
        """Send a frame and return the lane that counted it."""
        before = self.counters()
        send(frame, protocol=protocol)
        after = self.counters()
        (used,) = [name for name in after if sum(after[name][1:3]) > sum(before[name][1:3])]
        return used


def send(frame: bytes, times: int = 1, protocol: int = netlink.ETH_P_IP) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        for _ in range(times):
            with contextlib.suppress(OSError):  # A queue that drops says so to who sends.
                sock.sendto(frame, ("left", protocol))


@pytest.fixture
def wire(private_network: None) -> Iterator[Wire]:
    with Netlink() as link:
        yield Wire(link)


def ip_frame(protocol: int, ip_bytes: int, level: ServiceLevel = ServiceLevel.HFREDUCE) -> bytes:
    frame = bytearray(nobodys_frame(level, ip_bytes))
    frame[14 + 9] = protocol
    return bytes(frame)


def segment(
    header_bytes: int, data_bytes: int, level: ServiceLevel = ServiceLevel.HFREDUCE, flags: int = 0x10
) -> bytes:
    frame = bytearray(ip_frame(6, 20 + header_bytes + data_bytes, level))
    frame[14 + 20 + 12 : 14 + 20 + 14] = bytes((header_bytes // 4 << 4, flags))
    return bytes(frame)


@pytest.mark.root
@pytest.mark.parametrize("level", list(SERVICE_LEVELS))
def test_a_packet_waits_in_the_lane_of_its_service_level(wire: Wire, level: ServiceLevel) -> None:
    wire.shape(QueueConfig(), Queueing.LANES)
    assert wire.lane_of(nobodys_frame(level, 1000)) == wire.plan.lane_of(level).name


@pytest.mark.root
@pytest.mark.parametrize(
    ("protocol", "ip_bytes", "lane"),
    [
        (17, 40, "hfreduce"),
        (1, 84, "control"),
        (1, 1500, "control"),
    ],
)
def test_pings_wait_with_acknowledgements_that_go_ahead(wire: Wire, protocol: int, ip_bytes: int, lane: str) -> None:
    wire.shape(AHEAD, Queueing.LANES)
    assert wire.lane_of(ip_frame(protocol, ip_bytes)) == lane


@pytest.mark.root
@pytest.mark.parametrize("header_bytes", range(20, 64, 4))
def test_acknowledgements_that_go_ahead_wait_apart_and_short_data_does_not(wire: Wire, header_bytes: int) -> None:
    wire.shape(AHEAD, Queueing.LANES)
    assert wire.lane_of(segment(header_bytes, 0)) == "control"
    for data_bytes in (1, 4, 8, 60, 1000):
        assert wire.lane_of(segment(header_bytes, data_bytes)) == "hfreduce"


@pytest.mark.root
def test_the_end_of_a_connection_does_not_overtake_its_data(wire: Wire) -> None:
    wire.shape(AHEAD, Queueing.LANES)
    ack, syn, reset, fin = 0x10, 0x02, 0x04, 0x01
    lanes = [wire.lane_of(segment(32, 0, flags=flags)) for flags in (ack, syn, reset, fin | ack)]
    assert lanes == ["control", "control", "control", "hfreduce"]


@pytest.mark.root
def test_acknowledgements_stay_with_data(wire: Wire) -> None:
    wire.shape(QueueConfig(), Queueing.LANES)
    for level in (ServiceLevel.HFREDUCE, ServiceLevel.CONTROL, ServiceLevel.OTHER):
        assert wire.lane_of(segment(32, 0, level)) == level.label
    assert wire.lane_of(ip_frame(1, 84)) == "hfreduce"


def test_acknowledgements_cannot_go_ahead_without_a_lane_for_that() -> None:
    data = LaneConfig(share=0.5, service_levels=["hfreduce", "control"])
    rest = LaneConfig(share=0.5, service_levels=["nccl", "storage", "other"])
    with pytest.raises(ValidationError, match=r"no lane has the service level 'control' alone; give it one"):
        QueueConfig(lanes={"rest": rest, "data": data}, acknowledgements=Acknowledgements.CONTROL)


@pytest.mark.root
def test_what_is_no_ip_packet_waits_with_other_traffic(wire: Wire) -> None:
    wire.shape(QueueConfig(), Queueing.LANES)
    arp = nobodys_frame(ServiceLevel.HFREDUCE, 60)[:12] + struct.pack(">H", 0x0806) + bytes(46)
    assert wire.lane_of(arp, protocol=0x0806) == "other"


@pytest.mark.root
def test_ecn_bits_do_not_change_the_lane(wire: Wire) -> None:
    wire.shape(QueueConfig(), Queueing.LANES)
    frame = bytearray(nobodys_frame(ServiceLevel.STORAGE, 1000))
    frame[15] |= 0b11
    assert wire.lane_of(bytes(frame)) == "storage"


@pytest.mark.root
def test_one_shared_queue_takes_everything(wire: Wire) -> None:
    wire.shape(QueueConfig(), Queueing.SHARED)
    assert wire.lane_of(segment(32, 0)) == wire.lane_of(nobodys_frame(ServiceLevel.OTHER, 1000)) == "shared"


@pytest.mark.root
def test_a_full_lane_drops_its_own_packets_and_every_frame_is_counted(wire: Wire) -> None:
    slow = LaneConfig(share=0.001, ceiling=0.001, limit=5 * 1024, service_levels=["hfreduce"])
    rest = LaneConfig(share=0.9, service_levels=["nccl", "storage", "other", "control"])
    wire.shape(QueueConfig(lanes={"slow": slow, "rest": rest}), Queueing.LANES)
    send(nobodys_frame(ServiceLevel.HFREDUCE, 1000), times=50)
    send(nobodys_frame(ServiceLevel.NCCL, 1000), times=50)
    found = wire.counters()
    _, sent, waiting, backlog, drops, _ = found["slow"]
    assert sent + waiting + drops == 50
    assert waiting == backlog // 1014 <= 5
    assert drops > 30
    assert found["rest"][1] + found["rest"][2] == 50
    assert found["rest"][4] == 0
