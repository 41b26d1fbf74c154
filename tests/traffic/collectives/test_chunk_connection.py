"""Frames between ranks: what is sent arrives, and nothing else is taken for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from tests.traffic.transport.memory_transport import MemoryTransport
from traffic.collectives.chunk_connection import (
    ChunkConnection,
    FramesUnderWay,
    Handoff,
    Slots,
    send_side_by_side,
)
from traffic.collectives.elements import Dtype, Elements
from traffic.program_group import PeerGoneError, StalledError
from traffic.transport.connection import SocketOptions, Transport
from traffic.transport.tcp import TcpConnection, TcpTransport


def floats(count: int) -> Elements:
    return np.arange(count, dtype=np.float32)


def link_on(sock: socket.socket, name: str, timeout_s: float) -> ChunkConnection:
    return ChunkConnection(TcpConnection(sock), 0, name, timeout_s)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        a = socket.create_connection(listener.getsockname())
        b, _ = listener.accept()
    with a, b:
        yield a, b


@pytest.fixture
def tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected() as both:
        yield both


@pytest.fixture
def other_tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected() as both:
        yield both


@pytest.fixture(params=[TcpTransport, MemoryTransport])
def links(request: pytest.FixtureRequest) -> Iterator[tuple[ChunkConnection, ChunkConnection]]:
    transport: Transport = request.param(SocketOptions(ServiceLevel.NCCL))
    with closing(transport.listen("127.0.0.1")) as listener:
        a, b = transport.connect(listener.endpoint, 5.0), listener.accept(5.0)
    with closing(a), closing(b):
        yield ChunkConnection(a, 0, "rank 0 with rank 1", 60.0), ChunkConnection(b, 0, "rank 1 with rank 0", 60.0)


@pytest.mark.parametrize("count", [1, 1000, 8192, 1_000_001])
def test_chunk_of_any_size_arrives_whole(links: tuple[ChunkConnection, ChunkConnection], count: int) -> None:
    sender, receiver = links
    sent, received = floats(count), np.full(count, np.nan, np.float32)
    thread = threading.Thread(target=sender.send, args=(3, 7, sent))
    thread.start()
    receiver.receive(3, 7, received)
    thread.join(60)
    assert np.array_equal(sent, received)


def receive_trickle(tcp: tuple[socket.socket, socket.socket], pause_s: float, timeout_s: float) -> float:
    """Receive a frame of 36 kB that comes 5 kB at a time, check it, and return how long that took.

    Its last bytes are fewer than the low-water mark that the first ones waited for.
    """
    a, b = tcp
    frame = np.array([1, 0, 2, 4 * 9000], dtype=">u4").tobytes() + floats(9000).tobytes()

    def trickle() -> None:
        for start in range(0, len(frame), 5000):
            a.sendall(frame[start : start + 5000])
            time.sleep(pause_s)

    received = np.empty(9000, np.float32)
    thread = threading.Thread(target=trickle)
    started = time.monotonic()
    thread.start()
    link_on(b, "rank 1", timeout_s).receive(1, 2, received)
    took_s = time.monotonic() - started
    thread.join(60)
    assert np.array_equal(received, floats(9000))
    return took_s


def test_chunk_that_trickles_in_arrives_whole(tcp: tuple[socket.socket, socket.socket]) -> None:
    receive_trickle(tcp, pause_s=0.005, timeout_s=60.0)


def test_a_peer_that_sends_slowly_is_not_silent(tcp: tuple[socket.socket, socket.socket]) -> None:
    assert receive_trickle(tcp, pause_s=0.5, timeout_s=3.0) > 3.0


@pytest.mark.parametrize(
    ("step", "chunk", "count"),
    [pytest.param(4, 7, 10, id="step"), pytest.param(3, 8, 10, id="chunk"), pytest.param(3, 7, 11, id="length")],
)
def test_frame_other_than_the_expected_one_is_refused(
    links: tuple[ChunkConnection, ChunkConnection], step: int, chunk: int, count: int
) -> None:
    sender, receiver = links
    sender.send(step, chunk, floats(count))
    expected = rf"received frame \({step}, 0, {chunk}, {4 * count}\), expected \(3, 0, 7, 40\)"
    with pytest.raises(TrafficError, match=expected):
        receiver.receive(3, 7, floats(10))


def test_a_peer_that_stops_in_the_midst_of_a_frame_is_silent_from_then_on(
    tcp: tuple[socket.socket, socket.socket],
) -> None:
    a, b = tcp
    sent_s: list[float] = []

    def send_a_part() -> None:
        sent_s.append(time.monotonic())
        a.sendall(bytes(5000))

    threading.Timer(0.2, send_a_part).start()
    with pytest.raises(StalledError, match=r"sent no data for 2 s"):
        link_on(b, "rank 1", 2.0).receive(1, 2, np.empty(9000, np.float32))
    assert time.monotonic() - sent_s[0] >= 1.95, "to the kernel's clock tick"


def test_a_peer_that_takes_slowly_is_not_silent(tcp: tuple[socket.socket, socket.socket]) -> None:
    """To take all of it takes longer than the timeout, and than one look whether anything goes."""
    a, b = tcp
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    size = 4 * 400_000

    def take() -> None:
        left = size + 16
        while left:
            left -= len(b.recv(min(left, 10_000), socket.MSG_WAITALL))
            time.sleep(0.02)

    thread = threading.Thread(target=take)
    thread.start()
    started = time.monotonic()
    link_on(a, "rank 0", 2.0).send(1, 2, floats(400_000))
    assert time.monotonic() - started > 2.05
    thread.join(60)


def test_silent_peer_is_named_after_the_timeout(tcp: tuple[socket.socket, socket.socket]) -> None:
    link = link_on(tcp[0], "rank 0 with rank 1", 0.1)
    started = time.monotonic()
    with pytest.raises(TrafficError, match=r"rank 0 with rank 1: peer sent no data for 0\.1 s at step 3, chunk 7"):
        link.receive(3, 7, floats(10))
    assert time.monotonic() - started >= 0.1


def test_peer_that_takes_nothing_is_named_after_the_timeout(tcp: tuple[socket.socket, socket.socket]) -> None:
    link = link_on(tcp[0], "rank 0 with rank 1", 0.1)
    with pytest.raises(TrafficError, match="peer took no data"):
        link.send(0, 0, floats(8_000_000))


def test_side_by_side_a_peer_that_takes_nothing_does_not_hold_up_the_others(
    tcp: tuple[socket.socket, socket.socket], other_tcp: tuple[socket.socket, socket.socket]
) -> None:
    """Of 32 MB each, more than any socket keeps, the second peer gets all while the first one reads nothing."""
    stuck, quick = link_on(tcp[0], "to 1", 20.0), link_on(other_tcp[0], "to 2", 20.0)
    sent, received = floats(8_000_000), [np.full(8_000_000, np.nan, np.float32) for _ in range(2)]
    thread = threading.Thread(target=send_side_by_side, args=([(stuck, sent), (quick, sent)], 3, 7))
    thread.start()
    link_on(other_tcp[1], "at 2", 20.0).receive(3, 7, received[1])
    assert thread.is_alive()
    link_on(tcp[1], "at 1", 20.0).receive(3, 7, received[0])
    thread.join(60)
    assert not thread.is_alive()
    assert all(np.array_equal(one, sent) for one in received)


def test_side_by_side_the_peer_that_takes_nothing_is_named(
    tcp: tuple[socket.socket, socket.socket], other_tcp: tuple[socket.socket, socket.socket]
) -> None:
    stuck, quick = link_on(tcp[0], "to 1", 0.2), link_on(other_tcp[0], "to 2", 0.2)
    with pytest.raises(StalledError, match=r"to 1: peer took no data for 0\.2 s at step 3, chunk 7"):
        send_side_by_side([(quick, floats(10)), (stuck, floats(8_000_000))], 3, 7)


def test_side_by_side_a_connection_that_ends_ends_the_sending(
    tcp: tuple[socket.socket, socket.socket], other_tcp: tuple[socket.socket, socket.socket]
) -> None:
    one, ended = link_on(tcp[0], "to 1", 20.0), link_on(other_tcp[0], "to 2", 20.0)
    threading.Timer(0.05, other_tcp[1].close).start()
    with pytest.raises(PeerGoneError, match="to 2: connection ended at step 3, chunk 7"):
        send_side_by_side([(one, floats(8_000_000)), (ended, floats(8_000_000))], 3, 7)


def test_frames_wait_behind_each_other_and_hold_up_no_other_connection(
    tcp: tuple[socket.socket, socket.socket], other_tcp: tuple[socket.socket, socket.socket]
) -> None:
    """Three frames to a peer that reads nothing yet, then one to another: that comes at once, the three in order."""
    slow, quick = link_on(tcp[0], "to 1", 20.0), link_on(other_tcp[0], "to 2", 20.0)
    sent = [floats(4_000_000) + place for place in range(3)]
    frames = FramesUnderWay()
    for place, payload in enumerate(sent):
        frames.send(slow, 3, place, payload, mark=place)
    frames.send(quick, 3, 0, floats(10), mark=3)
    received = np.empty(10, np.float32)
    link_on(other_tcp[1], "at 2", 20.0).receive(3, 0, received)
    assert received.tolist() == floats(10).tolist()
    marks = list[str]()

    def finish() -> None:
        for mark in (1, 3, None):
            frames.finish(mark)
            marks.append(str(mark))

    thread = threading.Thread(target=finish)
    thread.start()
    reader, whole = link_on(tcp[1], "at 1", 20.0), np.empty(4_000_000, np.float32)
    assert marks == []
    for place, payload in enumerate(sent):
        reader.receive(3, place, whole)
        assert np.array_equal(whole, payload)
    thread.join(60)
    assert marks == ["1", "3", "None"]


def test_of_frames_under_way_the_peer_that_takes_nothing_is_named(tcp: tuple[socket.socket, socket.socket]) -> None:
    frames, stuck = FramesUnderWay(), link_on(tcp[0], "to 1", 0.2)
    frames.send(stuck, 3, 7, floats(8_000_000), mark=5)
    frames.finish(before=5)
    with pytest.raises(StalledError, match=r"to 1: peer took no data for 0\.2 s at step 3, chunk 7"):
        frames.finish()


def test_connection_that_ends_wakes_the_receiver(links: tuple[ChunkConnection, ChunkConnection]) -> None:
    ours, theirs = links
    threading.Timer(0.05, theirs.close).start()
    with pytest.raises(PeerGoneError, match="connection ended at step 3, chunk 7"):
        ours.receive(3, 7, floats(10))


def test_abort_wakes_our_own_receiver(links: tuple[ChunkConnection, ChunkConnection]) -> None:
    ours, _ = links
    threading.Timer(0.05, ours.abort).start()
    with pytest.raises(PeerGoneError):
        ours.receive(3, 7, floats(10))


def test_handoff_passes_pieces_on_in_order_and_names_what_does_not_come() -> None:
    handoff = Handoff("rank 2: sum", 0.05)
    first, second = floats(1), floats(2)
    handoff.put(first)
    handoff.put(second)
    assert handoff.get() is first
    assert handoff.get() is second
    with pytest.raises(TrafficError, match=r"rank 2: sum: none within 0\.05 s"):
        handoff.get()
    handoff.abort()
    with pytest.raises(PeerGoneError):
        handoff.get()


def test_a_slot_is_used_again_only_when_it_was_given_back() -> None:
    slots = Slots(5, Dtype.FP32, 3, "rank 2: room", 0.05)
    first, second = slots.take(), slots.take()
    assert first is not second
    assert first.shape == (5,)
    slots.give_back(first)
    assert slots.take() is first
    assert slots.take() is not second
    with pytest.raises(TrafficError, match=r"rank 2: room: none within 0\.05 s; raise step_timeout"):
        slots.take()
    slots.abort()
    with pytest.raises(PeerGoneError):
        slots.take()


def test_a_slot_that_is_given_back_wakes_who_waits_for_it() -> None:
    slots = Slots(5, Dtype.FP32, 1, "rank 2: room", 10)
    only = slots.take()
    threading.Timer(0.05, slots.give_back, (only,)).start()
    assert slots.take() is only
