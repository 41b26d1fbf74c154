"""What ports are fed when the clock paces the frames, and when their sockets do."""

from __future__ import annotations

import errno
import math
import socket
import time
from dataclasses import dataclass, replace

import pytest

from fabric.measure import feeding
from fabric.measure.feeding import Feeder, window_for
from fabric.measure.linktest import let_go
from fabric.measure.wiring import measuring_frame
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Link, Port
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import ShapedPort, install_requests
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from tests.links import wait_until_running
from topologies.load import load_fabric


class Ends:
    """Sockets in place of those of packets: datagrams, of which the other ends tell how many were sent."""

    def __init__(self) -> None:
        self.others: list[socket.socket] = []

    def make(self, *_: object) -> socket.socket:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (one, other):
            end.setblocking(False)
        self.others.append(other)
        return one

    def take(self) -> list[int]:
        """Return how many frames each has been sent since the last time."""
        return [self._take(other) for other in self.others]

    @staticmethod
    def _take(other: socket.socket) -> int:
        count = 0
        while True:
            try:
                other.recv(100)
            except BlockingIOError:
                return count
            count += 1


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    made = Ends()
    monkeypatch.setattr(feeding, "_packet_socket", made.make)
    return made


def slowest_port(delay: str) -> tuple[Port, Link]:
    fabric = load_fabric("fire_flyer_2_small", [f"link_delay={delay}"])
    return next((port, link) for port, link in fabric.directed_ports() if link.delay_ns == fabric.links[0].delay_ns)


@dataclass
class Clock:
    """Goes on only while somebody sleeps, as in virtual time."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


def test_a_lane_that_the_clock_paces_is_fed_for_its_share_of_the_link(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feeder, "_prepare", lambda self: None)
    monkeypatch.setattr(feeding, "time", Clock())
    port, link = slowest_port("1 us")
    feeder = Feeder(Queueing.LANES)
    for share in (0.5, 0.05, 1.0):
        feeder.add(None, port, link, b"frame", 20, share)
    feeder.feed(2.5 * feeder._turn_s)
    assert ends.take() == [3 * 10, 3 * 1, 3 * 20]
    feeder.close()


def test_what_its_socket_paces_is_sent_until_the_window_is_full(ends: Ends) -> None:
    port, link = slowest_port("0 us")
    feeder = Feeder(Queueing.LANES)
    feed = feeder.add(None, port, link, b"frame", 5, 0.2)
    feeder.feed_frames(7, 60.0)
    assert (feed.sent, ends.take()) == (7, [7])
    feed.fill(feed.window_frames)
    assert ends.take() == [5]
    feeder.close()


class ShortQueue:
    """A packet socket on a port whose queue takes so many frames, and drops what comes then."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent = 0
        self.windows: list[int] = []
        self._one, self._other = socket.socketpair()

    def fileno(self) -> int:
        return self._one.fileno()

    def send(self, frame: bytes) -> None:
        if self.sent == self.room:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        self.sent += 1

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.windows.append(value)

    def close(self) -> None:
        self._one.close()
        self._other.close()


def test_a_queue_that_is_shorter_than_the_window_is_full_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is halved until it is full first, and while no queue takes anything, time goes on."""
    short = ShortQueue(room=3)
    monkeypatch.setattr(feeding, "_packet_socket", lambda *_: short)
    monkeypatch.setattr(feeding, "time", Clock())
    port, link = slowest_port("0 us")
    feeder = Feeder(Queueing.LANES)
    feed = feeder.add(None, port, link, b"frame", 8)
    feeder.feed(10 * feeder._turn_s)
    assert (feed.sent, feed.window_frames, short.windows) == (3, 1, [4 * 5, 2 * 5, 5, *[5] * (len(short.windows) - 3)])
    assert len(short.windows) <= 11
    assert feed.refused == len(short.windows) > 3
    assert let_go([feed], dropped_frames=feed.refused) == 3, "what the queue dropped was given to it, too"
    assert let_go([feed], dropped_frames=feed.refused + 1) == 2
    feeder.close()


@pytest.mark.parametrize(
    ("rate_bps", "queue_bytes", "window"),
    [
        (1e9, math.inf, 100),
        (1e9, 100_000, 75),
        (7.9e11, math.inf, 494),
        (7.9e11, 256 * 1024, 196),
        (1.0, 9, 1),
    ],
)
def test_a_window_is_shorter_than_its_queue_however_fast_the_link_is(
    rate_bps: float, queue_bytes: float, window: int
) -> None:
    _, link = slowest_port("0 us")
    assert window_for(replace(link, rate_bps=int(rate_bps)), 1000, 100, queue_bytes) == window


def test_other_errors_of_a_socket_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    short = ShortQueue(room=0)
    monkeypatch.setattr(short, "send", lambda frame: (_ for _ in ()).throw(OSError(errno.ENETDOWN, "Network is down")))
    monkeypatch.setattr(feeding, "_packet_socket", lambda *_: short)
    port, link = slowest_port("0 us")
    feeder = Feeder(Queueing.LANES)
    feeder.add(None, port, link, b"frame", 8)
    with pytest.raises(OSError, match="Network is down"):
        feeder.feed(1.0)
    feeder.close()


@pytest.mark.root
def test_a_queue_of_the_kernels_that_refuses_frames_is_no_error_and_all_it_took_arrives(private_network: None) -> None:
    """A queue of four frames behind a socket with room for a hundred: the kernel itself answers ENOBUFS."""
    port, link = slowest_port("0 us")
    ends = LinkEnd(port.interface, 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")
    frame, window, wanted = measuring_frame(1500), 100, 60
    write_sysctl("net/ipv6/conf/default/disable_ipv6", 1)  # It would send packets of its own.
    with Netlink() as kernel:
        up = [netlink.link_state(end.index, end.interface, up=True) for end in ends]
        kernel.send([netlink.veth_pair(*ends, 1500), *up])
        wait_until_running(kernel, [end.index for end in ends])
        plan = plan_lanes(QueueConfig(shared_limit=4 * len(frame)), Queueing.SHARED)
        kernel.send(install_requests(ShapedPort(port.interface, 11, 20_000_000, 1500, 0.0), plan))
        first = kernel.link(12).rx_packets
        dropped = _counted(kernel, "drops_packets")
        taken = _taken_until_refused(port, frame, window)
        feeder = Feeder(Queueing.SHARED)
        feed = feeder.add(None, port, link, frame, window)
        try:
            feeder.feed_frames(wanted, 20.0)
            feeder.feed(0.02)
        finally:
            feeder.close()
        assert feed.sent >= wanted
        assert _counted(kernel, "drops_packets") - dropped == 1 + feed.refused, "the queue counts what it refuses"
        assert feed.window_frames < window
        deadline_s = time.monotonic() + 20
        while _counted(kernel, "backlog_packets") or kernel.link(12).rx_packets - first < taken + feed.sent:
            assert time.monotonic() < deadline_s, "what the queue took did not arrive within 20 s"
            time.sleep(0.001)
        assert kernel.link(12).rx_packets - first == taken + feed.sent


def _taken_until_refused(port: Port, frame: bytes, window: int) -> int:
    """Return how many frames the port's queue takes before the kernel refuses one, with room left in the socket."""
    taken = 0
    sock = feeding._packet_socket(None, port.interface, window * len(frame))
    try:
        with pytest.raises(OSError, match="No buffer space available") as refused:
            for taken in range(window):  # noqa: B007 - the last one counts.
                sock.send(frame)
        assert refused.value.errno == errno.ENOBUFS
    finally:
        sock.close()
    return taken


def _counted(kernel: Netlink, counter: str) -> int:
    """Return a counter of the only port's queues."""
    _, counters = QueueReader().read(kernel.dump_qdiscs())
    return int(counters[counter].sum())
