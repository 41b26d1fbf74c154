"""Sockets with a service level and a congestion control, on loopback; and what TCP says of them."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import SERVICE_LEVELS, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.queueing.htb import ShapedPort, install_requests
from fabric.world.kernel_api.netlink import Netlink
from tests.ports import held_ports
from tests.waiting import until
from traffic.transport.connection import SocketOptions, UnreachableError
from traffic.transport.tcp import accept, accept_alike, connect, listen, reorderings, sample_of

LOOPBACK = "127.0.0.1"
OPTIONS = SocketOptions(ServiceLevel.NCCL)


@contextmanager
def connection(options: SocketOptions = OPTIONS) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection: the one that connected first."""
    with listen(LOOPBACK, 0, options) as listener:
        near = connect(LOOPBACK, port_of(listener), options, timeout_s=5)
        far, _ = accept(listener, options, timeout_s=5)
    with near, far:
        yield near, far


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def options_of(sock: socket.socket) -> tuple[int, bool, str]:
    """Return a socket's TOS, whether it sends at once, and its congestion control."""
    congestion = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    at_once = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    return sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS), at_once, congestion


@pytest.mark.parametrize("level", list(SERVICE_LEVELS))
def test_both_ends_carry_the_service_level_from_the_first_packet(level: ServiceLevel) -> None:
    options = SocketOptions(level, "reno")
    with listen(LOOPBACK, 0, options) as listener:
        assert options_of(listener) == (level.tos, True, "reno")
    with connection(options) as (near, far):
        assert options_of(near) == options_of(far) == (level.tos, True, "reno")


def test_who_accepts_decides_what_the_connection_carries() -> None:
    with listen(LOOPBACK, 0, OPTIONS) as listener, connect(LOOPBACK, port_of(listener), OPTIONS, timeout_s=5):
        far, _ = accept(listener, SocketOptions(ServiceLevel.STORAGE, "reno"), timeout_s=5)
        with far:
            assert options_of(far) == (ServiceLevel.STORAGE.tos, True, "reno")


def test_who_is_accepted_alike_has_all_options_of_the_listener() -> None:
    options = SocketOptions(ServiceLevel.STORAGE, "reno", receive_window_bytes=300_000, user_timeout_s=7.5)
    with (
        listen(LOOPBACK, 0, options) as listener,
        connect(LOOPBACK, port_of(listener), OPTIONS, timeout_s=5),
        accept_alike(listener, options) as far,
    ):
        assert options_of(far) == (ServiceLevel.STORAGE.tos, True, "reno")
        assert far.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 600_000
        assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP) == 300_000
        assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7500
        assert far.gettimeout() is None


def test_who_waits_for_connections_alike_ends_once_the_listener_is_shut_down() -> None:
    with listen(LOOPBACK, 0, OPTIONS) as listener:
        ended: list[OSError] = []

        def wait() -> None:
            try:
                accept_alike(listener, OPTIONS)
            except OSError as error:
                ended.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        time.sleep(0.05)
        listener.shutdown(socket.SHUT_RDWR)
        waiting.join(60)
        assert [error.errno for error in ended] == [errno.EINVAL]


def test_the_time_that_a_connection_may_take_does_not_limit_what_is_sent_on_it() -> None:
    with connection() as (near, _):
        assert not any(near.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))


def test_congestion_control_is_cubic_unless_asked_otherwise() -> None:
    with connection() as (near, _):
        assert options_of(near)[2] == "cubic"


def test_an_unknown_congestion_control_is_told_with_those_there_are() -> None:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    wishful = SocketOptions(ServiceLevel.STORAGE, "wishful")
    for make in (partial(listen, LOOPBACK, 0, wishful), partial(connect, LOOPBACK, 9, wishful, timeout_s=5)):
        with pytest.raises(TrafficError) as refused:
            make()
        words = f"No such file or directory; this kernel has {', '.join(available)}"
        assert str(refused.value) == f"congestion control 'wishful' of storage: {words}"


def test_connections_wait_as_long_as_they_need_for_data() -> None:
    with connection() as (near, far):
        assert near.gettimeout() is None
        assert far.gettimeout() is None


def test_a_connection_is_tried_until_somebody_listens() -> None:
    listened_s: list[float] = []

    def listen_later(port: int) -> None:
        time.sleep(0.2)
        listened_s.append(time.monotonic())
        with listen(LOOPBACK, port, OPTIONS) as listener:
            accept(listener, OPTIONS, timeout_s=5)[0].close()

    with held_ports(1) as (port,):
        later = threading.Thread(target=listen_later, args=(port,))
        later.start()
        connect(LOOPBACK, port, OPTIONS, timeout_s=10).close()
        connected_s = time.monotonic()
        later.join()
    assert listened_s and connected_s >= listened_s[0]


def test_a_connection_to_nobody_is_told_in_time() -> None:
    started = time.monotonic()
    with held_ports(1) as (port,), pytest.raises(UnreachableError) as told:
        connect(LOOPBACK, port, OPTIONS, timeout_s=0.2)
    assert 0.15 <= time.monotonic() - started < 10
    words = f"{LOOPBACK}:{port}: cannot connect within 0.2 s: "
    assert str(told.value) in (f"{words}[Errno 111] Connection refused", f"{words}timed out")


def test_a_connection_comes_from_the_source_that_was_asked_for() -> None:
    with listen("0.0.0.0", 0, OPTIONS) as listener:
        port = port_of(listener)
        with connect(LOOPBACK, port, OPTIONS, timeout_s=5, source="127.0.0.7"):
            far, address = accept(listener, OPTIONS, timeout_s=5)
            far.close()
    assert address == "127.0.0.7"


def test_a_listener_to_whom_nobody_comes_is_told() -> None:
    with listen(LOOPBACK, 0, OPTIONS) as listener, pytest.raises(UnreachableError) as told:
        accept(listener, OPTIONS, timeout_s=0.05)
        pytest.fail("nobody connected")
    assert str(told.value).startswith(f"{LOOPBACK}:")
    assert str(told.value).endswith(": nobody connected within 0.05 s")


def test_a_port_can_be_listened_on_again_at_once() -> None:
    with held_ports(1) as (port,):
        with listen(LOOPBACK, port, OPTIONS) as listener:
            near = connect(LOOPBACK, port, OPTIONS, timeout_s=5)
            far, _ = accept(listener, OPTIONS, timeout_s=5)
        far.close()
        near.close()
        listen(LOOPBACK, port, OPTIONS).close()


# What TCP says --------------------------------------------------------------------------------------------------------


def send(near: socket.socket, far: socket.socket, size: int) -> None:
    """Send bytes and wait until they have been read and acknowledged."""
    receiver = threading.Thread(target=lambda: far.recv(size, socket.MSG_WAITALL))
    receiver.start()
    near.sendall(bytes(size))
    receiver.join()
    until(lambda: not unacknowledged_bytes(near), "the acknowledgement of all")


def unacknowledged_bytes(near: socket.socket) -> int:
    (waiting,) = struct.unpack("i", fcntl.ioctl(near, termios.TIOCOUTQ, bytes(4)))
    return int(waiting)


def test_tcp_counts_acknowledged_bytes() -> None:
    def retransmissions() -> int:
        with connection() as (near, far):
            before = sample_of(near)
            send(near, far, 300_000)
            after = sample_of(near)
            assert after.delivered_bytes - before.delivered_bytes == 300_000
            assert sample_of(far).delivered_bytes < 300_000, "it has sent nothing"
            return after.retransmissions or 0

    # On a busy machine acknowledgements may be so late that TCP sends again what has arrived.
    until(lambda: retransmissions() == 0, "a connection that sends nothing again")


def round_trip_s_of(sock: socket.socket) -> float:
    found = sample_of(sock).round_trip_s
    assert found is not None
    return found


def test_tcp_tells_the_round_trip_time_in_seconds() -> None:
    with connection() as (near, far):
        send(near, far, 1000)
        assert 0 < round_trip_s_of(near) < 5, "the shortest is some tens of microseconds"


def test_tcp_counts_what_it_sent_again() -> None:
    """A listener whose queue is full does not hear who connects, until somebody in the queue is accepted."""

    def retransmissions() -> int:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, 0))
            listener.listen(0)
            first = connect(LOOPBACK, port_of(listener), OPTIONS, timeout_s=5)
            accepting = threading.Timer(0.5, lambda: accept(listener, OPTIONS, timeout_s=5)[0].close())
            began_s = time.monotonic()
            accepting.start()
            with first, connect(LOOPBACK, port_of(listener), OPTIONS, timeout_s=10) as second:
                assert sample_of(first).retransmissions == 0
                found = sample_of(second).retransmissions or 0
                # The first time a second later, and no more often than each second.
                assert found <= time.monotonic() - began_s
            accepting.join()
        return found

    # On a busy machine one may come so late that there is room, or room so late that it begins anew.
    until(retransmissions, "a connection that asks again")


def slow_loopback_down(queueing: Queueing) -> None:
    """Make loopback a link of 10 Mbit/s and full frames."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "gso_max_segs", "1", "up"], check=True, timeout=20)
    with Netlink() as link:
        link.send(install_requests(ShapedPort("lo", 1, 10_000_000, 1500), plan_lanes(QueueConfig(), queueing)))


@pytest.mark.root
def test_the_round_trip_time_holds_the_time_in_queues(private_network: None) -> None:
    """Over a link of 10 Mbit/s, where a full packet takes 1.2 ms and several wait before it."""
    slow_loopback_down(Queueing.SHARED)
    with connection() as (near, far):
        send(near, far, 300_000)
        assert 0.0024 < round_trip_s_of(near) < 5


def fill(level: ServiceLevel, count: int) -> None:
    """Let full frames wait in a lane."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as others:
        others.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, level.tos)
        for _ in range(count):
            others.sendto(bytes(1400), (LOOPBACK, 9))


def be_overtaken(near: socket.socket, far: socket.socket) -> None:
    """Send a segment that waits behind others in the first lane, and one that passes it in the control lane."""
    fill(ServiceLevel.CONTROL, 3)
    fill(OPTIONS.level, 2)
    near.sendall(bytes(1000))
    near.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ServiceLevel.CONTROL.tos)
    near.sendall(bytes(1000))
    far.recv(2000, socket.MSG_WAITALL)
    near.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, OPTIONS.level.tos)


@pytest.mark.root
def test_tcp_counts_packets_that_others_overtook(private_network: None) -> None:
    """No round trip is of an empty link, or TCP would take a segment for lost as soon as one passed it that was sent a
    quarter of the least round trip later."""
    slow_loopback_down(Queueing.LANES)
    fill(ServiceLevel.CONTROL, 10)
    with connection() as (near, far):
        assert reorderings(near) == 0
        deadline = time.monotonic() + 60
        while (
            reorderings(near) == 0
        ):  # None is overtaken if the machine lets this program wait between two of its sends.
            assert time.monotonic() < deadline, "waited 60 s for TCP to see a packet that was overtaken"
            be_overtaken(near, far)


def received_ahead(options: SocketOptions) -> int:
    """Return how many bytes a peer takes whose program reads nothing, while the sender sends all it can."""
    with connection(options) as (near, far):
        near.setblocking(False)
        sent, deadline = 0, time.monotonic() + 1.0
        while time.monotonic() < deadline:
            try:
                sent += near.send(bytes(65536))
            except BlockingIOError:
                time.sleep(0.05)
        waiting = unacknowledged_bytes(near)
        assert far.fileno() >= 0  # Open until here, or what it took would be lost.
        return sent - waiting


@pytest.mark.parametrize("window", [32 * 1024, 128 * 1024])
def test_a_receive_window_is_what_a_peer_may_send_ahead(window: int) -> None:
    ahead = received_ahead(SocketOptions(ServiceLevel.NCCL, receive_window_bytes=window))
    print(f"window {window} B, taken {ahead} B")
    assert 0.7 * window < ahead <= 2.2 * window  # Newer kernels offer nearly all of the buffer to large packets.
